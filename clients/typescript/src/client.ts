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
  /** The server's address, such as `http://127.0.0.1:10000`; in a browser, the page's own server when left out. */
  url?: string | URL;
  /** A function is asked before each call and each connection, and may give a promise. */
  token?: Token;
  /** Who asks for a change, in the history: a word of lower-case letters, digits, `-` and `_`. */
  client?: string;
  /** Where the global ones are not wanted. */
  fetch?: typeof fetch;
  WebSocket?: SocketMaker;
}

/** A client of one server. It connects with its first subscription; `close` ends all of them. */
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

  /** How things stand with the server now. */
  get connection(): ConnectionState {
    return this.live.state;
  }

  /** Called at once, and whenever it changes. Gives the function that ends this. */
  onConnection(listener: (state: ConnectionState) => void): () => void {
    return this.live.listen(listener);
  }

  /** Connect anew now: after a refusal, with another token, or instead of waiting for the next try. */
  reconnect(options: { token?: Token } = {}): void {
    if (options.token !== undefined) this.access.token = options.token;
    this.live.reconnect();
  }

  close(): void {
    this.live.close();
  }

  /** Some rows of a table, now and whenever they change. */
  window<Row = AnyRow>(options: WindowOptions, callbacks: WindowCallbacks<Row> = {}): WindowSubscription<Row> {
    return new WindowSubscription<Row>(this.live, options, callbacks);
  }

  /** All rows of a table, kept up to date by every change. */
  changes<Row = AnyRow>(table: string | ChangesOptions, callbacks: MirrorCallbacks<Row> = {}): TableMirror<Row> {
    return new TableMirror<Row>(this.live, typeof table === "string" ? { table } : table, callbacks);
  }

  /** A summary of a table, now and whenever it changes. */
  liveSummary<Group = AnyRow>(
    options: SummaryOptions,
    callbacks: ComputedCallbacks<Group, SummaryInfo> = {},
  ): SummarySubscription<Group> {
    return new SummarySubscription<Group>(this.live, options, callbacks);
  }

  /** What differs in a table between two generations, now and when it changed, at most once a second. */
  liveDifference<Row = AnyRow>(
    options: DifferenceOptions,
    callbacks: ComputedCallbacks<ChangedRow<Row>, DifferenceInfo> = {},
  ): DifferenceSubscription<Row> {
    return new DifferenceSubscription<Row>(this.live, options, callbacks);
  }

  /** The rows of a SELECT, now and, with `live`, whenever a table that it names changed. */
  liveSql<Row = AnyRow>(
    options: SqlSubscribeOptions,
    callbacks: ComputedCallbacks<Row, SqlInfo> = {},
  ): SqlSubscription<Row> {
    return new SqlSubscription<Row>(this.live, { live: true, ...options }, callbacks);
  }

  /** The status, now and about once a second. Gives the function that ends this. */
  onStatus(listener: (status: Status) => void): () => void {
    return this.statusFeed.listen(listener);
  }

  // -- once, over HTTP

  tables(): Promise<TableInfo[]> {
    return this.api.tables();
  }

  rows<Row = AnyRow>(table: string, options: RowsOptions = {}): Promise<TableRows<Row>> {
    return this.api.rows(table, options);
  }

  /** Groups of a table's rows: `summary({ table: "final_ui", by: "accountType", values: "count,sum(balance)" })`. */
  summary<Group = AnyRow>(options: Omit<SummaryOptions, "history">): Promise<Summary<Group>> {
    return this.api.summary(options);
  }

  /** Why rows are there: `why("final_ui", { key: "u7" })`. */
  why(table: string, question: WhyQuestion): Promise<Why> {
    return this.api.why(table, question);
  }

  /** What differs in a table between two generations; without these, what publishing the candidate would change. */
  difference<Row = AnyRow>(options: DifferenceOptions): Promise<Difference<Row>> {
    return this.api.difference(options);
  }

  /** The rows of one SELECT over the tables. */
  sql<Row = AnyRow>(sql: string, options: SqlOptions = {}): Promise<SqlRows<Row>> {
    return this.api.sql(sql, options);
  }

  /** The views that operators keep on the server. */
  saved(): Promise<SavedView[]> {
    return this.api.saved();
  }

  /** Keep a view under its name, in place of the one before; for operators. */
  save(view: SavedView): Promise<SavedView> {
    return this.api.save(view);
  }

  /** Remove a view; for operators. */
  unsave(name: string): Promise<void> {
    return this.api.unsave(name);
  }

  /** Who the server takes us for: name, role, and by what. */
  me(): Promise<WhoAmI> {
    return this.api.me();
  }

  status(): Promise<Status> {
    return this.api.status();
  }

  /** The history, oldest first. */
  swaps(): Promise<Swap[]> {
    return this.api.swaps();
  }

  /** The topics to choose from. */
  topics(): Promise<string[]> {
    return this.api.topics();
  }

  /** A source for a topic that is none yet, by its newest records (500 unless given); for operators. */
  example(topic: string, records?: number): Promise<TopicExample> {
    return this.api.example(topic, records);
  }

  /** Ask for other topics or another join; answers with the outcome, and throws a TurnoutError when it is refused or fails. */
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

  /** Send a sample event to the target of an alert. Throws `alert_not_delivered` where it does not arrive. */
  testAlert(name: string): Promise<{ alert: string; outcome: "delivered" }> {
    return this.api.testAlert(name);
  }

  /** End the build under way; its message has the outcome `cancelled`. Throws `nothing_to_cancel` when there is none. */
  cancel(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.api.act("cancel", message, options);
  }

  /** Publish the candidate; `expectedGeneration` is the candidate's. Throws `no_candidate` when there is none. */
  publish(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration" | "force"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.api.act("publish", message, options);
  }

  /** Remove the candidate; `expectedGeneration` is the candidate's. Throws `no_candidate` when there is none. */
  discard(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.api.act("discard", message, options);
  }
}

/** A client of a server; nothing is sent before it is asked something. */
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

/** One status subscription for all who listen. */
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
    // A refusal shows in the state of the connection.
  }

  ended(): void {
    this.listeners.clear();
  }
}
