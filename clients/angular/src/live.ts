// Subscriptions as signals, which follow their options and end with their injector.

import { computed, DestroyRef, effect, type Injector, type Signal, signal, untracked } from "@angular/core";
import type { TurnoutError } from "@turnout/client";
import { wholeOptions } from "@turnout/client/frameworks";

/** Options, or a function of signals that returns them; null requests nothing. */
export type Reactive<Options> = Options | (() => Options | null);

/** Live rows. */
export interface LiveRows<Row, Info> {
  /** Frozen rows; an unchanged row is the same object as before. Empty before the first answer. */
  readonly rows: Signal<readonly Row[]>;
  /** The information on the rows; null before the first answer. */
  readonly info: Signal<Info | null>;
  /** The error that ended the subscription, such as a wrong `where`. The rows stay; other options start it again. */
  readonly error: Signal<TurnoutError | null>;
  /** Request the rows again with the same options. */
  reload(): void;
}

/** Rows and their information, as one value. */
export interface LiveStep<Row, Info> {
  readonly rows: readonly Row[];
  readonly info: Info;
}

export interface Callbacks<Row, Info> {
  onRows(rows: readonly Row[], info: Info): void;
  onError(error: TurnoutError): void;
}

interface Subscription<Options> {
  move(options: Options): void;
  close(): void;
}

export type Open<Row, Info, Options> = (options: Options, callbacks: Callbacks<Row, Info>) => Subscription<Options>;

/** Return empty rows, for rendering on a server. */
export function noRows<Row, Info>(): LiveRows<Row, Info> {
  return { rows: signal([]), info: signal(null), error: signal(null), reload: () => undefined };
}

export function liveRows<Row, Info, Options extends object>(
  open: Open<Row, Info, Options>,
  options: Reactive<Options>,
  injector: Injector,
): LiveRows<Row, Info> {
  const shown = signal<LiveStep<Row, Info> | null>(null);
  const error = signal<TurnoutError | null>(null);
  let asked: Options | null = null;
  let subscription: Subscription<Options> | null = null;

  const close = (): void => {
    subscription?.close();
    subscription = null;
  };
  const ask = (wanted: Options | null): void => {
    if (wanted === null) {
      close();
      shown.set(null);
      error.set(null);
    } else if (subscription !== null && asked !== null) {
      subscription.move(wholeOptions(asked, wanted));
    } else {
      subscription = open(wanted, {
        onRows: (rows, info) => {
          shown.set({ rows, info });
          error.set(null);
        },
        onError: (reason) => error.set(reason),
      });
    }
    asked = wanted;
  };

  // Compare options by value, because a computation mostly creates a new object.
  const wanted = computed(typeof options === "function" ? options : () => options, {
    equal: (one, other) => JSON.stringify(one) === JSON.stringify(other),
  });
  effect(
    () => {
      const next = wanted();
      untracked(() => ask(next));
    },
    { injector },
  );
  injector.get(DestroyRef).onDestroy(close);
  return {
    rows: computed(() => shown()?.rows ?? []),
    info: computed(() => shown()?.info ?? null),
    error: error.asReadonly(),
    reload: () => ask(asked),
  };
}
