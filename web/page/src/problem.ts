// What went wrong, for people who look at the page: hints of the server that only programs can follow are put in their words.

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

// Where the documentation says what the code of an answer means and what to do; null for what no server answered.
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
