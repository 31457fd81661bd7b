// A mirror: all rows of a table, updated by every change in order.

import type { Answer, Connection, Subscriber } from "./connection.js";
import { type TurnoutError, unheard } from "./errors.js";
import type { Changes, ClientMessage, ColumnInfo, RowSet, Snapshot } from "./messages.js";
import { type AnyRow, RowMaker } from "./rows.js";

export interface ChangesOptions {
  table: string;
  columns?: string | string[];
}

/** A change that was just applied to a mirror. */
export type MirrorChange<Row> =
  | {
      /** All rows were replaced. `swap`: by another generation; `behind`: because changes were missed. */
      readonly kind: "snapshot";
      readonly reason: "subscribed" | "swap" | "behind";
    }
  | {
      readonly kind: "changes";
      readonly inserted: readonly Row[];
      readonly updated: readonly Row[];
      /** The deleted rows with their last values. */
      readonly deleted: readonly Row[];
    };

export interface MirrorCallbacks<Row> {
  onChange?(change: MirrorChange<Row>, mirror: TableMirror<Row>): void;
  /** Called when the mirror ends by an error, such as a removed table; `restart` starts it again. */
  onError?(error: TurnoutError): void;
}

/** A snapshot whose parts have not all arrived; it is not visible yet. */
interface Parts<Row> {
  readonly generation: number;
  readonly version: number;
  readonly maker: RowMaker<Row>;
  readonly rows: Map<string, Row>;
}

export class TableMirror<Row = AnyRow> {
  readonly table: string;
  /** All rows by their ids. A snapshot replaces the map; changes modify it. */
  rows: ReadonlyMap<string, Row> = new Map();
  columns: readonly ColumnInfo[] = [];
  /** 0 before the first snapshot. */
  generation = 0;
  version = 0;
  /** Whether a complete snapshot has arrived. */
  ready = false;

  private readonly connection: Connection;
  private readonly options: ChangesOptions;
  private readonly callbacks: MirrorCallbacks<Row>;
  private store: string | null = null;
  private held = new Map<string, Row>();
  private maker = new RowMaker<Row>([]);
  private parts: Parts<Row> | null = null;
  private readonly subscriber: Subscriber = {
    request: (id) => this.request(id),
    receive: (answer) => this.receive(answer),
    failed: (error) => this.failed(error),
    ended: () => void (this.parts = null),
  };

  constructor(connection: Connection, options: ChangesOptions, callbacks: MirrorCallbacks<Row>) {
    this.table = options.table;
    this.connection = connection;
    this.options = { ...options };
    this.callbacks = callbacks;
    connection.start(this.subscriber);
  }

  /** Request a new snapshot. The rows stay until it has arrived. */
  restart(): void {
    this.ready = false;
    this.connection.start(this.subscriber);
  }

  close(): void {
    this.connection.stop(this.subscriber);
  }

  private request(id: string): ClientMessage {
    this.parts = null;
    const { generation, version } = this;
    const resumes = this.ready && this.store === this.connection.store;
    return { ...this.options, type: "changes", id, resume: resumes ? { generation, version } : null };
  }

  private receive(answer: Answer): void {
    if (answer.type === "snapshot") this.collect(answer);
    else if (answer.type === "changes") this.apply(answer);
  }

  private failed(error: TurnoutError): void {
    if (this.callbacks.onError) this.callbacks.onError(error);
    else unheard(error);
  }

  private collect(message: Snapshot): void {
    const { generation, version } = message;
    if (this.parts?.generation !== generation || this.parts.version !== version) {
      this.parts = { generation, version, maker: new RowMaker(message.columns), rows: new Map() };
    }
    const { maker, rows } = this.parts;
    message.ids.forEach((id, index) => rows.set(id, maker.make(id, message.rows[index]!)));
    if (!message.last) return;
    this.parts = null;
    this.maker = maker;
    this.columns = message.columns;
    this.held = rows;
    this.rows = rows;
    this.generation = generation;
    this.version = version;
    this.ready = true;
    this.store = this.connection.store;
    this.callbacks.onChange?.({ kind: "snapshot", reason: message.reason }, this);
  }

  private apply(message: Changes): void {
    const follows = this.ready && message.generation === this.generation && message.since === this.version;
    // Changes were missed, so a new snapshot is needed.
    if (!follows || this.parts !== null) return this.restart();
    const deleted = message.delete.flatMap((id) => this.take(id));
    const updated = this.put(message.update);
    const inserted = this.put(message.insert);
    this.version = message.version;
    this.callbacks.onChange?.({ kind: "changes", inserted, updated, deleted }, this);
  }

  private take(id: string): Row[] {
    const row = this.held.get(id);
    this.held.delete(id);
    return row === undefined ? [] : [row];
  }

  private put({ ids, rows }: RowSet): Row[] {
    return ids.map((id, index) => {
      const row = this.maker.make(id, rows[index]!);
      this.held.set(id, row);
      return row;
    });
  }
}
