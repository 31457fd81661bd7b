// The client for components: one connection, shown as signals and as observables. On a server nothing is subscribed.

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
  /** For calls that are answered once, such as `rows` or `sql`. */
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
  /** The status, now and about once a second; null until the first comes. */
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

  /** The tables of the server with their columns, asked for anew after each swap; empty until they come. */
  get tables(): Signal<readonly TableInfo[]> {
    return this.tablesNow ?? this.followTables();
  }

  get tables$(): Observable<readonly TableInfo[]> {
    return toObservable(this.tables, { injector: this.injector });
  }

  /** Connect anew now: after a refusal, with another token, or instead of waiting for the next try. */
  reconnect(token?: Token): void {
    this.client.reconnect(token === undefined ? {} : { token });
  }

  /** Some rows of a table. Call it where you inject: it ends with the component. */
  window<Row = AnyRow>(options: Reactive<WindowOptions>, injector?: Injector): LiveRows<Row, WindowInfo> {
    return this.live((wanted, callbacks) => this.client.window<Row>(wanted, callbacks), options, injector);
  }

  window$<Row = AnyRow>(options: WindowOptions): Observable<LiveStep<Row, WindowInfo>> {
    return this.steps((callbacks) => this.client.window<Row>(options, callbacks));
  }

  /** Groups of a table's rows. Call it where you inject: it ends with the component. */
  summary<Group = AnyRow>(options: Reactive<SummaryOptions>, injector?: Injector): LiveRows<Group, SummaryInfo> {
    return this.live((wanted, callbacks) => this.client.liveSummary<Group>(wanted, callbacks), options, injector);
  }

  summary$<Group = AnyRow>(options: SummaryOptions): Observable<LiveStep<Group, SummaryInfo>> {
    return this.steps((callbacks) => this.client.liveSummary<Group>(options, callbacks));
  }

  /** The rows of a SELECT, again whenever a table that it names changed. Call it where you inject. */
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

  /** Every change of a table, in order, with the mirror that holds all its rows. */
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

  /** Each subscriber has a subscription of its own. */
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
      // What fails now is asked again when the connection is back.
      this.client.tables().then(
        (found) => tables.set(found),
        () => undefined,
      );
    };
    // The first who reads it may be a template.
    if (this.browser) untracked(() => effect(follow, { injector: this.injector }));
    return tables;
  }
}
