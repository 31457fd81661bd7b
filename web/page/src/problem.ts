// Error texts for users of the page: hints of the server that are meant for programs are reworded.

import { TurnoutError } from "@turnout/client";
import { element } from "./dom";

const FITTING: [RegExp, string][] = [
  [/; force ignores the guards.*/, ""],
  [/^send `Authorization.*/, "check the token, or ask for another"],
  [/; GET \/api\/tables lists them$/, ": those in the list on the left"],
  [/^GET \/api\/saved lists them$/, "the menu Views lists them"],
];

export function problemText(error: unknown): string {
  if (!(error instanceof TurnoutError)) return String(error ?? "");
  return [error.message, hintOf(error)].filter(Boolean).join("; ");
}

export function hintOf({ hint }: TurnoutError): string {
  return FITTING.reduce((text, [of, fitting]) => text.replace(of, fitting), hint);
}

// Return the address of the documentation of an error code; null if the error did not come from a server.
export function errorPage(error: unknown): string | null {
  return error instanceof TurnoutError && error.status !== null ? `/docs/reference/errors.html#${error.code}` : null;
}

export function codeLinks(error: TurnoutError | null): HTMLAnchorElement[] {
  const address = errorPage(error);
  if (!error || !address) return [];
  const link = element("a", "code", error.code);
  link.href = address;
  link.target = "_blank";
  return [link];
}
