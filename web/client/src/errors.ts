import type { ErrorInfo } from "./messages.js";

/** What went wrong, in the server's words: a code for programs, a message and a hint for people. */
export class TurnoutError extends Error {
  override readonly name = "TurnoutError";
  readonly code: string;
  readonly hint: string;
  /** The HTTP status; null when there was no answer, or the error came over the WebSocket. */
  readonly status: number | null;

  constructor(info: ErrorInfo, status: number | null = null, options?: ErrorOptions) {
    super(info.message, options);
    this.code = info.code;
    this.hint = info.hint;
    this.status = status;
  }
}

/** The error of an answer's JSON, where it has the one shape that all errors of the server have. */
export function errorOf(body: unknown, status: number | null): TurnoutError | null {
  const info = (body as { error?: Partial<ErrorInfo> } | null)?.error;
  if (typeof info?.code !== "string" || typeof info.message !== "string") return null;
  return new TurnoutError({ code: info.code, message: info.message, hint: String(info.hint ?? "") }, status);
}

/** An error that nobody takes must not go unseen. */
export function unheard(error: TurnoutError): void {
  console.error(`turnout: ${error.message}${error.hint && `; ${error.hint}`}`);
}
