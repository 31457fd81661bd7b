import type { ErrorInfo, TextPosition } from "./messages.js";

/** An error with a code for programs, and a message and a hint for people. */
export class TurnoutError extends Error {
  override readonly name = "TurnoutError";
  readonly code: string;
  readonly hint: string;
  /** The HTTP status; null when there was no answer, or the error came over the WebSocket. */
  readonly status: number | null;
  /** The position of the error in a SELECT; null if unknown. */
  readonly position: TextPosition | null;

  constructor(info: ErrorInfo, status: number | null = null, options?: ErrorOptions) {
    super(info.message, options);
    this.code = info.code;
    this.hint = info.hint;
    this.status = status;
    this.position = info.position ?? null;
  }
}

/** Return the error in the JSON of an answer; null if it is not in the format of the server's errors. */
export function errorOf(body: unknown, status: number | null): TurnoutError | null {
  const info = (body as { error?: Partial<ErrorInfo> } | null)?.error;
  if (typeof info?.code !== "string" || typeof info.message !== "string") return null;
  const { code, message, position = null } = info;
  return new TurnoutError({ code, message, hint: String(info.hint ?? ""), position }, status);
}

/** Log an error that no callback handles. */
export function unheard(error: TurnoutError): void {
  console.error(`turnout: ${error.message}${error.hint && `; ${error.hint}`}`);
}
