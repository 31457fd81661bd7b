import { expect, test } from "vitest";
import type { Candidate, ChangedRow, Difference, Status } from "@turnout/client";
import { askedFor, badText, endOf, figuresOf, mostChanged, pairOf, shownText, signed, timeLeft } from "../src/review";
import { previousOf, publishedOf, type Entry } from "../src/timeline";

const candidate: Candidate = { generation: 9, plan: "users=users2 accounts=accounts join=inner", since: "2026-01-01T08:00:00Z", expiresAt: "2026-01-01T09:00:00Z" };
const found: Difference = {
  table: "final_ui",
  from: { generation: 7, version: 4, lag: 0 },
  to: { generation: 9, version: 2, lag: null },
  counts: { added: 3, removed: 1, changed: 2, same: 10 },
  total: 6,
  key: ["userId"],
  columns: ["userId", "name", "age"].map((name, i) => ({ name, type: "string", changed: i })),
  columnsOnlyIn: { from: [], to: [] },
  missing: null,
  sinks: [],
  rows: [],
};
const entry = (more: Partial<Entry>): Entry => ({
  ...{ ts: "", generation: 7, from: null, to: "users=users accounts=accounts join=left", requester: "cli", requestId: null },
  ...{ buildSeconds: null, catchUpSeconds: null, publishSeconds: null, outcome: "applied", detail: null, ...more },
});
const made = entry({ generation: 9, from: "users=users accounts=accounts join=left", to: candidate.plan, outcome: "candidate" });
const status = (generation: number): Status => ({ generation, state: "live", joinType: "left", lastApplied: null, lag: 0, requestId: null });

test("the rows before and after follow from the counts", () => {
  expect(figuresOf(found)).toEqual({ before: 13, after: 15, added: 3, removed: 1, changed: 2 });
  expect([signed(1204), signed(-8), signed(0)]).toEqual(["+1,204", "−8", "0"]);
  expect(shownText(0, 0)).toBe("");
  expect(shownText(1, 1)).toBe("1 difference");
  expect(shownText(100, 1200)).toBe("The first 100 of 1,200 differences");
});

test("the columns that change most come first, and others not at all", () => {
  expect(mostChanged(found).map(({ name }) => name)).toEqual(["age", "name"]);
});

test("a cell is marked where both rows are there and differ", () => {
  const row: ChangedRow = { change: "changed", from: { a: 1, b: null, c: [1] }, to: { a: 2, b: null, c: [1] } };
  expect(["a", "b", "c"].map((name) => pairOf(row, name).changed)).toEqual([true, false, false]);
  expect(pairOf({ change: "added", from: null, to: { a: 2 } }, "a")).toEqual({ from: undefined, to: 2, changed: false });
});

test("what was asked for is told from the plan that it was made beside", () => {
  expect(askedFor(candidate, [made, entry({})], null)).toEqual(["users: users → users2", "join: left → inner"]);
  expect(askedFor(candidate, [], "users=users accounts=accounts join=inner")).toEqual(["users: users → users2"]);
  expect(askedFor(candidate, [{ ...made, from: candidate.plan, detail: "views.x: none -> a view" }], null)).toEqual(["views.x: none → a view"]);
});

test("the time that is left is told in whole steps", () => {
  const at = (text: string): string => timeLeft(candidate, Date.parse(text));
  expect(at("2026-01-01T08:00:30Z")).toBe("expires in 59 min");
  expect(at("2026-01-01T08:59:20Z")).toBe("expires in 40 s");
  expect(at("2026-01-01T09:10:00Z")).toBe("expires now");
});

test("the end of a candidate is told by what the history says", () => {
  expect(endOf(candidate, status(9), []).kind).toBe("published");
  expect(endOf(candidate, status(10), [entry({ generation: 10 }), entry({ generation: 9 }), made]).text).toBe("Generation 9 was published; generation 10 is shown now.");
  expect(endOf(candidate, status(7), [made]).text).toBe("Generation 9 is no longer a candidate. The tables stay as they are.");
  const discarded = entry({ generation: 9, outcome: "discarded", detail: "ops discarded it" });
  expect(endOf(candidate, status(7), [discarded, made]).text).toBe("Generation 9 is no longer a candidate: ops discarded it. The tables stay as they are.");
});

test("candidates of the history are neither published nor what a rollback goes back to", () => {
  const before = entry({ generation: 6, to: "users=old accounts=accounts join=left" });
  const now = entry({ from: before.to });
  const discarded = entry({ generation: 9, from: now.to, to: candidate.plan, outcome: "discarded" });
  expect(publishedOf([discarded, made, now, before])).toBe(now.to);
  expect(previousOf([discarded, made, now, before])).toEqual({ plan: before.to, generation: 6 });
});

test("bad records are told by topic, with their reasons", () => {
  const groups = [
    { topic: "users2", reason: "not valid JSON", count: 8 },
    { topic: "accounts", reason: "not an object", count: 1 },
    { topic: "users2", reason: "null value", count: 4 },
  ];
  expect(badText(groups)).toEqual(["users2: 12 bad records (not valid JSON: 8; null value: 4)", "accounts: 1 bad record (not an object)"]);
  expect(badText([])).toEqual(["None: every record of its topics could be read."]);
});
