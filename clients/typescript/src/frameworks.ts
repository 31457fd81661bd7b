// What the packages for Angular and React share: the connection as it is shown, what became of a swap, whole options.

import type { Outcome } from "./api.js";
import type { ConnectionState } from "./connection.js";
import { TurnoutError } from "./errors.js";

/** How things stand with the server. Rows and status stay as they were in all of these. */
export type TurnoutConnection =
  | { readonly state: "connecting" }
  | { readonly state: "live"; readonly server: string; readonly role: "viewer" | "operator"; readonly sql: boolean }
  /** Lost, and tried again by itself. `retryAt` (as of `Date.now()`) is null during a try. */
  | { readonly state: "reconnecting"; readonly reason: string; readonly retryAt: number | null }
  /** The server does not let us in: only `reconnect` tries again. */
  | { readonly state: "refused"; readonly error: TurnoutError };

/** The next state to show. A try after a loss is a part of reconnecting, so that nothing flickers between two words. */
export function nextConnection(shown: TurnoutConnection, now: ConnectionState): TurnoutConnection {
  switch (now.state) {
    case "live":
    case "refused":
      return now;
    case "away":
      return { state: "reconnecting", reason: now.reason, retryAt: now.retryAt };
    case "connecting":
      return shown.state === "reconnecting" ? { ...shown, retryAt: null } : { state: "connecting" };
    case "idle":
    case "closed":
      return shown;
  }
}

/** What became of the last swap that was asked for here. */
export type SwapState =
  | { readonly state: "idle" }
  | { readonly state: "running" }
  | { readonly state: "done"; readonly outcome: Outcome }
  | { readonly state: "failed"; readonly error: TurnoutError };

/** Throw a TurnoutError, also where nobody waits for the answer any more. */
export function asTurnoutError(cause: unknown): never {
  if (cause instanceof TurnoutError) throw cause;
  const hint = "the server goes on with it: its status and history tell what becomes of it";
  throw new TurnoutError({ code: "not_awaited", message: `the answer was not awaited: ${String(cause)}`, hint }, null, { cause });
}

/** Options for `move`, which keeps what it is not given: what is in the options no more is given as undefined. */
export function wholeOptions<Options extends object>(before: Options, wanted: Options): Options {
  const cleared = Object.fromEntries(Object.keys(before).map((name) => [name, undefined]));
  return { ...cleared, ...wanted };
}
