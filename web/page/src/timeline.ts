// The history of swaps, newest first.

import { dayText, localMoments, timeText, utcText } from "./clock";
import { byId, element } from "./dom";
import { seconds } from "./format";
import type { Rows } from "./rows";

export const HISTORY_SHOWN = 30;

export interface Entry {
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
  const published = entries.find(wasPublished);
  const undone = undoneOf(entries);
  byId("timeline").replaceChildren(...entries.map((entry) => line(entry, entry === published, undone.has(entry))));
  byId("no-swaps").hidden = entries.length > 0;
  return entries;
}

export const publishedOf = (entries: readonly Entry[]): string | null => entries.find(wasPublished)?.to ?? null;

export interface Previous {
  plan: string | null;
  generation: number | null;
}

// Whether an entry published its generation; a candidate is published by another entry or never.
function wasPublished(entry: Entry): boolean {
  return entry.outcome === "applied" || entry.outcome === "rolled_back";
}

// Return the plan that a rollback would publish. An apply that built no generation has no plan of its own.
export function previousOf(entries: readonly Entry[]): Previous {
  const published = entries.filter(wasPublished);
  const now = published[0]?.generation;
  const swap = published.find((entry, i) => entry.generation === now && published[i + 1]?.generation !== now);
  const plan = swap?.from ?? null;
  const made = published.slice(published.indexOf(swap!) + 1).find((entry) => entry.to === plan);
  return { plan, generation: made?.generation ?? null };
}

// Return the entries that were undone: each rollback undoes the entry published just before it.
export function undoneOf(entries: readonly Entry[]): Set<Entry> {
  const published = entries.filter(wasPublished);
  return new Set(published.filter((_, i) => published[i - 1]?.outcome === "rolled_back"));
}

const SAID: Record<string, string> = { rolled_back: "rollback", candidate: "for review" };

function line(entry: Entry, isPublished: boolean, isUndone: boolean): HTMLElement {
  const waits = entry.outcome === "candidate";
  const failed = !wasPublished(entry) && !waits;
  const made = element("li", isPublished ? "published" : "");
  made.dataset["outcome"] = isUndone ? "undone" : entry.outcome;
  const isBuilt = !failed || entry.outcome === "discarded";
  const title = element("strong", "", isBuilt ? `Generation ${entry.generation}` : "Not published");
  const said = SAID[entry.outcome] ?? entry.outcome.replaceAll("_", " ");
  const outcome = element("span", "tag", isUndone ? "rolled back" : said);
  made.append(element("div", "title", title, outcome, moment(entry.ts)), element("p", "what", whatChanged(entry)));
  if ((failed || isBroken(entry)) && entry.detail) made.append(element("p", "why", entry.detail));
  const request = entry.requestId ? ` (${entry.requestId})` : "";
  const took = duration(entry) || (failed ? "" : "at once");
  made.append(element("p", "more", `by ${entry.requester ?? "-"}${request}${took && `, ${took}`}`));
  return made;
}

// The start of `detail` of a candidate that breaks guards; the broken guards with their numbers follow.
const BROKEN = "it breaks guards: ";

const isBroken = ({ outcome, detail }: Entry): boolean => outcome === "candidate" && (detail ?? "").startsWith(BROKEN);

export function brokenGuards(entry: Entry | undefined): string[] {
  return entry && isBroken(entry) ? entry.detail!.slice(BROKEN.length).split(/; (?=\w+: )/) : [];
}

function moment(ts: string): HTMLElement {
  const at = new Date(ts);
  const today = at.toDateString() === new Date().toDateString();
  const made = element("time", "", today ? timeText(at) : `${dayText(at)} ${timeText(at).slice(0, 5)}`);
  made.dateTime = ts;
  made.title = utcText(ts);
  return made;
}

// Describe the changes between two plans, such as `users=users2 accounts=accounts join=left`; a missing `start` means
// latest. If the plans are equal, `detail` has the changed settings.
export function whatChanged({ from, to, detail }: { from: string | null; to: string | null; detail?: string | null }): string {
  if (!from || !to) return to ?? "";
  const before = wordsOf(from);
  const after = wordsOf(to);
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const changed = names.filter((name) => before.get(name) !== after.get(name));
  const word = (plan: Map<string, string>, name: string) => plan.get(name) ?? (name === "start" ? "latest" : "none");
  const told = changed.map((name) => `${name}: ${word(before, name)} → ${word(after, name)}`).join(", ");
  return localMoments(told || detail?.replaceAll(" -> ", " → ") || to);
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
  return told.map(([part, took]) => `${part} ${seconds(took)}`).join(", ");
}
