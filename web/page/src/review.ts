// The texts and numbers of a review: the candidate compared with the published generation, and its end. Pure.

import type { Candidate, ChangedRow, Difference, Status } from "@turnout/client";
import { age, count, number, type Value } from "./format";
import { brokenGuards, whatChanged, type Entry } from "./timeline";
import type { SortKey } from "./where";

export type Change = ChangedRow["change"];

// The table, filter and order of the rows of a review.
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

// Format a difference with its sign: `+1,204`, `−8`, `0`.
export function signed(value: number): string {
  return value === 0 ? "0" : `${value > 0 ? "+" : "−"}${number(Math.abs(value))}`;
}

// Return the changed columns, with the most changed first.
export function mostChanged({ columns }: Difference): { name: string; changed: number }[] {
  return columns.filter(({ changed }) => changed > 0).sort((one, other) => other.changed - one.changed);
}

// Describe the time until the candidate expires.
export function timeLeft({ expiresAt }: Candidate, now: number): string {
  const left = Date.parse(expiresAt) - now;
  if (Number.isNaN(left)) return "";
  return left < 1000 ? "expires now" : `expires in ${age(left)}`;
}

// The old and the new value of a cell. `changed` is true only if both rows exist.
export interface Pair {
  from: Value;
  to: Value;
  changed: boolean;
}

export function pairOf({ change, from, to }: ChangedRow, column: string): Pair {
  const [before, after] = [from?.[column] as Value, to?.[column] as Value];
  return { from: before, to: after, changed: change === "changed" && JSON.stringify(before) !== JSON.stringify(after) };
}

// Find the history entry of the candidate.
export function madeBy({ generation }: Candidate, entries: readonly Entry[]): Entry | undefined {
  return entries.find((entry) => entry.generation === generation && entry.outcome === "candidate");
}

// Describe the requested changes, one line for each.
export function askedFor(candidate: Candidate, entries: readonly Entry[], published: string | null): string[] {
  const made = madeBy(candidate, entries);
  const detail = brokenGuards(made).length ? null : (made?.detail ?? null);
  const told = whatChanged({ from: made?.from ?? published, to: candidate.plan, detail });
  return told.split(", ").filter(Boolean);
}

// Describe the end of a candidate; the reason comes from the history, once the entry has arrived.
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

// A group of bad records of a candidate; `badText` makes one line for each topic, with the most frequent reason first.
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

// Describe how many of the differences are shown.
export function shownText(shown: number, total: number): string {
  if (total === 0) return "";
  return shown < total ? `The first ${number(shown)} of ${count(total, "difference")}` : count(total, "difference");
}
