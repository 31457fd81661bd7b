import { describe, expect, test } from "vitest";
import { chartFor, sqlShape } from "../src/sql-chart";
import { MOST_STATEMENTS, readStatements, withStatement, type Statement } from "../src/sql-history";
import { MOST_TABS, readTabs, tabName } from "../src/sql-tabs";

const TEXT = { name: "kind", type: "string" };
const COUNT = { name: "n", type: "int64" };
const DAY = { name: "day", type: "date" };
const SUM = { name: "total", type: "decimal(10,2)" };

describe("the chart of a SELECT", () => {
  test("is bars of a name, a line of a time, and none without numbers", () => {
    expect(chartFor([TEXT, COUNT, SUM])).toEqual({ kind: "bars", by: "kind", value: "total" });
    expect(chartFor([DAY, COUNT])).toEqual({ kind: "line", by: "day", value: "n" });
    expect(chartFor([COUNT, SUM])).toEqual({ kind: "bars", by: "n", value: "total" });
    expect(chartFor([TEXT, DAY])).toBeNull();
    expect(chartFor([])).toBeNull();
  });

  test("keeps what was asked for where the columns allow it", () => {
    expect(chartFor([TEXT, COUNT, SUM], { kind: "bars", by: "kind", value: "n" })?.value).toBe("n");
    expect(chartFor([TEXT, COUNT], { kind: "line", by: "kind" })).toEqual({ kind: "line", by: "n", value: "n" });
    expect(chartFor([TEXT, SUM], { kind: "bars", by: "gone", value: "gone" })).toEqual({ kind: "bars", by: "kind", value: "total" });
  });

  test("draws what the rows say: decimals are texts, and a line goes from left to right", () => {
    const bars = sqlShape({ kind: "bars", by: "kind", value: "total" }, [TEXT, SUM], [["a", "1.50"], [null, null], ["", 2]]);
    expect(bars).toEqual({ kind: "bars", labels: ["a", "null", "(empty text)"], values: [1.5, null, 2] });
    const line = sqlShape({ kind: "line", by: "day", value: "n" }, [DAY, COUNT], [["2026-01-02", 2], [null, 9], ["2026-01-01", 1]]);
    expect(line).toMatchObject({ along: "time", times: [Date.parse("2026-01-01"), Date.parse("2026-01-02")], lines: [{ values: [1, 2] }] });
    expect(sqlShape({ kind: "line", by: "n", value: "n" }, [COUNT], [[2], [1]])).toMatchObject({ along: "number", times: [1, 2] });
    expect(sqlShape({ kind: "bars", by: "gone", value: "n" }, [COUNT], [])).toBeNull();
  });
});

describe("the history of statements", () => {
  const run = (text: string, at = 1): Statement => ({ text, at, rows: 1 });

  test("has each statement once, the newest first, and not more than it may", () => {
    const twice = withStatement(withStatement([run("a")], run("b")), run(" a ", 3));
    expect(twice).toEqual([run("a", 3), run("b")]);
    const many = Array.from({ length: MOST_STATEMENTS }, (_, i) => run(`s${i}`));
    expect(withStatement(many, run("new"))).toHaveLength(MOST_STATEMENTS);
  });

  test("leaves out what is no statement", () => {
    expect(readStatements([run("a"), null, { text: "", at: 1, rows: 1 }, { text: "b", at: "1", rows: null }, 7])).toEqual([run("a")]);
    expect(readStatements("a")).toEqual([]);
  });
});

describe("the tabs", () => {
  test("are called by their place and their first table", () => {
    expect(tabName("select * from final_ui f", 1)).toBe("1 final_ui");
    expect(tabName('select 1 from "a b"', 2)).toBe("2 a b");
    expect(tabName("select 1", 3)).toBe("3 SELECT");
    expect(tabName(" ", 4)).toBe("4 new");
  });

  test("come back from what was kept, whoever wrote it", () => {
    const tab = { text: "select 1", live: true, chart: null };
    expect(readTabs({ tabs: [tab, { text: 1 }, null], active: 0 })).toEqual({ tabs: [tab], active: 0 });
    expect(readTabs({ tabs: [tab], active: 7 }).active).toBe(0);
    expect(readTabs({ tabs: Array(40).fill(tab) }).tabs).toHaveLength(MOST_TABS);
    expect(readTabs("x")).toEqual({ tabs: [], active: 0 });
  });
});
