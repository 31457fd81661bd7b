import { describe, expect, test } from "vitest";
import { emptyChart } from "../src/chart";
import { brief, numbersOf, shapeOf, type Answer, type Bars, type Bins, type Lines } from "../src/shape";

const columns = [
  { name: "kind", type: "string" },
  { name: "count", type: "int64" },
];
const answer = (groups: unknown[][], more: Partial<Answer> = {}): Answer => ({ columns, by: ["kind"], total: groups.length, past: null, groups, ...more });

describe("bars", () => {
  const chart = emptyChart("bars", "kind");

  test("have names and numbers, whatever the values are", () => {
    const found = answer([["gold", 3], [null, "12.5"], ["", null]]);
    const shape = shapeOf(chart, found, 0) as Bars;
    expect(shape).toEqual({ kind: "bars", labels: ["gold", "null", "(empty text)"], values: [3, 12.5, null] });
    expect(numbersOf(chart, shape, found)).toEqual({
      head: ["kind", "count"],
      rows: [["gold", "3"], ["null", "12.5"], ["(empty text)", "none"]],
      note: "",
    });
  });

  test("say when there are more of them", () => {
    const found = answer([["a", 1]], { total: 400 });
    expect(numbersOf(chart, shapeOf(chart, found, 0), found).note).toBe("the largest 20 of 400 groups");
  });
});

describe("bins", () => {
  const chart = { ...emptyChart("histogram", "age"), width: "10" };
  const numbers = { columns: [{ name: "age:10", type: "int64" }, columns[1]!], by: ["age:10"] };

  test("without rows are nought, and rows without a value are told", () => {
    const found = answer([[10, 2], [40, 1], [null, 7]], numbers);
    const shape = shapeOf(chart, found, 0) as Bins;
    expect(shape.starts).toEqual([10, 20, 30, 40]);
    expect(shape.values).toEqual([2, 0, 0, 1]);
    expect(numbersOf(chart, shape, found)).toMatchObject({ rows: [["10 – 20", "2"], ["20 – 30", "0"], ["30 – 40", "0"], ["40 – 50", "1"]], note: "without age: 7" });
  });

  test("of an average have no bar where there is no row", () => {
    const found = answer([[0, 2], [20, 1]], numbers);
    expect((shapeOf({ ...chart, value: "avg", of: "x" }, found, 0) as Bins).values).toEqual([2, null, 1]);
  });

  test("of small steps do not drift", () => {
    const found = answer([[0.1, 1], [0.5, 1]], { ...numbers, columns: [{ name: "x:0.1", type: "double" }, columns[1]!] });
    expect((shapeOf({ ...chart, width: "0.1" }, found, 0) as Bins).starts).toEqual([0.1, 0.2, 0.3, 0.4, 0.5]);
  });

  test("far apart are not filled in", () => {
    const found = answer([[0, 1], [1e9, 1]], numbers);
    expect((shapeOf(chart, found, 0) as Bins).starts).toEqual([0, 1e9]);
  });

  test("of times have texts of times; times that no browser knows have no bar", () => {
    const times = { columns: [{ name: "ts:1m", type: "timestamp" }, columns[1]!], by: ["ts:1m"] };
    const found = answer([["2026-01-01T00:00:00Z", 1], ["2026-01-01T00:02:00Z", 2], ["+294247-01-01T00:00:00Z", 9]], times);
    const byMinute = { ...chart, by: "ts", width: "1m" };
    const shape = shapeOf(byMinute, found, 0) as Bins;
    expect(shape.values).toEqual([1, 0, 2]);
    expect(numbersOf(byMinute, shape, found).rows[0]).toEqual(["2026-01-01 00:00", "1"]);
  });

  test("of no rows are none", () => {
    expect(shapeOf(chart, answer([], numbers), 0)).toMatchObject({ starts: [], values: [] });
  });
});

describe("lines", () => {
  const chart = { ...emptyChart("line", "kind"), minutes: 1 };
  const points = [
    { time: 1_000_000, generation: 1, groups: [["a", 1]] },
    { time: 1_070_000, generation: 1, groups: [["a", 2], ["b", 5]] },
    { time: 1_090_000, generation: 2, groups: [["b", 6]] },
  ];
  const past = { seconds: 60, points, swaps: [{ time: 1_000_000, generation: 1 }, { time: 1_090_500, generation: 2 }] };
  const found = answer([["b", 6], ["a", null]], { past });

  test("go from the first moment to now, with gaps where a group was not there", () => {
    const shape = shapeOf(chart, found, 1_100_000) as Lines;
    expect(shape.times).toEqual([1_040_000, 1_070_000, 1_090_000, 1_100_000]);
    expect(shape.lines).toEqual([
      { name: "b", values: [null, 5, 6, 6] },
      { name: "a", values: [1, 2, null, null] },
    ]);
    expect(shape.swaps, "a mark is where the numbers of its generation begin").toEqual([{ time: 1_090_000, generation: 2 }]);
  });

  test("begin with the first moment that is known", () => {
    const late = { ...found, past: { ...past, points: points.slice(1) } };
    expect((shapeOf({ ...chart, minutes: 10 }, late, 1_100_000) as Lines).from).toBe(1_070_000);
    expect((shapeOf({ ...chart, minutes: 10 }, { ...found, past: { ...past, points: [] } }, 1_100_000) as Lines).from).toBe(1_090_000);
  });

  test("go on showing groups that only the generation before had", () => {
    const shape = shapeOf(chart, { ...found, groups: [["b", 6]] }, 1_100_000) as Lines;
    expect(shape.lines).toEqual([
      { name: "b", values: [null, 5, 6, 6] },
      { name: "a", values: [1, 2, null, null] },
    ]);
  });

  test("are read newest first, with the swap at its moment", () => {
    const numbers = numbersOf(chart, shapeOf(chart, found, 1_100_000), found);
    expect(numbers.head).toEqual(["time", "b", "a", "swap"]);
    expect(numbers.rows.map((row) => row.slice(1))).toEqual([["6", "none", "generation 2"], ["5", "2", ""], ["none", "1", ""]]);
  });

  test("of all rows have the name of their value", () => {
    const all = { ...found, by: [], columns: [columns[1]!], groups: [[7]], past: { ...past, points: [{ time: 1_099_000, generation: 2, groups: [[7]] }] } };
    expect((shapeOf({ ...chart, by: "" }, all, 0) as Lines).lines).toEqual([{ name: "count", values: [7, 7] }]);
  });
});

test("brief numbers", () => {
  expect([0, 999, 1234.5, 12_345, -2_500_000, 0.1234, 3e20].map(brief)).toEqual(["0", "999", "1,234.5", "12.3k", "-2.5M", "0.1234", "3.0e+20"]);
});
