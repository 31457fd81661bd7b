import type { ErrorInfo, TextPosition } from "./messages.js";

/** What went wrong, in the server's words: a code for programs, a message and a hint for people. */
export class TurnoutError extends Error {
  override readonly name = "TurnoutError";
  readonly code: string;
  readonly hint: string;
  /** The HTTP status; null when there was no answer, or the error came over the WebSocket. */
  readonly status: number | null;
  /** Where a SELECT is wrong, as far as that is known. */
  readonly position: TextPosition | null;

  constructor(info: ErrorInfo, status: number | null = null, options?: ErrorOptions) {
    super(info.message, options);
    this.code = info.code;
    this.hint = info.hint;
    this.status = status;
    this.position = info.position ?? null;
  }
}

/** The error of an answer's JSON, where it has the one shape that all errors of the server have. */
export function errorOf(body: unknown, status: number | null): TurnoutError | null {
  const info = (body as { error?: Partial<ErrorInfo> } | null)?.error;
  if (typeof info?.code !== "string" || typeof info.message !== "string") return null;
  const { code, message, position = null } = info;
  return new TurnoutError({ code, message, hint: String(info.hint ?? ""), position }, status);
}

/** An error that nobody takes must not go unseen. */
export function unheard(error: TurnoutError): void {
  console.error(`turnout: ${error.message}${error.hint && `; ${error.hint}`}`);
}
