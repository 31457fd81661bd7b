// Shared code of the Angular and React packages: connection states, swap states and complete options.

import type { Outcome } from "./api.js";
import type { ConnectionState } from "./connection.js";
import { TurnoutError } from "./errors.js";

/** The state of the connection. Rows and status are kept in every state. */
export type TurnoutConnection =
  | { readonly state: "connecting" }
  | { readonly state: "live"; readonly server: string; readonly role: "viewer" | "operator"; readonly sql: boolean }
  /** The connection is lost and retried automatically. `retryAt` (as `Date.now()`) is null during an attempt. */
  | { readonly state: "reconnecting"; readonly reason: string; readonly retryAt: number | null }
  /** The server refuses this client; only `reconnect` tries again. */
  | { readonly state: "refused"; readonly error: TurnoutError };

/** Return the next state to show. An attempt after a loss stays `reconnecting`, so that the state does not flicker. */
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

/** The state of the last swap that was requested here. */
export type SwapState =
  | { readonly state: "idle" }
  | { readonly state: "running" }
  | { readonly state: "done"; readonly outcome: Outcome }
  | { readonly state: "failed"; readonly error: TurnoutError };

/** Throw any cause as a TurnoutError, also an aborted call. */
export function asTurnoutError(cause: unknown): never {
  if (cause instanceof TurnoutError) throw cause;
  const hint = "the server continues: its status and history show the outcome";
  throw new TurnoutError({ code: "not_awaited", message: `the answer was not awaited: ${String(cause)}`, hint }, null, { cause });
}

/** Return options for `move`, which keeps omitted options: removed options are set to undefined. */
export function wholeOptions<Options extends object>(before: Options, wanted: Options): Options {
  const cleared = Object.fromEntries(Object.keys(before).map((name) => [name, undefined]));
  return { ...cleared, ...wanted };
}
