// The HTTP calls: reading tables once, and asking for a change. What is live is connection.ts.

import { errorOf, TurnoutError } from "./errors.js";
import type { ColumnInfo, DifferenceNow, DifferenceRow, Term } from "./messages.js";
import type { SummaryOptions } from "./computed.js";
import type { AnyRow } from "./rows.js";

/** Which rows, of which columns, in which order. */
export interface RowsOptions {
  /** All columns when left out. */
  columns?: string | string[];
  /** `"age>=30,accountType=gold"`, or a list of such texts and terms; all must hold. */
  where?: string | (string | Term)[];
  /** `"-age,name"`, or a list. */
  sort?: string | string[];
  offset?: number;
  limit?: number;
}

/** Who the server takes us for. */
export interface WhoAmI {
  name: string;
  /** `sub` of the identity provider. */
  subject: string | null;
  role: "viewer" | "operator";
  /** A browser's session, a token of the issuer, one of the file, or none where the server asks for nothing. */
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
  /** The rows that `where` keeps, not only those of this answer. */
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
  /** All groups, not only those of this answer. */
  total: number;
}

/** Which difference of a table: without generations, between what is shown and the candidate. */
export interface DifferenceOptions extends Omit<RowsOptions, "columns"> {
  table: string;
  /** A generation. */
  from?: number;
  to?: number;
  /** Only rows of this change. */
  change?: DifferenceRow["change"];
}

/** What differs in a table between two generations, as of one moment. */
export interface Difference<Row = AnyRow> extends Omit<DifferenceNow, "type" | "id" | "rows"> {
  rows: ChangedRow<Row>[];
}

/** A row before and after; `from` is null where it was added, `to` where it was removed. */
export interface ChangedRow<Row = AnyRow> {
  change: DifferenceRow["change"];
  from: Row | null;
  to: Row | null;
}

/** The rows of a SELECT, as of one moment. */
export interface SqlRows<Row = AnyRow> extends TableRows<Row> {
  /** The tables that it named. */
  tables: string[];
  /** False where there are more rows than `limit`. */
  complete: boolean;
}

export interface SqlOptions {
  /** 1,000 when left out; at most 10,000. */
  limit?: number;
  signal?: AbortSignal;
}

/** Which rows are meant: one by its id, those of a key, or a bad record by its place. */
export type WhyQuestion =
  | { row: string }
  | { key: string | number | boolean }
  | { topic: string; partition: number; offset: number };

/** A record. `key`, `headers` and `value` are null where they were not read: viewers do not get them. */
export interface WhyRecord {
  source: string;
  topic: string;
  partition: number;
  offset: number;
  timestamp: string;
  /** Null where a row has the record. */
  reason: "older" | "other partition is newer" | "tombstone" | "no match" | null;
  key: string | null;
  headers: { name: string; value: string | null }[] | null;
  value: string | null;
  bytes: number | null;
  clipped: boolean;
  /** Whether Kafka has the record no more; null where it was not asked. */
  gone: boolean | null;
}

/** The records that rows are made of, and those of the same key that were not chosen. */
export interface Why {
  table: string;
  generation: number;
  version: number;
  /** The column of the key; null for `bad_records`. */
  key: string | null;
  /** The control message that made the generation; its requester is `configuration` where the file did. */
  message: {
    requester: string;
    requestId: string | null;
    ts: string;
    partition: number | null;
    offset: number | null;
    raw: string | null;
  } | null;
  /** The rows of the key, also those that are not told. */
  total: number;
  /** `row` is null for a key that has no row. */
  rows: { row: string | null; records: WhyRecord[]; others: WhyRecord[]; complete: boolean }[];
  /** What is missing, and why. */
  notes: string[];
}

/** A name for a table with a filter, a sort, columns and a chart, or for a SELECT, kept by the server. */
export interface SavedView {
  name: string;
  /** Empty beside `sql`. */
  table: string;
  sql?: string | null;
  where?: string | (string | Term)[];
  sort?: string | string[];
  columns?: string[] | null;
  /** What the page draws; the server does not look at it. */
  chart?: Record<string, unknown> | null;
}

export interface Progress {
  generation: number;
  state: string;
  step?: "validating" | "reading" | "views" | "publishing";
  plan: unknown;
  records: number;
  /** How many records there were to read when the build began. */
  recordsToRead?: number;
  lag: number | null;
  /** How much of the whole build is done: reading, views and publishing. */
  percent: number | null;
  /** About how long it will take; null while that is not known. */
  secondsLeft?: number | null;
}

/** The generation that waits to be published; its tables are `NAME@generation`. */
export interface Candidate {
  generation: number;
  plan: string;
  since: string;
  /** When it is discarded if nobody publishes it. */
  expiresAt: string;
}

/** A table that is written to a topic: how far, and what waits. */
/** An alert: what it watches, where its events go, and why they do not arrive where that fails. */
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

/** The status row, with progress and lag. Each source also has its field: `usersTopic`, `accountsTopic`. */
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
  /** The time of the newest Kafka record that is shown. */
  newestRecord?: string | null;
  /** The server's own time. */
  time?: string;
  sources?: string[];
  joins?: string[];
  viewers?: number;
  [field: string]: unknown;
}

/** One line of the history. */
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

/** A control message: what is left out stays as it is. Each source has its field, such as `usersTopic`. */
export interface ControlMessage {
  joinType?: string;
  requestId?: string;
  start?: unknown;
  expectedGeneration?: number;
  dryRun?: boolean;
  /** False: build a candidate, which `publish` or `discard` ends. */
  publish?: boolean;
  /** True: ignore the guards. */
  force?: boolean;
  action?: "rollback" | "cancel" | "publish" | "discard";
  [sourceTopic: `${string}Topic`]: string;
}

/** What a dry run found. */
export interface DryRunReport {
  plan: { topics: Record<string, string>; joins: Record<string, string>; start: unknown };
  changes: boolean;
  records: Record<string, number>;
  /** For each source the rows that would be kept, if any, and the records to read. */
  sources?: Record<string, { kept?: number; read: number }>;
  columns: Record<string, ColumnInfo[]>;
  sampleUnmatched: Record<string, unknown[]>;
  sampleBad: { topic: string; field: string | null; reason: string; value: string | null }[];
}

/** A source for a topic, by its newest records: columns, a likely key, and the lines for the file. */
export interface TopicExample {
  topic: string;
  source: string;
  table: string;
  format: "json" | "avro" | "protobuf";
  partitions: number;
  records: number;
  /** How many of the newest records were looked at. */
  looked: number;
  tombstones: number;
  columns: { name: string; type: string; evidence: string }[];
  leftOut: { name: string; reason: string }[];
  key: { value: string; evidence: string };
  rows: { value: string; evidence: string };
  views: string[];
  yaml: string;
}

/** What became of a message. `rejected` and `failed` are thrown as errors. */
export interface Outcome {
  requestId: string | null;
  /** Null: the message was taken, but has no outcome yet. It shows in `control_raw` under its requestId. */
  outcome: "applied" | "unchanged" | "superseded" | "rolled_back" | "cancelled" | "candidate" | null;
  detail?: string;
  generation?: number;
  /** The number of a message that has no outcome yet. */
  message?: number;
  report?: DryRunReport;
}

export interface ControlOptions {
  /** False: answer as soon as the message is taken. */
  wait?: boolean;
  signal?: AbortSignal;
}

/** A token, or a function that gives the one of the moment. */
export type Token = string | null | undefined | (() => GivenToken | Promise<GivenToken>);
type GivenToken = string | null | undefined;

export interface Access {
  /** The server's address, without a slash at its end. */
  readonly base: string;
  readonly fetch: typeof fetch;
  readonly client: string;
  token: Token;
}

/** The token for one call or one connection; a promise only where the function gives one. Throws a TurnoutError. */
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
  const hint = "the function that was given as token failed: see the cause";
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
