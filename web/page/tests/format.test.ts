import { expect, test } from "vitest";
import { age, ago, columnWidth, compact, copyText, decimalsOf, numberText, percent, prettyJson, rate, seconds, valueText } from "../src/format";
import { linePath, points, Recent } from "../src/spark";
import { exampleOf, grouped, inReadingOrder } from "../src/tables";
import { previousOf, undoneOf, whatChanged, type Entry } from "../src/timeline";

test("valueText tells null, nothing yet and an empty text apart", () => {
  expect([valueText(null, "string"), valueText(undefined, "string"), valueText("", "string")]).toEqual(["null", "", ""]);
});

test("valueText shows moments to the millisecond, and leaves other texts alone", () => {
  expect(valueText("2026-01-31T12:00:00.500123Z", "timestamp")).toBe("2026-01-31 12:00:00.500 Z");
  expect(valueText("2026-01-31T12:00:00.500123Z", "string")).toBe("2026-01-31T12:00:00.500123Z");
  expect(valueText({ a: 1 }, "string")).toBe('{"a":1}');
});

test("copyText gives the value, not how it is shown", () => {
  expect(copyText("2026-01-31T12:00:00.500123Z")).toBe("2026-01-31T12:00:00.500123Z");
  expect(copyText(null)).toBe("");
});

test("prettyJson spreads objects and lists, and nothing else", () => {
  expect(prettyJson(' {"a":[1]}')).toBe('{\n  "a": [\n    1\n  ]\n}');
  expect([prettyJson("12"), prettyJson("{broken"), prettyJson("text")]).toEqual([null, null, null]);
});

test("counts and rates stay short", () => {
  expect([0, 9_999, 12_345, 999_499, 999_500, 1_000_000, 2_345_678_901].map(compact)).toEqual([
    "0",
    "9,999",
    "12.3k",
    "999k",
    "1M",
    "1M",
    "2.3G",
  ]);
  expect([0, 0.25, 9.96, 47.2].map(rate)).toEqual(["0", "0.3", "10.0", "47"]);
});

test("ages and durations are read at a glance", () => {
  expect([-500, 999, 1_000, 61_000, 7_200_000, 200_000_000].map(age)).toEqual(["now", "now", "1 s", "1 min", "2 h", "2 d"]);
  expect([0.0491, 1.25, 12.4, 61, null].map(seconds)).toEqual(["49 ms", "1.3 s", "12 s", "1 min 1 s", "-"]);
});

test("the age of a record of any time has a text", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  const times = ["2025-12-31T23:59:55Z", "+058844-07-17T00:00:00Z", "-271821-04-20T00:00:00Z", "+292278994-08-17T07:12:55.807Z"];
  expect(times.map((text) => ago(now - Date.parse(text)))).toEqual(["5 s ago", "now", "100020454 d ago", "unknown"]);
});

test("percent never rounds some to none, or most to all", () => {
  expect([percent(9_999, 10_000), percent(1, 10_000), percent(1, 3), percent(4, 4), percent(0, 4), percent(0, 0)]).toEqual([
    "> 99.9 %",
    "< 0.1 %",
    "33.3 %",
    "100 %",
    "0 %",
    "-",
  ]);
});

test("columnWidth follows the longest text, within limits", () => {
  expect(columnWidth("a", "string", ["x".repeat(1000)])).toBe(460);
  expect(columnWidth("a", "int64", ["1"])).toBe(84);
  expect(columnWidth("a", "string", ["twenty characters ok"])).toBeGreaterThan(columnWidth("a", "string", ["short"]));
});

test("a sparkline starts at the right, from nought to its highest value", () => {
  const box = { width: 100, height: 22, size: 11 };
  expect(points([0, 5, 10], box)).toEqual([
    [80, 21],
    [90, 11],
    [100, 1],
  ]);
  expect(points([0, 0], box).map(([, y]) => y)).toEqual([21, 21]);
  expect(linePath([1], box)).toBe("");
  expect(linePath([0, 10], box)).toBe("M90 21L100 1");
});

test("Recent keeps the newest values, and takes what is no number for nought", () => {
  const recent = new Recent(3);
  for (const value of [1, 2, Number.NaN, -4, 5]) recent.add(value);
  expect(recent.values).toEqual([0, 0, 5]);
});

const info = (name: string) => ({ name, columns: [], rows: 0, generation: 1, version: 1 });

test("tables are grouped: the joined view first, then how things went in the order people ask", () => {
  const { data, operations } = grouped(["accounts_ui", "swaps", "final_ui", "bad_records"].map(info));
  expect(data.map(({ name }) => name)).toEqual(["final_ui", "accounts_ui"]);
  expect(operations.map(({ name }) => name)).toEqual(["bad_records", "swaps"]);
});

test("columns of journals come in reading order, all of them once", () => {
  const columns = ["ts", "partition", "raw", "outcome"].map((name) => ({ name, type: "string" }));
  expect(inReadingOrder("control_raw@3", columns)).toEqual([0, 3, 2, 1]);
  expect(inReadingOrder("final_ui", columns)).toEqual([0, 1, 2, 3]);
  for (const name of ["constructor", "toString", "__proto__", "hasOwnProperty"]) {
    expect(inReadingOrder(name, columns)).toEqual([0, 1, 2, 3]);
  }
});

test("the example of a condition has columns of the table", () => {
  const columns = [
    { name: "userId", type: "string" },
    { name: "age", type: "int64" },
    { name: "name", type: "string" },
  ];
  expect(exampleOf("people", columns)).toBe("age >= 30, name contains an");
  expect(exampleOf("constructor", columns)).toBe("age >= 30, name contains an");
});

test("whatChanged names only what is different", () => {
  expect(whatChanged({ from: "users=a join=left", to: "users=b join=left start=earliest" })).toBe(
    "users: a → b, start: latest → earliest",
  );
  expect(whatChanged({ from: null, to: "users=a" })).toBe("users=a");
});

test("numbers have marks, and as many digits as their column", () => {
  const values = [143333, 65413.7, 203925.75, -1234.5, "12345678901234567890"];
  const digits = Math.max(...values.map(decimalsOf));
  expect(digits).toBe(2);
  expect(values.map((value) => numberText(value, digits))).toEqual([
    "143,333.00",
    "65,413.70",
    "203,925.75",
    "-1,234.50",
    "12,345,678,901,234,567,890.00",
  ]);
  expect([1e21, 1e-7, "NaN", 0.1 + 0.2].map((value) => numberText(value, decimalsOf(value)))).toEqual(["1e+21", "1e-7", "NaN", "0.300000"]);
  expect(numberText("0.123456789", 6), "a text loses no digit").toBe("0.123456789");
});

test("a rollback undoes the entry before it, and leads back over applies that needed no generation", () => {
  const entry = (generation: number, from: string | null, to: string, outcome = "applied"): Entry =>
    ({ ts: "", generation, from, to, outcome, detail: null }) as unknown as Entry;
  const [first, second] = [entry(1, null, "users=a"), entry(2, "users=a", "users=b")];
  const back = entry(3, "users=b", "users=a", "rolled_back");
  expect([...undoneOf([back, entry(9, "x", "y", "failed"), second, first])]).toEqual([second]);
  expect(previousOf([back, second, first])).toEqual({ plan: "users=b", generation: 2 });
  expect(previousOf([entry(2, "users=b", "users=b"), second, first])).toEqual({ plan: "users=a", generation: 1 });
  expect(previousOf([])).toEqual({ plan: null, generation: null });
  expect(whatChanged({ from: "users=a", to: "users=a", detail: "max_viewers: 500 -> 9" })).toBe("max_viewers: 500 → 9");
});
