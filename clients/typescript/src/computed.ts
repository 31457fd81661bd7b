// Live summaries, differences and SELECTs. The server sends the complete answer whenever it changes.

import type { ChangedRow, Difference, DifferenceOptions, RowsOptions } from "./api.js";
import type { Answer, Connection, Subscriber } from "./connection.js";
import { type TurnoutError, unheard } from "./errors.js";
import { Newest } from "./newest.js";
import type { ClientMessage, ColumnInfo, HistoryPoint, SummaryGroups, SwapMoment, WindowRows } from "./messages.js";
import { type AnyRow, RowMaker, rowId, sameColumns } from "./rows.js";

/** The options of a summary. */
export interface SummaryOptions extends Pick<RowsOptions, "where" | "sort" | "limit"> {
  table: string;
  /** The grouping columns, such as `"accountType"`, `"age:10"` or `"ts:1m"`, or a list of at most three. */
  by?: string | string[];
  /** The values, such as `"count,sum(balance)"`, or a list; `count` by default. */
  values?: string | string[];
  /** The seconds of past values to return: at most 3,600. */
  history?: number;
}

/** The past values of a summary: the points of the last `seconds`, oldest first, and the swaps. */
export interface SummaryPast {
  readonly seconds: number;
  /** The `groups` of a point are lists in column order, valid from `time` (as `Date.now()`) until the next point. */
  readonly points: readonly HistoryPoint[];
  readonly swaps: readonly SwapMoment[];
}

export interface SummaryInfo {
  readonly table: string;
  readonly generation: number;
  readonly version: number;
  /** The number of all groups, also of those not sent. */
  readonly total: number;
  readonly by: readonly string[];
  readonly columns: readonly ColumnInfo[];
  /** Whether the generation differs from that of the previous answer. */
  readonly swapped: boolean;
  readonly options: Readonly<SummaryOptions>;
  /** The past values; null without `history`. */
  readonly past: SummaryPast | null;
}

/** A difference without its rows. */
export interface DifferenceInfo extends Readonly<Omit<Difference, "rows">> {
  /** The generation of `to`. */
  readonly generation: number;
  /** Whether the generation of `to` differs from that of the previous answer: there is another candidate. */
  readonly swapped: boolean;
  readonly options: Readonly<DifferenceOptions>;
}

export interface SqlSubscribeOptions {
  sql: string;
  limit?: number;
  /** Send the rows again whenever one of the tables changes. */
  live?: boolean;
}

export interface SqlInfo {
  readonly generation: number;
  readonly columns: readonly ColumnInfo[];
  /** False if there are more rows than `limit`. */
  readonly complete: boolean;
  readonly swapped: boolean;
  readonly options: Readonly<SqlSubscribeOptions>;
}

export interface ComputedCallbacks<Row, Info> {
  /** Called with the complete answer. Rows are frozen; an unchanged row is the same object as before. */
  onRows?(rows: readonly Row[], info: Info): void;
  /** Called when the subscription ends by an error, such as a wrong column; `move` starts it again. */
  onError?(error: TurnoutError): void;
}

export interface ComputedStep<Row, Info> {
  readonly rows: readonly Row[];
  readonly info: Info;
}

/** Base class of summaries, differences and SELECTs: it delivers the newest answer to callbacks or `for await`. */
abstract class Computed<Row, Info extends { generation: number; columns: readonly ColumnInfo[] }, Options>
  implements AsyncIterable<ComputedStep<Row, Info>>
{
  protected readonly connection: Connection;
  protected options: Options;
  protected shown: ComputedStep<Row, Info> | null = null;
  private readonly callbacks: ComputedCallbacks<Row, Info>;
  private readonly newest: Newest<ComputedStep<Row, Info>>;
  private byId = new Map<string, Row>();
  private maker: RowMaker<Row> | null = null;
  private closed = false;
  private readonly subscriber: Subscriber = {
    request: (id) => this.request(id),
    receive: (answer) => this.receive(answer),
    failed: (error) => this.failed(error),
    ended: () => this.ended(),
  };

  constructor(connection: Connection, options: Options, callbacks: ComputedCallbacks<Row, Info>) {
    this.connection = connection;
    this.options = { ...options };
    this.callbacks = callbacks;
    this.newest = new Newest(() => this.close());
    connection.start(this.subscriber);
  }

  get rows(): readonly Row[] {
    return this.shown?.rows ?? [];
  }

  /** The information on the rows; null before the first answer. */
  get info(): Info | null {
    return this.shown?.info ?? null;
  }

  /** Change the request; omitted options keep their value. The rows stay until the new ones arrive. */
  move(options: Partial<Options>): void {
    if (this.closed) throw new Error("this subscription is closed");
    this.options = { ...this.options, ...options };
    this.connection.start(this.subscriber);
  }

  close(): void {
    this.connection.stop(this.subscriber);
    this.ended();
  }

  /** Iterate over the newest answers. Leaving the loop closes the subscription. */
  [Symbol.asyncIterator](): AsyncIterator<ComputedStep<Row, Info>> {
    return this.newest;
  }

  protected abstract request(id: string): ClientMessage;

  protected abstract receive(answer: Answer): void;

  protected show(columns: readonly ColumnInfo[], ids: string[], cells: readonly unknown[][], info: Info): void {
    if (this.maker === null || this.shown === null || !sameColumns(this.shown.info.columns, columns)) {
      this.maker = new RowMaker(columns);
      this.byId = new Map();
    }
    const maker = this.maker;
    const rows = ids.map((id, index) => maker.keep(this.byId.get(id), id, cells[index]!));
    this.byId = new Map(rows.map((row) => [rowId(row as object), row]));
    this.give(rows, info);
  }

  protected give(rows: readonly Row[], info: Info): void {
    this.shown = { rows, info };
    this.newest.give(this.shown);
    this.callbacks.onRows?.(rows, info);
  }

  protected swapped(generation: number): boolean {
    return this.shown !== null && this.shown.info.generation !== generation;
  }

  private failed(error: TurnoutError): void {
    this.newest.fail(error);
    if (this.callbacks.onError) this.callbacks.onError(error);
    else if (!this.newest.read) unheard(error);
  }

  private ended(): void {
    this.closed = true;
    this.newest.end();
  }
}

/** A subscription to a summary. A group is an object by column name; `rowId(group)` identifies it across updates. */
export class SummarySubscription<Group = AnyRow> extends Computed<Group, SummaryInfo, SummaryOptions> {
  private points = new Map<number, HistoryPoint>();

  protected override request(id: string): ClientMessage {
    return { ...this.options, type: "summary", id };
  }

  protected override receive(answer: Answer): void {
    if (answer.type !== "summary") return;
    const { table, generation, version, total, by, columns, groups } = answer;
    const ids = groups.map((group) => JSON.stringify(group.slice(0, by.length)));
    const swapped = this.swapped(generation);
    const options = this.options;
    const info = { table, generation, version, total, by, columns, swapped, options, past: this.past(answer) };
    this.show(columns, ids, groups, info);
  }

  private past({ history }: SummaryGroups): SummaryPast | null {
    if (!history) return null;
    const { seconds, whole, points, swaps } = history;
    const known = whole ? new Map<number, HistoryPoint>() : this.points;
    for (const point of points) known.set(point.time, point);
    const begin = Math.max(...known.keys()) - seconds * 1000;
    const sorted = [...known.values()].sort((one, other) => one.time - other.time);
    // Keep the last point before the beginning: its values still apply at the beginning.
    const kept = sorted.filter((_, index) => index + 1 >= sorted.length || sorted[index + 1]!.time > begin);
    this.points = new Map(kept.map((point) => [point.time, point]));
    return { seconds, points: kept, swaps };
  }
}

/** A subscription to the differences of two generations. It ends with `no_candidate` when the candidate is gone. */
export class DifferenceSubscription<Row = AnyRow> extends Computed<ChangedRow<Row>, DifferenceInfo, DifferenceOptions> {
  protected override request(id: string): ClientMessage {
    return { ...this.options, type: "difference", id };
  }

  protected override receive(answer: Answer): void {
    if (answer.type !== "difference") return;
    const { type: _, id: __, rows, ...fields } = answer;
    const { generation } = fields.to;
    const info = { ...fields, generation, swapped: this.swapped(generation), options: this.options };
    this.give(rows as ChangedRow<Row>[], info);
  }
}

/** A subscription to the rows of a SELECT: once, or with `live` again whenever one of its tables changes. */
export class SqlSubscription<Row = AnyRow> extends Computed<Row, SqlInfo, SqlSubscribeOptions> {
  protected override request(id: string): ClientMessage {
    return { ...this.options, type: "sql", id };
  }

  protected override receive(answer: Answer): void {
    if (answer.type === "rows") this.take(answer);
  }

  private take({ generation, columns, complete = true, ids, rows }: WindowRows): void {
    const info = { generation, columns, complete, swapped: this.swapped(generation), options: this.options };
    this.show(columns, ids, rows, info);
  }
}
