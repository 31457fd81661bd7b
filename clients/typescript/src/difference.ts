// What differs in a table between two generations, sent whole whenever it changed, at most once a second.

import type { RowsOptions } from "./api.js";
import type { Answer, Connection, Subscriber } from "./connection.js";
import { type TurnoutError, unheard } from "./errors.js";
import type { ClientMessage, DifferenceNow } from "./messages.js";

/** What differs, of one moment. `counts`, `total` and `columns` tell of all rows that `where` keeps, `rows` has some of them. */
export type TableDifference = Omit<DifferenceNow, "type" | "id">;

/** Which difference. Without `from` and `to`: between what is shown and the candidate. */
export interface DifferenceOptions extends Omit<RowsOptions, "columns"> {
  table: string;
  from?: number;
  to?: number;
}

export interface DifferenceCallbacks {
  onDifference?(found: TableDifference): void;
  /** It is over, for example because a generation has gone; `move` starts it again. */
  onError?(error: TurnoutError): void;
}

export class DifferenceSubscription {
  private readonly connection: Connection;
  private readonly callbacks: DifferenceCallbacks;
  private options: DifferenceOptions;
  private readonly subscriber: Subscriber = {
    request: (id): ClientMessage => ({ ...this.options, type: "difference", id }),
    receive: (answer) => this.receive(answer),
    failed: (error) => this.failed(error),
    ended: () => undefined,
  };

  constructor(connection: Connection, options: DifferenceOptions, callbacks: DifferenceCallbacks) {
    this.connection = connection;
    this.options = { ...options };
    this.callbacks = callbacks;
    connection.start(this.subscriber);
  }

  /** Ask for something else: what is not given stays. */
  move(options: Partial<DifferenceOptions>): void {
    this.options = { ...this.options, ...options };
    this.connection.start(this.subscriber);
  }

  close(): void {
    this.connection.stop(this.subscriber);
  }

  private receive(answer: Answer): void {
    if (answer.type === "difference") this.callbacks.onDifference?.(answer);
  }

  private failed(error: TurnoutError): void {
    if (this.callbacks.onError) this.callbacks.onError(error);
    else unheard(error);
  }
}
