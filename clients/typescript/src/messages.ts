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

/** The close codes of the server. */
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
 * Send these rows now, and again whenever they change. Another request with the same id changes the window.
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
 * One condition of `where`: a column, an operator, and a value if the operator needs one.
 */
export interface Term {
  column: string;
  op: string;
  value?: unknown;
}
/**
 * The generation and version of the data that a client has.
 */
export interface Position {
  generation: number;
  version: number;
}
/**
 * Send all rows, then every change in order. `resume`: send only later changes, if the server still has them.
 */
export interface ChangesRequest {
  type: "changes";
  id: string;
  table: string;
  columns?: string | string[] | null;
  resume?: Position | null;
}
/**
 * Send groups of a table's rows now, and again whenever they change. `history`: seconds of past values to send.
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
 * Send the differences between two generations now, and after changes, at most once a second.
 *
 * By default `from` is the published generation and `to` is the candidate.
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
 * Send the rows of a SELECT. `live`: send them again whenever one of its tables changes.
 */
export interface SqlRequest {
  type: "sql";
  id: string;
  sql: string;
  limit?: number;
  live?: boolean;
}
/**
 * Send the status of `GET /api/status` now, and again whenever it changes.
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
 * The first message of a connection. Positions are valid only in the same `store`: resume in no other.
 */
export interface Hello {
  type: "hello";
  server: string;
  store: string;
  role: "viewer" | "operator";
  sql?: boolean;
}
/**
 * The current rows of a window. `ids` identify them: a row keeps its id while its cells change.
 *
 * For a SELECT the table is `sql`, and `complete` is false if the limit cut the result.
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
 * The current groups of a summary; `total` counts all groups, also beyond the limit.
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
 * The past values of a summary. `whole`: replace all earlier points; otherwise add these by their time.
 */
export interface SummaryHistory {
  seconds: number;
  whole: boolean;
  points: HistoryPoint[];
  swaps: SwapMoment[];
}
/**
 * The groups of a summary from `time` (milliseconds since 1970) until the next point.
 */
export interface HistoryPoint {
  time: number;
  generation: number;
  groups: unknown[][];
}
/**
 * The time of a swap in milliseconds since 1970, and its generation.
 */
export interface SwapMoment {
  time: number;
  generation: number;
}
/**
 * The current state of a difference.
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
 * One side of a difference.
 *
 * `lag` counts the records of its topics that were not yet read at the last measurement; null if unknown.
 */
export interface ComparedPosition {
  generation: number;
  version: number;
  lag: number | null;
}
/**
 * The number of rows of each kind; `same` rows are equal in all columns that both tables have.
 */
export interface DifferenceCounts {
  added: number;
  removed: number;
  changed: number;
  same: number;
}
/**
 * A column of both tables; `changed` counts the changed rows in which it differs.
 */
export interface DifferenceColumn {
  name: string;
  type: string;
  changed: number;
}
/**
 * The columns that are not compared, because the other table has none with this name and type.
 */
export interface OnlyIn {
  from: string[];
  to: string[];
}
/**
 * The number of records that a sink would write if the generation `to` were published.
 */
export interface SinkRecords {
  sink: string;
  records: number;
}
/**
 * A row before and after: `from` is null if it was added, `to` is null if it was removed.
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
 * All rows of a table, which replace all earlier rows. `swap`: the table has changed its generation.
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
 * The changes after version `since` up to `version`; the columns are those of the snapshot.
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
 * An error: a message was refused, or, if `id` is set, a subscription has ended.
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
 * A line and column of a text, counted from 1.
 */
export interface TextPosition {
  line: number;
  column: number;
}
