// The service for components: live data as signals and observables. During rendering on a server nothing is subscribed.

import { isPlatformBrowser } from "@angular/common";
import {
  assertInInjectionContext,
  DestroyRef,
  effect,
  inject,
  Injectable,
  Injector,
  PLATFORM_ID,
  type Signal,
  signal,
  untracked,
  type WritableSignal,
} from "@angular/core";
import { takeUntilDestroyed, toObservable } from "@angular/core/rxjs-interop";
import {
  type AnyRow,
  type ChangesOptions,
  type MirrorChange,
  type SqlInfo,
  type SqlSubscribeOptions,
  type Status,
  type SummaryInfo,
  type SummaryOptions,
  type TableInfo,
  type TableMirror,
  type Token,
  TurnoutClient,
  type TurnoutError,
  type WindowInfo,
  type WindowOptions,
} from "@turnout/client";
import { nextConnection, type TurnoutConnection } from "@turnout/client/frameworks";
import { BehaviorSubject, EMPTY, Observable, ReplaySubject } from "rxjs";
import { type Callbacks, liveRows, type LiveRows, type LiveStep, noRows, type Open, type Reactive } from "./live";

@Injectable()
export class Turnout {
  /** The client, for single calls such as `rows` or `sql`. */
  readonly client = inject(TurnoutClient);

  private readonly injector = inject(Injector);
  private readonly destroyed = inject(DestroyRef);
  private readonly browser = isPlatformBrowser(inject(PLATFORM_ID));
  private readonly connections = new BehaviorSubject<TurnoutConnection>({ state: "connecting" });
  private readonly statuses = new ReplaySubject<Status>(1);
  private readonly connectionNow = signal<TurnoutConnection>(this.connections.value);
  private readonly statusNow = signal<Status | null>(null);
  private tablesNow: WritableSignal<readonly TableInfo[]> | null = null;

  readonly connection = this.connectionNow.asReadonly();
  readonly connection$: Observable<TurnoutConnection> = this.connections.asObservable();
  /** The status, updated about once a second; null before the first arrives. */
  readonly status = this.statusNow.asReadonly();
  readonly status$: Observable<Status> = this.statuses.asObservable();

  constructor() {
    this.destroyed.onDestroy(() => {
      this.connections.complete();
      this.statuses.complete();
    });
    if (!this.browser) return;
    const ends = [
      this.client.onConnection((state) => {
        const next = nextConnection(this.connections.value, state);
        this.connectionNow.set(next);
        this.connections.next(next);
      }),
      this.client.onStatus((status) => {
        this.statusNow.set(status);
        this.statuses.next(status);
      }),
    ];
    this.destroyed.onDestroy(() => ends.forEach((end) => end()));
  }

  /** The tables of the server with their columns, read again after each swap; empty before the first answer. */
  get tables(): Signal<readonly TableInfo[]> {
    return this.tablesNow ?? this.followTables();
  }

  get tables$(): Observable<readonly TableInfo[]> {
    return toObservable(this.tables, { injector: this.injector });
  }

  /** Reconnect now: after a refusal, with another token, or instead of waiting for the next attempt. */
  reconnect(token?: Token): void {
    this.client.reconnect(token === undefined ? {} : { token });
  }

  /** Subscribe to a window of a table. Call it in an injection context: it ends with the component. */
  window<Row = AnyRow>(options: Reactive<WindowOptions>, injector?: Injector): LiveRows<Row, WindowInfo> {
    return this.live((wanted, callbacks) => this.client.window<Row>(wanted, callbacks), options, injector);
  }

  window$<Row = AnyRow>(options: WindowOptions): Observable<LiveStep<Row, WindowInfo>> {
    return this.steps((callbacks) => this.client.window<Row>(options, callbacks));
  }

  /** Subscribe to groups of a table's rows. Call it in an injection context: it ends with the component. */
  summary<Group = AnyRow>(options: Reactive<SummaryOptions>, injector?: Injector): LiveRows<Group, SummaryInfo> {
    return this.live((wanted, callbacks) => this.client.liveSummary<Group>(wanted, callbacks), options, injector);
  }

  summary$<Group = AnyRow>(options: SummaryOptions): Observable<LiveStep<Group, SummaryInfo>> {
    return this.steps((callbacks) => this.client.liveSummary<Group>(options, callbacks));
  }

  /** Subscribe to the rows of a SELECT. Call it in an injection context: it ends with the component. */
  sql<Row = AnyRow>(options: Reactive<SqlSubscribeOptions>, injector?: Injector): LiveRows<Row, SqlInfo> {
    const again = (): SqlSubscribeOptions | null => {
      const wanted = typeof options === "function" ? options() : options;
      return wanted && { live: true, ...wanted };
    };
    return this.live((wanted, callbacks) => this.client.liveSql<Row>(wanted, callbacks), again, injector);
  }

  sql$<Row = AnyRow>(options: SqlSubscribeOptions): Observable<LiveStep<Row, SqlInfo>> {
    return this.steps((callbacks) => this.client.liveSql<Row>(options, callbacks));
  }

  /** Return every change of a table in order, with the mirror that has all its rows. */
  changes$<Row = AnyRow>(
    table: string | ChangesOptions,
  ): Observable<{ readonly change: MirrorChange<Row>; readonly mirror: TableMirror<Row> }> {
    return this.subscribed((next, onError) =>
      this.client.changes<Row>(table, { onChange: (change, mirror) => next({ change, mirror }), onError }),
    );
  }

  private live<Row, Info, Options extends object>(
    open: Open<Row, Info, Options>,
    options: Reactive<Options>,
    injector: Injector | undefined,
  ): LiveRows<Row, Info> {
    if (!injector) assertInInjectionContext(this.live);
    return this.browser ? liveRows(open, options, injector ?? inject(Injector)) : noRows();
  }

  private steps<Row, Info>(
    open: (callbacks: Callbacks<Row, Info>) => { close(): void },
  ): Observable<LiveStep<Row, Info>> {
    return this.subscribed((next, onError) => open({ onRows: (rows, info) => next({ rows, info }), onError }));
  }

  /** Return an observable that opens a separate subscription for each subscriber. */
  private subscribed<Value>(
    open: (next: (value: Value) => void, onError: (error: TurnoutError) => void) => { close(): void },
  ): Observable<Value> {
    if (!this.browser) return EMPTY;
    return new Observable<Value>((subscriber) => {
      const subscription = open(
        (value) => subscriber.next(value),
        (error) => subscriber.error(error),
      );
      return () => subscription.close();
    }).pipe(takeUntilDestroyed(this.destroyed));
  }

  private followTables(): Signal<readonly TableInfo[]> {
    const tables = (this.tablesNow = signal<readonly TableInfo[]>([]));
    const follow = (): void => {
      const generation = this.status()?.generation;
      if (generation === undefined || this.connection().state !== "live") return;
      // After a failure the tables are read again when the connection is back.
      this.client.tables().then(
        (found) => tables.set(found),
        () => undefined,
      );
    };
    // Untracked, because a template may be the first reader.
    if (this.browser) untracked(() => effect(follow, { injector: this.injector }));
    return tables;
  }
}
