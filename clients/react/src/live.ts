// Live rows: a subscription of the client that follows its options and ends with its component.

import { useEffect, useMemo, useSyncExternalStore } from "react";
import type {
  AnyRow,
  SqlInfo,
  SqlSubscribeOptions,
  SummaryInfo,
  SummaryOptions,
  TurnoutClient,
  TurnoutError,
  WindowInfo,
  WindowOptions,
} from "@turnout/client";
import { wholeOptions } from "@turnout/client/frameworks";
import { useTurnout } from "./provider.js";

/** Live rows. The object is replaced only if something in it has changed. */
export interface LiveRows<Row, Info> {
  /** Frozen rows; an unchanged row is the same object as before. Empty before the first answer. */
  readonly rows: readonly Row[];
  /** The information on the rows; null before the first answer. */
  readonly info: Info | null;
  /** The error that ended the subscription, such as a wrong `where`. The rows stay; other options start it again. */
  readonly error: TurnoutError | null;
  /** Request the rows again with the same options. */
  reload(): void;
}

interface Callbacks<Row, Info> {
  onRows(rows: readonly Row[], info: Info): void;
  onError(error: TurnoutError): void;
}

interface Subscription<Options> {
  move(options: Options): void;
  close(): void;
}

type Open<Row, Info, Options> = (client: TurnoutClient, options: Options, callbacks: Callbacks<Row, Info>) => Subscription<Options>;

/** Return the live rows of a window of a table; null requests nothing. */
export function useWindow<Row = AnyRow>(options: WindowOptions | null): LiveRows<Row, WindowInfo> {
  return useLive<Row, WindowInfo, WindowOptions>(openWindow, options?.table, options);
}

/** Return the live groups of a table's rows; null requests nothing. */
export function useSummary<Group = AnyRow>(options: SummaryOptions | null): LiveRows<Group, SummaryInfo> {
  return useLive<Group, SummaryInfo, SummaryOptions>(openSummary, options?.table, options);
}

/** Return the live rows of a SELECT; null requests nothing. */
export function useSql<Row = AnyRow>(options: SqlSubscribeOptions | null): LiveRows<Row, SqlInfo> {
  return useLive<Row, SqlInfo, SqlSubscribeOptions>(openSql, options?.sql, options);
}

const openWindow = <Row>(client: TurnoutClient, options: WindowOptions, callbacks: Callbacks<Row, WindowInfo>) =>
  client.window<Row>(options, callbacks);
const openSummary = <Group>(client: TurnoutClient, options: SummaryOptions, callbacks: Callbacks<Group, SummaryInfo>) =>
  client.liveSummary<Group>(options, callbacks);
const openSql = <Row>(client: TurnoutClient, options: SqlSubscribeOptions, callbacks: Callbacks<Row, SqlInfo>) =>
  client.liveSql<Row>(options, callbacks);

/** Subscribe with a component. `subject` identifies the table or SELECT: rows of another subject are never shown. */
function useLive<Row, Info, Options extends object>(
  open: Open<Row, Info, Options>,
  subject: string | undefined,
  options: Options | null,
): LiveRows<Row, Info> {
  const client = useTurnout();
  const store = useMemo(() => new LiveStore(client, open), [client, open, subject]);
  // Compare options by value, because most components create a new object in each rendering.
  const wanted = JSON.stringify(options);
  useEffect(() => store.ask(JSON.parse(wanted) as Options | null), [store, wanted]);
  return useSyncExternalStore(store.subscribe, store.current, store.current);
}

/** The subscription of one component, open while React listens to it. */
class LiveStore<Row, Info, Options extends object> {
  private readonly client: TurnoutClient;
  private readonly open: Open<Row, Info, Options>;
  private options: Options | null = null;
  private subscription: Subscription<Options> | null = null;
  private changed: (() => void) | null = null;
  private shown: LiveRows<Row, Info> = { rows: [], info: null, error: null, reload: () => this.move() };

  constructor(client: TurnoutClient, open: Open<Row, Info, Options>) {
    this.client = client;
    this.open = open;
  }

  readonly current = (): LiveRows<Row, Info> => this.shown;

  readonly subscribe = (changed: () => void): (() => void) => {
    this.changed = changed;
    this.start();
    return () => {
      this.changed = null;
      this.subscription?.close();
      this.subscription = null;
    };
  };

  ask(options: Options | null): void {
    const before = this.options;
    this.options = options;
    if (this.subscription === null) this.start();
    else if (before !== null && options !== null && JSON.stringify(before) !== JSON.stringify(options)) {
      this.move(wholeOptions(before, options));
    }
  }

  private start(): void {
    // A closed client is about to be replaced; its components are then rendered with the new client.
    if (this.changed === null || this.options === null || this.client.connection.state === "closed") return;
    this.subscription = this.open(this.client, this.options, {
      onRows: (rows, info) => this.show({ rows: this.kept(rows), info, error: null }),
      onError: (error) => this.show({ error }),
    });
  }

  private move(options = this.options): void {
    if (options !== null && this.client.connection.state !== "closed") this.subscription?.move(options);
  }

  /** Return the previous list if all rows are the same, for example if only the total has changed. */
  private kept(rows: readonly Row[]): readonly Row[] {
    const before = this.shown.rows;
    return rows.length === before.length && rows.every((row, index) => row === before[index]) ? before : rows;
  }

  private show(next: Partial<LiveRows<Row, Info>>): void {
    this.shown = { ...this.shown, ...next };
    this.changed?.();
  }
}
