import { DestroyRef, effect, inject, Injectable, InjectionToken, type Signal, signal } from '@angular/core';
import {
  connect,
  type ConnectionState,
  type ConnectOptions,
  type Status,
  type TurnoutError,
  type WindowInfo,
  type WindowOptions,
} from '@turnout/client';

/** Where the server is. Nothing given: the server that the page came from (`ng serve` passes /api on to it). */
export const TURNOUT = new InjectionToken<ConnectOptions>('TURNOUT', { providedIn: 'root', factory: () => ({}) });

/** A window of a table, as signals. */
export interface LiveWindow<Row> {
  readonly rows: Signal<readonly Row[]>;
  readonly info: Signal<WindowInfo | null>;
  readonly error: Signal<TurnoutError | null>;
}

/** The client as signals: one connection for the whole app. */
@Injectable({ providedIn: 'root' })
export class TurnoutService {
  private readonly client = connect(inject(TURNOUT));
  private readonly connectionNow = signal<ConnectionState>({ state: 'idle' });
  private readonly statusNow = signal<Status | null>(null);

  readonly connection = this.connectionNow.asReadonly();
  readonly status = this.statusNow.asReadonly();

  constructor() {
    this.client.onConnection((state) => this.connectionNow.set(state));
    this.client.onStatus((status) => this.statusNow.set(status));
    inject(DestroyRef).onDestroy(() => this.client.close());
  }

  /** Try again now: after a refusal, with another token. */
  reconnect(token?: string): void {
    this.client.reconnect(token === undefined ? {} : { token });
  }

  /** A window that moves when `options` change. Call it where you inject: it closes with the component. */
  window<Row>(options: Signal<WindowOptions>): LiveWindow<Row> {
    const rows = signal<readonly Row[]>([]);
    const info = signal<WindowInfo | null>(null);
    const error = signal<TurnoutError | null>(null);
    let asked = options();
    const live = this.client.window<Row>(asked, {
      onRows: (now, about) => {
        rows.set(now);
        info.set(about);
        error.set(null);
      },
      onError: (reason) => error.set(reason),
    });
    effect(() => {
      if (options() === asked) return;
      asked = options();
      live.move(asked);
    });
    inject(DestroyRef).onDestroy(() => live.close());
    return { rows, info, error };
  }
}
