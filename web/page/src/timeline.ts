// The history of swaps, newest first.

import { byId, element } from "./dom";
import { seconds } from "./format";
import type { Rows } from "./rows";

export const HISTORY_SHOWN = 30;
const CLOCK = { hourCycle: "h23" } as const;

interface Entry {
  ts: string;
  generation: number;
  from: string | null;
  to: string | null;
  requester: string | null;
  requestId: string | null;
  buildSeconds: number | null;
  catchUpSeconds: number | null;
  publishSeconds: number | null;
  outcome: string;
  detail: string | null;
}

export function showTimeline({ columns, rows }: Pick<Rows, "columns" | "rows">): Entry[] {
  const entries = rows.map((row) => Object.fromEntries(columns.map(({ name }, i) => [name, row[i]])) as unknown as Entry);
  const published = entries.find((entry) => entry.outcome !== "failed");
  byId("timeline").replaceChildren(...entries.map((entry) => line(entry, entry === published)));
  byId("no-swaps").hidden = entries.length > 0;
  return entries;
}

function line(entry: Entry, isPublished: boolean): HTMLElement {
  const failed = entry.outcome === "failed";
  const made = element("li", isPublished ? "published" : "");
  made.dataset["outcome"] = entry.outcome;
  const title = element("strong", "", failed ? "Not published" : `Generation ${entry.generation}`);
  const outcome = element("span", "tag", entry.outcome.replaceAll("_", " "));
  made.append(element("div", "title", title, outcome, moment(entry.ts)), element("p", "what", whatChanged(entry)));
  if (failed && entry.detail) made.append(element("p", "why", entry.detail));
  const request = entry.requestId ? ` (${entry.requestId})` : "";
  made.append(element("p", "more", `by ${entry.requester ?? "-"}${request}, ${duration(entry)}`));
  return made;
}

function moment(ts: string): HTMLElement {
  const at = new Date(ts);
  const today = at.toDateString() === new Date().toDateString();
  const made = element("time", "", today ? at.toLocaleTimeString([], CLOCK) : at.toLocaleString([], { ...CLOCK, dateStyle: "short", timeStyle: "short" }));
  made.dateTime = ts;
  return made;
}

// Plans are told as `users=users2 accounts=accounts join=left`, with start only where it is not latest.
export function whatChanged({ from, to }: { from: string | null; to: string | null }): string {
  if (!from || !to) return to ?? "";
  const before = wordsOf(from);
  const after = wordsOf(to);
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const changed = names.filter((name) => before.get(name) !== after.get(name));
  const word = (plan: Map<string, string>, name: string) => plan.get(name) ?? (name === "start" ? "latest" : "none");
  return changed.map((name) => `${name}: ${word(before, name)} → ${word(after, name)}`).join(", ") || to;
}

function wordsOf(plan: string): Map<string, string> {
  return new Map(plan.split(" ").map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
}

function duration({ buildSeconds, catchUpSeconds, publishSeconds }: Entry): string {
  const parts = [
    ["build", buildSeconds],
    ["catch-up", catchUpSeconds],
    ["publish", publishSeconds],
  ] as const;
  const told = parts.filter(([, took]) => typeof took === "number" && took >= 0.0005);
  return told.map(([part, took]) => `${part} ${seconds(took)}`).join(", ") || "at once";
}
