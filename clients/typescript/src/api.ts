// The HTTP calls: reading tables once, and requesting changes. connection.ts has the live subscriptions.

import { errorOf, TurnoutError } from "./errors.js";
import type { ColumnInfo, DifferenceNow, DifferenceRow, Term } from "./messages.js";
import type { SummaryOptions } from "./computed.js";
import type { AnyRow } from "./rows.js";

/** The selection of rows and columns, and the order. */
export interface RowsOptions {
  /** All columns if omitted. */
  columns?: string | string[];
  /** Conditions such as `"age>=30,accountType=gold"`, or a list of texts and terms; rows must match all of them. */
  where?: string | (string | Term)[];
  /** Columns to sort by, such as `"-age,name"`, or a list; `-` means descending. */
  sort?: string | string[];
  offset?: number;
  limit?: number;
}

/** The identity of this client on the server. */
export interface WhoAmI {
  name: string;
  /** The claim `sub` of the identity provider; null without one. */
  subject: string | null;
  role: "viewer" | "operator";
  /** How the client was authenticated: browser session, token of the issuer, token of the file, or not at all. */
  by: "session" | "issuer" | "token" | "none";
}

export interface TableInfo {
  name: string;
  columns: ColumnInfo[];
  rows: number;
  generation: number;
  version: number;
}

export interface TableRows<Row = AnyRow> {
  table: string;
  generation: number;
  version: number;
  /** The number of all rows that match `where`, not only of those in this answer. */
  total: number;
  columns: ColumnInfo[];
  rows: Row[];
}

/** A summary, as of one moment. */
export interface Summary<Group = AnyRow> {
  table: string;
  generation: number;
  version: number;
  by: string[];
  columns: ColumnInfo[];
  groups: Group[];
  /** The number of all groups, not only of those in this answer. */
  total: number;
}

/** The options of a difference: by default of the published generation and the candidate. */
export interface DifferenceOptions extends Omit<RowsOptions, "columns"> {
  table: string;
  /** The first generation; by default the published one. */
  from?: number;
  /** The second generation; by default the candidate. */
  to?: number;
  /** Return only rows with this change. */
  change?: DifferenceRow["change"];
}

/** The differences of a table between two generations, as of one moment. */
export interface Difference<Row = AnyRow> extends Omit<DifferenceNow, "type" | "id" | "rows"> {
  rows: ChangedRow<Row>[];
}

/** A row before and after; `from` is null if it was added, `to` is null if it was removed. */
export interface ChangedRow<Row = AnyRow> {
  change: DifferenceRow["change"];
  from: Row | null;
  to: Row | null;
}

/** The rows of a SELECT, as of one moment. */
export interface SqlRows<Row = AnyRow> extends TableRows<Row> {
  /** The tables that the SELECT reads. */
  tables: string[];
  /** False if there are more rows than `limit`. */
  complete: boolean;
}

export interface SqlOptions {
  /** The maximum number of rows: 1,000 by default, at most 10,000. */
  limit?: number;
  signal?: AbortSignal;
}

/** The rows to explain: one row by its id, all rows of a key, or a bad record by its position. */
export type WhyQuestion =
  | { row: string }
  | { key: string | number | boolean }
  | { topic: string; partition: number; offset: number };

/** A Kafka record. `key`, `headers` and `value` are null if they were not read: viewers do not get them. */
export interface WhyRecord {
  source: string;
  topic: string;
  partition: number;
  offset: number;
  timestamp: string;
  /** Why the record is in no row; null if a row contains it. */
  reason: "older" | "other partition is newer" | "tombstone" | "no match" | null;
  key: string | null;
  headers: { name: string; value: string | null }[] | null;
  value: string | null;
  bytes: number | null;
  clipped: boolean;
  /** Whether Kafka no longer has the record; null if Kafka was not asked. */
  gone: boolean | null;
}

/** The records that produced rows, and the unused records of the same key. */
export interface Why {
  table: string;
  generation: number;
  version: number;
  /** The column of the key; null for `bad_records`. */
  key: string | null;
  /** The control message that built the generation; `requester` is `configuration` if the file did. */
  message: {
    requester: string;
    requestId: string | null;
    ts: string;
    partition: number | null;
    offset: number | null;
    raw: string | null;
  } | null;
  /** The number of all rows of the key, also of those not listed. */
  total: number;
  /** The listed rows; `row` is null for a key without a row. */
  rows: { row: string | null; records: WhyRecord[]; others: WhyRecord[]; complete: boolean }[];
  /** Notes on missing information and its reasons. */
  notes: string[];
}

/** A named view saved on the server: a table with filter, sort, columns and chart, or a SELECT. */
export interface SavedView {
  name: string;
  /** The table; empty if `sql` is set. */
  table: string;
  sql?: string | null;
  where?: string | (string | Term)[];
  sort?: string | string[];
  columns?: string[] | null;
  /** The chart of the page, which the server does not interpret. */
  chart?: Record<string, unknown> | null;
}

export interface Progress {
  generation: number;
  state: string;
  step?: "validating" | "reading" | "views" | "publishing";
  plan: unknown;
  records: number;
  /** The number of records to read when the build began. */
  recordsToRead?: number;
  lag: number | null;
  /** The progress of the whole build: reading, views and publishing. */
  percent: number | null;
  /** The estimated remaining seconds; null if unknown. */
  secondsLeft?: number | null;
}

/** The generation that waits for review; its tables are `NAME@generation`. */
export interface Candidate {
  generation: number;
  plan: string;
  since: string;
  /** The time when the candidate is discarded automatically. */
  expiresAt: string;
}

/** The state of an alert: its condition, its target, its counts and its last error. */
export interface AlertState {
  name: string;
  table: string;
  where: string;
  to: string;
  state: "watching" | "failing";
  error: string | null;
  rows: number | null;
  waiting: number | null;
  events: number;
  delivered: number;
  dropped: number;
  lastDelivered: string | null;
}

/** The state of a sink, which writes a table to a topic. */
export interface SinkStatus {
  name: string;
  table: string;
  topic: string;
  format: string;
  delivery: string;
  state: "starting" | "writing" | "failing";
  error: string | null;
  generation: number;
  version: number;
  records: number;
  lastWritten: string | null;
  waitingVersions: number | null;
  waitingRows: number | null;
}

/** The status of the server, with progress and lag. Each source has a field for its topic, such as `usersTopic`. */
export interface Status {
  generation: number;
  /** `live`, `validating`, `building`, `catching_up` and others. */
  state: string;
  joinType: string;
  lastApplied: string | null;
  lag: number | null;
  requestId: string | null;
  start?: unknown;
  records?: number;
  recordsPerSecond?: number;
  progress?: Progress | null;
  candidate?: Candidate | null;
  lingering?: number[];
  sinks?: SinkStatus[];
  alerts?: AlertState[];
  ready?: boolean;
  reason?: string;
  /** The time of the newest Kafka record in the tables. */
  newestRecord?: string | null;
  /** The time of the server's clock. */
  time?: string;
  sources?: string[];
  joins?: string[];
  viewers?: number;
  [field: string]: unknown;
}

/** An entry of the history of swaps. */
export interface Swap {
  ts: string;
  generation: number;
  from: string | null;
  to: string | null;
  requester: string | null;
  requestId: string | null;
  controlOffset: number | null;
  sourceOffsets: string | null;
  buildSeconds: number | null;
  catchUpSeconds: number | null;
  publishSeconds: number | null;
  outcome: string;
  detail: string | null;
}

/** A control message; omitted fields do not change. Each source has a field for its topic, such as `usersTopic`. */
export interface ControlMessage {
  joinType?: string;
  requestId?: string;
  start?: unknown;
  expectedGeneration?: number;
  dryRun?: boolean;
  /** False: build a candidate, which waits for `publish` or `discard`. */
  publish?: boolean;
  /** True: ignore the guards. */
  force?: boolean;
  action?: "rollback" | "cancel" | "publish" | "discard";
  [sourceTopic: `${string}Topic`]: string;
}

/** The report of a dry run. */
export interface DryRunReport {
  plan: { topics: Record<string, string>; joins: Record<string, string>; start: unknown };
  changes: boolean;
  records: Record<string, number>;
  /** For each source: the rows that would be kept, if any, and the records to read. */
  sources?: Record<string, { kept?: number; read: number }>;
  columns: Record<string, ColumnInfo[]>;
  sampleUnmatched: Record<string, unknown[]>;
  sampleBad: { topic: string; field: string | null; reason: string; value: string | null }[];
}

/** A proposed source for a topic, derived from its newest records: columns, a likely key, and YAML for the file. */
export interface TopicExample {
  topic: string;
  source: string;
  table: string;
  format: "json" | "avro" | "protobuf";
  partitions: number;
  records: number;
  /** The number of examined records. */
  looked: number;
  tombstones: number;
  columns: { name: string; type: string; evidence: string }[];
  leftOut: { name: string; reason: string }[];
  key: { value: string; evidence: string };
  rows: { value: string; evidence: string };
  views: string[];
  yaml: string;
}

/** The outcome of a message. `rejected` and `failed` are thrown as errors. */
export interface Outcome {
  requestId: string | null;
  /** Null: the message was accepted, but has no outcome yet. The table `control_raw` will have it, by its requestId. */
  outcome: "applied" | "unchanged" | "superseded" | "rolled_back" | "cancelled" | "candidate" | null;
  detail?: string;
  generation?: number;
  /** The number of the message, if it has no outcome yet. */
  message?: number;
  report?: DryRunReport;
}

export interface ControlOptions {
  /** False: answer as soon as the message is accepted. */
  wait?: boolean;
  signal?: AbortSignal;
}

/** A token, or a function that returns the current one. */
export type Token = string | null | undefined | (() => GivenToken | Promise<GivenToken>);
type GivenToken = string | null | undefined;

export interface Access {
  /** The server's address, without a trailing slash. */
  readonly base: string;
  readonly fetch: typeof fetch;
  readonly client: string;
  token: Token;
}

/** Return the current token; a promise if the token function returns one. Throw TurnoutError if that function fails. */
export function tokenNow({ token }: Access): string | null | Promise<string | null> {
  if (typeof token !== "function") return token || null;
  try {
    const given = token();
    return given instanceof Promise ? given.then((text) => text || null, noToken) : given || null;
  } catch (error) {
    return noToken(error);
  }
}

function noToken(cause: unknown): never {
  const hint = "the function that was passed as token failed: see the cause";
  throw new TurnoutError({ code: "no_token", message: `there is no token: ${String(cause)}`, hint }, null, { cause });
}

export class Api {
  private readonly access: Access;

  constructor(access: Access) {
    this.access = access;
  }

  async tables(): Promise<TableInfo[]> {
    return (await this.call<{ tables: TableInfo[] }>("/api/tables")).tables;
  }

  rows<Row>(table: string, options: RowsOptions): Promise<TableRows<Row>> {
    return this.call(`/api/tables/${encodeURIComponent(table)}/rows${query(options)}`);
  }

  summary<Group>({ table, ...options }: SummaryOptions): Promise<Summary<Group>> {
    return this.call(`/api/tables/${encodeURIComponent(table)}/summary${query(options)}`);
  }

  why(table: string, question: WhyQuestion): Promise<Why> {
    const asked = Object.entries(question).map(([name, value]) => [name, String(value)]);
    return this.call(`/api/tables/${encodeURIComponent(table)}/why?${new URLSearchParams(asked)}`);
  }

  difference<Row>({ table, ...options }: DifferenceOptions): Promise<Difference<Row>> {
    return this.call(`/api/tables/${encodeURIComponent(table)}/difference${query(options)}`);
  }

  sql<Row>(sql: string, { limit, signal }: SqlOptions): Promise<SqlRows<Row>> {
    return this.post("/api/sql", limit === undefined ? { sql } : { sql, limit }, signal ? { signal } : {});
  }

  async saved(): Promise<SavedView[]> {
    return (await this.call<{ saved: SavedView[] }>("/api/saved")).saved;
  }

  save({ name, ...view }: SavedView): Promise<SavedView> {
    return this.call(`/api/saved/${encodeURIComponent(name)}`, this.sent("PUT", view));
  }

  async unsave(name: string): Promise<void> {
    await this.call(`/api/saved/${encodeURIComponent(name)}`, this.sent("DELETE"));
  }

  me(): Promise<WhoAmI> {
    return this.call("/api/me");
  }

  status(): Promise<Status> {
    return this.call("/api/status");
  }

  async swaps(): Promise<Swap[]> {
    return (await this.call<TableRows<Swap>>("/api/swaps")).rows;
  }

  async topics(): Promise<string[]> {
    return (await this.call<{ topics: string[] }>("/api/topics")).topics;
  }

  example(topic: string, records?: number): Promise<TopicExample> {
    return this.call(`/api/topics/${encodeURIComponent(topic)}/example${records === undefined ? "" : `?records=${records}`}`);
  }

  control(message: ControlMessage, options: ControlOptions): Promise<Outcome> {
    return this.post("/api/control", message, options);
  }

  act(
    action: "rollback" | "cancel" | "publish" | "discard",
    message: object,
    options: ControlOptions,
  ): Promise<Outcome> {
    return this.post(`/api/${action}`, message, options);
  }

  testAlert(name: string): Promise<{ alert: string; outcome: "delivered" }> {
    return this.post(`/api/alerts/${encodeURIComponent(name)}/test`, {}, {});
  }

  private post<Answer>(path: string, body: object, { wait, signal }: ControlOptions): Promise<Answer> {
    const init = { ...this.sent("POST", body), signal: signal ?? null };
    return this.call(wait === false ? `${path}?wait=false` : path, init);
  }

  private sent(method: string, body?: object): RequestInit {
    const headers = { "X-Turnout-Client": this.access.client };
    if (body === undefined) return { method, headers };
    return { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } };
  }

  private async call<Answer>(path: string, init: RequestInit = {}): Promise<Answer> {
    const headers = new Headers(init.headers);
    const token = await tokenNow(this.access);
    if (token !== null) headers.set("Authorization", `Bearer ${token}`);
    const { response, text } = await this.fetched(path, { ...init, headers });
    const body = parsed(text);
    if (response.ok && body !== undefined) return body as Answer;
    throw errorOf(body, response.status) ?? notTurnout(this.access.base, response.status);
  }

  private async fetched(path: string, init: RequestInit): Promise<{ response: Response; text: string }> {
    try {
      const response = await this.access.fetch(this.access.base + path, init);
      return { response, text: await response.text() };
    } catch (error) {
      if ((error as Error | null)?.name === "AbortError") throw error;
      throw unreachable(this.access.base, error);
    }
  }
}

function query(options: RowsOptions & Pick<SummaryOptions, "by" | "values"> & Pick<DifferenceOptions, "from" | "to" | "change">): string {
  const parameters = new URLSearchParams();
  for (const name of ["from", "to", "change", "columns", "by", "values", "sort", "offset", "limit"] as const) {
    const value = options[name];
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item !== undefined) parameters.append(name, String(item));
    }
  }
  const where = options.where ?? [];
  for (const term of Array.isArray(where) ? where : [where]) {
    parameters.append("where", typeof term === "string" ? term : JSON.stringify([term]));
  }
  const text = parameters.toString();
  return text && `?${text}`;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function unreachable(base: string, cause: unknown): TurnoutError {
  const info = {
    code: "server_unreachable",
    message: `no answer from ${base}`,
    hint: "check that the server runs, and the address; for a page of another origin, server.allowed_origins",
  };
  return new TurnoutError(info, null, { cause });
}

function notTurnout(base: string, status: number): TurnoutError {
  const hint = "check the address: a proxy or another server may have answered";
  return new TurnoutError({ code: "bad_answer", message: `${base} answered ${status}, but not as Turnout does`, hint }, status);
}
