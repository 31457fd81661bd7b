// Written by scripts/generate_types.py from turnout_client.messages (`make types`): change it there.

export const PROTOCOL = "turnout";
export const TOKEN_PROTOCOL = "turnout.token.";
export const MAX_MESSAGE_BYTES = 65536;
export const MAX_WINDOW_ROWS = 10000;
export const MAX_SUMMARY_GROUPS = 10000;
export const MAX_SQL_ROWS = 10000;
export const MAX_HISTORY_SECONDS = 3600;
export const MAX_SUBSCRIPTIONS = 32;
export const SNAPSHOT_PART_ROWS = 50000;

/** Why the server ended a connection. */
export const CloseCode = {
  TOO_LARGE: 1009,
  STOPPING: 1012,
  SIGNED_OUT: 4401,
  SLOW: 4408,
  TOO_MANY_MESSAGES: 4429,
} as const;
export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];

export type Message = ClientMessage | ServerMessage;
export type ClientMessage =
  WindowRequest | ChangesRequest | SummaryRequest | DifferenceRequest | SqlRequest | StatusRequest | Unsubscribe;
export type ServerMessage =
  Hello | WindowRows | SummaryGroups | DifferenceNow | Current | Snapshot | Changes | StatusNow | Problem;

/**
 * Send these rows now, and again whenever they change. The same id again moves the subscription.
 */
export interface WindowRequest {
  type: "window";
  id: string;
  table: string;
  columns?: string | string[] | null;
  where?: string | (string | Term)[];
  sort?: string | string[];
  offset?: number;
  limit?: number;
  resume?: Position | null;
}
/**
 * One condition of `where`: a column, an operator, and a value where the operator takes one.
 */
export interface Term {
  column: string;
  op: string;
  value?: unknown;
}
/**
 * How much of a table a client has seen.
 */
export interface Position {
  generation: number;
  version: number;
}
/**
 * Send all rows, then every change in order. With `resume`: only what changed since, where that is still known.
 */
export interface ChangesRequest {
  type: "changes";
  id: string;
  table: string;
  columns?: string | string[] | null;
  resume?: Position | null;
}
/**
 * Send groups of a table's rows now, and again whenever they change. `history`: also how they were before.
 */
export interface SummaryRequest {
  type: "summary";
  id: string;
  table: string;
  by?: string | string[];
  values?: string | string[];
  where?: string | (string | Term)[];
  sort?: string | string[];
  limit?: number;
  history?: number;
}
/**
 * Send what differs between two generations, and again when it changed, at most once a second.
 *
 * Without `from` and `to`: between what is shown and the candidate.
 */
export interface DifferenceRequest {
  type: "difference";
  id: string;
  table: string;
  from?: number | null;
  to?: number | null;
  change?: ("added" | "removed" | "changed") | null;
  where?: string | (string | Term)[];
  sort?: string | string[];
  offset?: number;
  limit?: number;
}
/**
 * Send the rows of a SELECT; `live`: again whenever a table that it names changed.
 */
export interface SqlRequest {
  type: "sql";
  id: string;
  sql: string;
  limit?: number;
  live?: boolean;
}
/**
 * Send the status, and again whenever it changes: the same as GET /api/status.
 */
export interface StatusRequest {
  type: "status";
  id: string;
}
export interface Unsubscribe {
  type: "unsubscribe";
  id: string;
}
/**
 * The first message of a connection. Positions of one `store` mean nothing in another: do not resume there.
 */
export interface Hello {
  type: "hello";
  server: string;
  store: string;
  role: "viewer" | "operator";
  sql?: boolean;
}
/**
 * A window as it is now. `ids` name its rows: a row that stays has the same id while its cells change.
 *
 * The rows of a SELECT have the table `sql`, and `complete`: false where there were more.
 */
export interface WindowRows {
  type: "rows";
  id: string;
  table: string;
  generation: number;
  version: number;
  total: number;
  offset: number;
  columns: ColumnInfo[];
  ids: string[];
  rows: unknown[][];
  complete?: boolean;
}
export interface ColumnInfo {
  name: string;
  type: string;
}
/**
 * A summary as it is now; `total` counts all groups, not only these.
 */
export interface SummaryGroups {
  type: "summary";
  id: string;
  table: string;
  generation: number;
  version: number;
  by: string[];
  columns: ColumnInfo[];
  groups: unknown[][];
  total: number;
  history?: SummaryHistory | null;
}
/**
 * How a summary was before. `whole`: in place of all points before; else they are added, by their time.
 */
export interface SummaryHistory {
  seconds: number;
  whole: boolean;
  points: HistoryPoint[];
  swaps: SwapMoment[];
}
/**
 * The groups as they were from `time` on (milliseconds since 1970), until the next point.
 */
export interface HistoryPoint {
  time: number;
  generation: number;
  groups: unknown[][];
}
/**
 * The table moved to this generation.
 */
export interface SwapMoment {
  time: number;
  generation: number;
}
/**
 * A difference as it is now.
 */
export interface DifferenceNow {
  table: string;
  from: ComparedPosition;
  to: ComparedPosition;
  counts: DifferenceCounts;
  total: number;
  key: string[];
  columns: DifferenceColumn[];
  columnsOnlyIn: OnlyIn;
  missing: ("from" | "to") | null;
  sinks: SinkRecords[];
  rows: DifferenceRow[];
  type: "difference";
  id: string;
}
/**
 * A side of a difference. `lag`: the records of its topics that it had not read when their ends were last measured.
 *
 * It is null where they are not known.
 */
export interface ComparedPosition {
  generation: number;
  version: number;
  lag: number | null;
}
/**
 * How many rows; `same` are equal in all columns that both tables have.
 */
export interface DifferenceCounts {
  added: number;
  removed: number;
  changed: number;
  same: number;
}
/**
 * A column that both tables have; `changed` counts the changed rows in which it differs.
 */
export interface DifferenceColumn {
  name: string;
  type: string;
  changed: number;
}
/**
 * The columns that only one of two tables has, or has with another type: they are not compared.
 */
export interface OnlyIn {
  from: string[];
  to: string[];
}
/**
 * The records that a sink would write if the second generation were published in place of the first.
 */
export interface SinkRecords {
  sink: string;
  records: number;
}
/**
 * A row before and after: `from` is null where it was added, `to` where it was removed.
 */
export interface DifferenceRow {
  change: "added" | "removed" | "changed";
  from: {
    [k: string]: unknown;
  } | null;
  to: {
    [k: string]: unknown;
  } | null;
}
/**
 * The answer to `resume` when nothing has changed since.
 */
export interface Current {
  type: "current";
  id: string;
  table: string;
  generation: number;
  version: number;
}
/**
 * All rows of a table, in place of all that came before. `swap`: the table moved to another generation.
 */
export interface Snapshot {
  type: "snapshot";
  id: string;
  table: string;
  generation: number;
  version: number;
  reason: "subscribed" | "swap" | "behind";
  last: boolean;
  columns: ColumnInfo[];
  ids: string[];
  rows: unknown[][];
}
/**
 * What happened after version `since`, up to `version`; the columns are those of the snapshot.
 */
export interface Changes {
  type: "changes";
  id: string;
  table: string;
  generation: number;
  version: number;
  since: number;
  insert: RowSet;
  update: RowSet;
  delete: string[];
}
export interface RowSet {
  ids: string[];
  rows: unknown[][];
}
export interface StatusNow {
  type: "status";
  id: string;
  status: {
    [k: string]: unknown;
  };
}
/**
 * A message that was refused, or (with `id`) a subscription that is over because of it.
 */
export interface Problem {
  type: "error";
  id: string | null;
  error: ErrorInfo;
}
export interface ErrorInfo {
  code: string;
  message: string;
  hint: string;
  position?: TextPosition | null;
}
/**
 * A place in a text, counted from 1.
 */
export interface TextPosition {
  line: number;
  column: number;
}
