// A window: some rows of a table, sent completely whenever they change.

import type { RowsOptions } from "./api.js";
import type { Answer, Connection, Subscriber } from "./connection.js";
import { type TurnoutError, unheard } from "./errors.js";
import { Newest } from "./newest.js";
import type { ClientMessage, ColumnInfo, Position, WindowRows } from "./messages.js";
import { type AnyRow, RowMaker, rowId, sameColumns } from "./rows.js";

export interface WindowOptions extends RowsOptions {
  table: string;
}

/** The origin of rows, and their window. */
export interface WindowInfo {
  readonly table: string;
  readonly generation: number;
  readonly version: number;
  /** The number of all rows that match `where`, not only of those in this window. */
  readonly total: number;
  readonly offset: number;
  readonly columns: readonly ColumnInfo[];
  /** Whether the generation differs from that of the previous rows. */
  readonly swapped: boolean;
  /** The options of these rows: after `move`, rows of the previous request may still arrive. */
  readonly options: Readonly<WindowOptions>;
}

export interface WindowCallbacks<Row> {
  /** Called with the complete window. Rows are frozen; an unchanged row is the same object. `rowId(row)` is its id. */
  onRows?(rows: readonly Row[], info: WindowInfo): void;
  /** Called when the window ends by an error, such as a wrong `where`; `move` starts it again. */
  onError?(error: TurnoutError): void;
}

/** One step of `for await`. */
export interface WindowStep<Row> {
  readonly rows: readonly Row[];
  readonly info: WindowInfo;
}

/** The minimum time between two sent moves; of the moves in between only the last is sent. */
export const MOVE_MS = 50;

export class WindowSubscription<Row = AnyRow> implements AsyncIterable<WindowStep<Row>> {
  private readonly connection: Connection;
  private readonly callbacks: WindowCallbacks<Row>;
  private readonly newest: Newest<WindowStep<Row>>;
  private options: WindowOptions;
  /** The options of the current request; a delayed move has other options. */
  private asked: WindowOptions;
  private shown: WindowStep<Row> | null = null;
  private store: string | null = null;
  private byId = new Map<string, Row>();
  private maker: RowMaker<Row> | null = null;
  private movedAt = -Infinity;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;
  private readonly subscriber: Subscriber = {
    request: (id) => this.request(id),
    receive: (answer) => this.receive(answer),
    failed: (error) => this.failed(error),
    ended: () => this.ended(),
  };

  constructor(connection: Connection, options: WindowOptions, callbacks: WindowCallbacks<Row>) {
    this.connection = connection;
    this.options = this.asked = { ...options };
    this.callbacks = callbacks;
    this.newest = new Newest(() => this.close());
    connection.start(this.subscriber);
  }

  /** The newest rows. */
  get rows(): readonly Row[] {
    return this.shown?.rows ?? [];
  }

  /** The information on the rows; null before the first rows. */
  get info(): WindowInfo | null {
    return this.shown?.info ?? null;
  }

  /** Change the window; omitted options keep their value. The rows stay until the new ones arrive. */
  move(options: Partial<WindowOptions>): void {
    if (this.closed) throw new Error("this window is closed");
    this.options = { ...this.options, ...options };
    clearTimeout(this.timer);
    const wait = this.movedAt + MOVE_MS - performance.now();
    if (wait <= 0) this.restart();
    else this.timer = setTimeout(() => this.restart(), wait);
  }

  close(): void {
    this.connection.stop(this.subscriber);
    this.ended();
  }

  /** Iterate over the newest rows; a slow reader skips steps, but not the last. Leaving the loop closes the window. */
  [Symbol.asyncIterator](): AsyncIterator<WindowStep<Row>> {
    return this.newest;
  }

  private restart(): void {
    this.movedAt = performance.now();
    this.connection.start(this.subscriber);
  }

  private request(id: string): ClientMessage {
    this.asked = this.options;
    return { ...this.asked, type: "window", id, resume: this.seen() };
  }

  private seen(): Position | null {
    if (this.shown?.info.options !== this.asked || this.store !== this.connection.store) return null;
    return { generation: this.shown.info.generation, version: this.shown.info.version };
  }

  private receive(answer: Answer): void {
    if (answer.type === "rows") this.show(answer);
  }

  private show(message: WindowRows): void {
    const { table, generation, version, total, offset } = message;
    const before = this.shown?.info;
    if (this.maker === null || before === undefined || !sameColumns(before.columns, message.columns)) {
      this.maker = new RowMaker(message.columns);
      this.byId = new Map();
    }
    const maker = this.maker;
    const rows = message.ids.map((id, index) => maker.keep(this.byId.get(id), id, message.rows[index]!));
    this.byId = new Map(rows.map((row) => [rowId(row as object), row]));
    const swapped = before !== undefined && before.generation !== generation;
    const info = { table, generation, version, total, offset, columns: message.columns, swapped, options: this.asked };
    this.shown = { rows, info };
    this.store = this.connection.store;
    this.newest.give(this.shown);
    this.callbacks.onRows?.(rows, info);
  }

  private failed(error: TurnoutError): void {
    this.newest.fail(error);
    if (this.callbacks.onError) this.callbacks.onError(error);
    else if (!this.newest.read) unheard(error);
  }

  private ended(): void {
    clearTimeout(this.timer);
    this.closed = true;
    this.newest.end();
  }
}
