import type { ConnectionState, TurnoutError } from "@turnout/client";

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
