import {
  type Access,
  Api,
  type ChangedRow,
  type ControlMessage,
  type ControlOptions,
  type Difference,
  type DifferenceOptions,
  type Outcome,
  type RowsOptions,
  type SavedView,
  type SqlOptions,
  type SqlRows,
  type Status,
  type Summary,
  type Swap,
  type TableInfo,
  type TableRows,
  type Token,
  type TopicExample,
  type WhoAmI,
  type Why,
  type WhyQuestion,
} from "./api.js";
import {
  type ComputedCallbacks,
  type DifferenceInfo,
  DifferenceSubscription,
  type SqlInfo,
  type SqlSubscribeOptions,
  SqlSubscription,
  type SummaryInfo,
  type SummaryOptions,
  SummarySubscription,
} from "./computed.js";
import { type Answer, Connection, type ConnectionState, safely, type SocketMaker, type Subscriber } from "./connection.js";
import type { TurnoutError } from "./errors.js";
import type { ClientMessage } from "./messages.js";
import { type ChangesOptions, type MirrorCallbacks, TableMirror } from "./mirror.js";
import type { AnyRow } from "./rows.js";
import { type WindowCallbacks, type WindowOptions, WindowSubscription } from "./window.js";

export interface ConnectOptions {
  /** The server's address, such as `http://127.0.0.1:10000`; in a browser by default the server of the page. */
  url?: string | URL;
  /** The token; a function is called before each call and each connection, and may return a promise. */
  token?: Token;
  /** The name of this client in the history of swaps: lower-case letters, digits, `-` and `_`. */
  client?: string;
  /** Replacement for the global `fetch`. */
  fetch?: typeof fetch;
  /** Replacement for the global `WebSocket`. */
  WebSocket?: SocketMaker;
}

/** A client of one server. The first subscription opens the connection; `close` ends all subscriptions. */
export class TurnoutClient {
  private readonly access: Access;
  private readonly api: Api;
  private readonly live: Connection;
  private readonly statusFeed: StatusFeed;

  constructor(options: ConnectOptions = {}) {
    const fetcher = options.fetch ?? globalThis.fetch;
    this.access = {
      base: baseOf(options.url),
      fetch: (input, init) => fetcher(input, init),
      client: options.client ?? "typescript",
      token: options.token,
    };
    this.api = new Api(this.access);
    this.live = new Connection(this.access, this.api, options.WebSocket ?? globalThis.WebSocket ?? null);
    this.statusFeed = new StatusFeed(this.live);
  }

  /** The current state of the connection. */
  get connection(): ConnectionState {
    return this.live.state;
  }

  /** Call the listener now and whenever the connection's state changes. Return a function that removes it. */
  onConnection(listener: (state: ConnectionState) => void): () => void {
    return this.live.listen(listener);
  }

  /** Reconnect now: after a refusal, with another token, or instead of waiting for the next attempt. */
  reconnect(options: { token?: Token } = {}): void {
    if (options.token !== undefined) this.access.token = options.token;
    this.live.reconnect();
  }

  close(): void {
    this.live.close();
  }

  /** Subscribe to a window of a table: its rows now and whenever they change. */
  window<Row = AnyRow>(options: WindowOptions, callbacks: WindowCallbacks<Row> = {}): WindowSubscription<Row> {
    return new WindowSubscription<Row>(this.live, options, callbacks);
  }

  /** Subscribe to all rows of a table, which are updated by every change. */
  changes<Row = AnyRow>(table: string | ChangesOptions, callbacks: MirrorCallbacks<Row> = {}): TableMirror<Row> {
    return new TableMirror<Row>(this.live, typeof table === "string" ? { table } : table, callbacks);
  }

  /** Subscribe to a summary of a table: now and whenever it changes. */
  liveSummary<Group = AnyRow>(
    options: SummaryOptions,
    callbacks: ComputedCallbacks<Group, SummaryInfo> = {},
  ): SummarySubscription<Group> {
    return new SummarySubscription<Group>(this.live, options, callbacks);
  }

  /** Subscribe to the differences of two generations: now and after changes, at most once a second. */
  liveDifference<Row = AnyRow>(
    options: DifferenceOptions,
    callbacks: ComputedCallbacks<ChangedRow<Row>, DifferenceInfo> = {},
  ): DifferenceSubscription<Row> {
    return new DifferenceSubscription<Row>(this.live, options, callbacks);
  }

  /** Subscribe to the rows of a SELECT: now and, unless `live` is false, whenever one of its tables changes. */
  liveSql<Row = AnyRow>(
    options: SqlSubscribeOptions,
    callbacks: ComputedCallbacks<Row, SqlInfo> = {},
  ): SqlSubscription<Row> {
    return new SqlSubscription<Row>(this.live, { live: true, ...options }, callbacks);
  }

  /** Call the listener with the status, now and about once a second. Return a function that removes it. */
  onStatus(listener: (status: Status) => void): () => void {
    return this.statusFeed.listen(listener);
  }

  // -- single calls over HTTP

  tables(): Promise<TableInfo[]> {
    return this.api.tables();
  }

  rows<Row = AnyRow>(table: string, options: RowsOptions = {}): Promise<TableRows<Row>> {
    return this.api.rows(table, options);
  }

  /** Return groups of rows: `summary({ table: "final_ui", by: "accountType", values: "count,sum(balance)" })`. */
  summary<Group = AnyRow>(options: Omit<SummaryOptions, "history">): Promise<Summary<Group>> {
    return this.api.summary(options);
  }

  /** Return the records that produced rows: `why("final_ui", { key: "u7" })`. */
  why(table: string, question: WhyQuestion): Promise<Why> {
    return this.api.why(table, question);
  }

  /** Return the differences of two generations; by default, what publishing the candidate would change. */
  difference<Row = AnyRow>(options: DifferenceOptions): Promise<Difference<Row>> {
    return this.api.difference(options);
  }

  /** Return the rows of one SELECT over the tables. */
  sql<Row = AnyRow>(sql: string, options: SqlOptions = {}): Promise<SqlRows<Row>> {
    return this.api.sql(sql, options);
  }

  /** Return the views that operators have saved on the server. */
  saved(): Promise<SavedView[]> {
    return this.api.saved();
  }

  /** Save a view on the server, replacing one with the same name; for operators. */
  save(view: SavedView): Promise<SavedView> {
    return this.api.save(view);
  }

  /** Remove a saved view; for operators. */
  unsave(name: string): Promise<void> {
    return this.api.unsave(name);
  }

  /** Return the identity of this client on the server: name, role, and how it was authenticated. */
  me(): Promise<WhoAmI> {
    return this.api.me();
  }

  status(): Promise<Status> {
    return this.api.status();
  }

  /** Return the history of swaps, oldest first. */
  swaps(): Promise<Swap[]> {
    return this.api.swaps();
  }

  /** Return the names of the topics. */
  topics(): Promise<string[]> {
    return this.api.topics();
  }

  /** Propose a source for a topic from its newest records (500 by default); for operators. */
  example(topic: string, records?: number): Promise<TopicExample> {
    return this.api.example(topic, records);
  }

  /** Request other topics or another join, and return the outcome. Throw TurnoutError if it is refused or fails. */
  control(message: ControlMessage, options: ControlOptions = {}): Promise<Outcome> {
    return this.api.control(message, options);
  }

  /** Go back to the previous plan. */
  rollback(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration" | "dryRun"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.api.act("rollback", message, options);
  }

  /** Send a sample event to the target of an alert. Throw `alert_not_delivered` if it does not arrive. */
  testAlert(name: string): Promise<{ alert: string; outcome: "delivered" }> {
    return this.api.testAlert(name);
  }

  /** End the current build; its message gets the outcome `cancelled`. Throw `nothing_to_cancel` if there is none. */
  cancel(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.api.act("cancel", message, options);
  }

  /** Publish the candidate; `expectedGeneration` is its generation. Throw `no_candidate` if there is none. */
  publish(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration" | "force"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.api.act("publish", message, options);
  }

  /** Remove the candidate; `expectedGeneration` is its generation. Throw `no_candidate` if there is none. */
  discard(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.api.act("discard", message, options);
  }
}

/** Return a client of a server, without sending anything yet. */
export function connect(options: ConnectOptions = {}): TurnoutClient {
  return new TurnoutClient(options);
}

function baseOf(url: string | URL | undefined): string {
  const given = url ?? globalThis.location?.origin;
  if (given === undefined) throw new TypeError("connect: give the server's address, such as http://127.0.0.1:10000");
  const parsed = new URL(given, globalThis.location?.href);
  if (!/^https?:$/.test(parsed.protocol)) throw new TypeError(`connect: ${given} is not an http or https address`);
  return (parsed.origin + parsed.pathname).replace(/\/+$/, "");
}

/** The status subscription shared by all listeners. */
class StatusFeed implements Subscriber {
  private readonly connection: Connection;
  private readonly listeners = new Set<(status: Status) => void>();
  private newest: Status | null = null;

  constructor(connection: Connection) {
    this.connection = connection;
  }

  listen(listener: (status: Status) => void): () => void {
    this.listeners.add(listener);
    if (this.listeners.size === 1) this.connection.start(this);
    else if (this.newest !== null) listener(this.newest);
    return () => this.leave(listener);
  }

  private leave(listener: (status: Status) => void): void {
    if (!this.listeners.delete(listener) || this.listeners.size > 0) return;
    this.newest = null;
    this.connection.stop(this);
  }

  request(id: string): ClientMessage {
    return { type: "status", id };
  }

  receive(answer: Answer): void {
    if (answer.type !== "status") return;
    const status = answer.status as Status;
    this.newest = status;
    for (const listener of [...this.listeners]) safely(() => listener(status));
  }

  failed(_: TurnoutError): void {
    // The state of the connection shows the refusal.
  }

  ended(): void {
    this.listeners.clear();
  }
}
