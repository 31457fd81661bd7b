import { describe, expect, test } from "vitest";
import { niceWidth, widthOf } from "../src/bins";
import { candidates, changeKind, countable, emptyChart, groupable, isWidth, readChart, summaryOf, titleOf, usualChart, writeChart } from "../src/chart";
import { labelRows } from "../src/shape";

const COLUMNS = [
  { name: "userId", type: "string" },
  { name: "age", type: "int64" },
  { name: "accountType", type: "string" },
  { name: "seen", type: "timestamp" },
  { name: "ok", type: "boolean" },
];

describe("the first chart of a table", () => {
  test("is bars of the text with the fewest values", () => {
    const distinct = new Map([["userId", 900], ["accountType", 5], ["ok", 2]]);
    expect(usualChart(COLUMNS, distinct)).toMatchObject({ kind: "bars", by: "ok", value: "count" });
    distinct.set("ok", 1);
    expect(usualChart(COLUMNS, distinct)).toMatchObject({ kind: "bars", by: "accountType" });
  });

  test("is a histogram where no text has few values, and a line where there is no number", () => {
    expect(usualChart(COLUMNS, new Map([["userId", 900]]))).toMatchObject({ kind: "histogram", by: "age" });
    expect(usualChart([{ name: "id", type: "string" }], new Map())).toMatchObject({ kind: "line", by: "" });
  });

  test("looks at texts and booleans only", () => {
    expect(candidates(COLUMNS)).toEqual(["userId", "accountType", "ok"]);
  });
});

describe("what is asked of the server", () => {
  test("is a summary in the order of its value, with names quoted where they are no words", () => {
    const chart = { ...emptyChart("bars", "a b"), value: "sum", of: 'x"y' };
    expect(summaryOf(chart)).toEqual({ by: ['"a b"'], values: ['sum("x\\"y")'], sort: ['-"sum(x\\"y)"'], limit: 20 });
  });

  test("has bins for a histogram, and a history for a line", () => {
    expect(summaryOf({ ...emptyChart("histogram", "age"), width: "10" })).toMatchObject({ by: ["age:10"], values: ["count"] });
    expect(summaryOf({ ...emptyChart("line"), minutes: 5 })).toMatchObject({ by: [], history: 300 });
  });
});

describe("choices", () => {
  test("fit the kind and the function", () => {
    expect(groupable("histogram", COLUMNS, true).map(({ name }) => name)).toEqual(["age", "seen", "_time"]);
    expect(groupable("histogram", COLUMNS, false).map(({ name }) => name)).toEqual(["age", "seen"]);
    expect(groupable("bars", COLUMNS, true)).toEqual(COLUMNS);
    expect(countable("avg", COLUMNS).map(({ name }) => name)).toEqual(["age"]);
    expect(countable("count_distinct", COLUMNS)).toEqual(COLUMNS);
    expect(countable("count", COLUMNS)).toEqual([]);
  });

  test("keep what they can when the kind changes", () => {
    const bars = emptyChart("bars", "accountType");
    expect(changeKind(bars, "histogram", COLUMNS, true, "accountType")).toMatchObject({ kind: "histogram", by: "age", width: "" });
    expect(changeKind(bars, "line", COLUMNS, true, "ok")).toMatchObject({ kind: "line", by: "accountType" });
    const bins = { ...emptyChart("histogram", "age"), width: "10", value: "avg", of: "age" };
    expect(changeKind(bins, "bars", COLUMNS, true, "ok")).toMatchObject({ kind: "bars", by: "ok", width: "", value: "avg" });
    expect(changeKind(emptyChart("line"), "bars", COLUMNS, true, "ok")).toMatchObject({ kind: "bars", by: "ok" });
  });
});

describe("a chart as text", () => {
  test("comes back the same", () => {
    for (const chart of [
      { ...emptyChart("bars", "a"), value: "p95", of: "b" },
      { ...emptyChart("histogram", "a"), width: "1m" },
      { ...emptyChart("line"), minutes: 60 },
    ]) {
      expect(readChart(JSON.parse(JSON.stringify(writeChart(chart))))).toEqual(chart);
    }
  });

  test("is told to people", () => {
    expect(titleOf(emptyChart("bars", "accountType"))).toBe("number of rows by accountType");
    expect(titleOf({ ...emptyChart("line"), value: "avg", of: "age", minutes: 1 })).toBe("average of age, last minute");
    expect(titleOf({ ...emptyChart("histogram", "_time"), width: "1m" })).toBe("number of rows by time of the record in steps of 1m");
  });
});

describe("bins", () => {
  test.each([
    [0, 100, "int64", "5"],
    [0, 95, "int32", "5"],
    [3, 7, "int64", "1"],
    [0, 0, "double", "1"],
    [0, 0.007, "double", "0.0005"],
    [-1e6, 1e6, "double", "100000"],
    [0, 1e300, "double", "100000000000000000"],
  ])("from %d to %d of %s are %s wide", (from, to, type, width) => {
    expect(niceWidth(from, to, type)).toBe(width);
    expect(isWidth(width)).toBe(true);
  });

  test("of times are steps of a clock, of dates whole days", () => {
    expect(niceWidth(0, 3_600_000, "timestamp")).toBe("5m");
    expect(niceWidth(0, 0, "timestamp")).toBe("1s");
    expect(niceWidth(0, 10 * 86_400_000, "date")).toBe("1d");
    expect(niceWidth(0, 1e18, "timestamp")).toBe("365d");
    expect(widthOf("5m")).toBe(300_000);
    expect(widthOf("0.5")).toBe(0.5);
  });

  test.each(["0", "-1", "1x", "1e9", "0.0s", "m", "1 m"])("cannot be %s wide", (text) => {
    expect(isWidth(text)).toBe(false);
  });
});

test("labels of swaps lie beside each other, or below, or are left out", () => {
  expect(labelRows([[0, 10], [5, 15], [7, 17], [11, 21]], 2)).toEqual([0, 1, null, 0]);
});
