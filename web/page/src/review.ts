// What a review tells: the figures of a candidate beside those of what is shown, its rows side by side, and what became
// of it. Pure.

import type { Candidate, ChangedRow, Difference, Status } from "@turnout/client";
import { age, count, number, type Value } from "./format";
import { brokenGuards, whatChanged, type Entry } from "./timeline";
import type { SortKey } from "./where";

export type Change = ChangedRow["change"];

// Which rows are shown side by side, and in which order.
export interface Review {
  table: string;
  where: string;
  change: Change | null;
  sort: SortKey[];
}

export const emptyReview = (table = ""): Review => ({ table, where: "", change: null, sort: [] });

export interface Figures {
  before: number;
  after: number;
  added: number;
  removed: number;
  changed: number;
}

export function figuresOf({ counts: { added, removed, changed, same } }: Difference): Figures {
  return { before: removed + changed + same, after: added + changed + same, added, removed, changed };
}

// `+1,204`, `−8`; nothing for none: what does not change needs no look.
export function signed(value: number): string {
  return value === 0 ? "0" : `${value > 0 ? "+" : "−"}${number(Math.abs(value))}`;
}

// The columns that change, the one that changes most first.
export function mostChanged({ columns }: Difference): { name: string; changed: number }[] {
  return columns.filter(({ changed }) => changed > 0).sort((one, other) => other.changed - one.changed);
}

// How long the candidate stays, as people say it.
export function timeLeft({ expiresAt }: Candidate, now: number): string {
  const left = Date.parse(expiresAt) - now;
  if (Number.isNaN(left)) return "";
  return left < 1000 ? "expires now" : `expires in ${age(left)}`;
}

// A cell of two rows: what it was, what it would be. `changed` only where both rows are there.
export interface Pair {
  from: Value;
  to: Value;
  changed: boolean;
}

export function pairOf({ change, from, to }: ChangedRow, column: string): Pair {
  const [before, after] = [from?.[column] as Value, to?.[column] as Value];
  return { from: before, to: after, changed: change === "changed" && JSON.stringify(before) !== JSON.stringify(after) };
}

// The line of the history that says how it was made.
export function madeBy({ generation }: Candidate, entries: readonly Entry[]): Entry | undefined {
  return entries.find((entry) => entry.generation === generation && entry.outcome === "candidate");
}

// What the message asked for, one line for each thing that it changes.
export function askedFor(candidate: Candidate, entries: readonly Entry[], published: string | null): string[] {
  const made = madeBy(candidate, entries);
  const detail = brokenGuards(made).length ? null : (made?.detail ?? null);
  const told = whatChanged({ from: made?.from ?? published, to: candidate.plan, detail });
  return told.split(", ").filter(Boolean);
}

// What became of a candidate that is not there any more. The history says why, once it has come.
export function endOf(gone: Candidate, status: Status, entries: readonly Entry[]): { kind: "published" | "gone"; text: string } {
  const { generation } = gone;
  if (status.generation === generation) return { kind: "published", text: `Generation ${generation} is published: all tables show it now.` };
  const entry = entries.find((one) => one.generation === generation && one.outcome !== "candidate");
  if (entry && entry.outcome !== "discarded") {
    return { kind: "published", text: `Generation ${generation} was published; generation ${status.generation} is shown now.` };
  }
  const why = entry?.detail ? `: ${entry.detail}` : "";
  return { kind: "gone", text: `Generation ${generation} is no longer a candidate${why}. The tables stay as they are.` };
}

// The bad records of a candidate, a line for each topic, the most frequent reason first.
export interface BadGroup {
  topic: string;
  reason: string;
  count: number;
}

export function badText(groups: readonly BadGroup[]): string[] {
  const topics = [...new Set(groups.map(({ topic }) => topic))];
  const lines = topics.map((topic) => {
    const own = groups.filter((group) => group.topic === topic);
    const all = own.reduce((sum, group) => sum + group.count, 0);
    const reasons = own.map((group) => (own.length > 1 ? `${group.reason}: ${number(group.count)}` : group.reason));
    return `${topic}: ${count(all, "bad record")} (${reasons.join("; ")})`;
  });
  return lines.length ? lines : ["None: every record of its topics could be read."];
}

// How many of the differences that are asked for are shown.
export function shownText(shown: number, total: number): string {
  if (total === 0) return "";
  return shown < total ? `The first ${number(shown)} of ${count(total, "difference")}` : count(total, "difference");
}
