import { describe as group, expect, test } from "vitest";
import { choicesFor, describe, listOf, momentText, nextSort, sortText, termsOf, whereOf } from "../src/where";

const filter = (op: string, ...values: string[]) => ({ column: "age", op, values });

group("termsOf", () => {
  test("keeps values as texts, so that large numbers lose no digit", () => {
    expect(termsOf(filter(">=", "9007199254740993"))).toEqual([{ column: "age", op: ">=", value: "9007199254740993" }]);
  });

  test("makes a range of two terms, and of one where an end is open", () => {
    expect(termsOf(filter("between", "10", "20"))).toEqual([
      { column: "age", op: ">=", value: "10" },
      { column: "age", op: "<=", value: "20" },
    ]);
    expect(termsOf(filter("between", "", " 20 "))).toEqual([{ column: "age", op: "<=", value: "20" }]);
    expect(termsOf(filter("between", "", ""))).toEqual([]);
  });

  test("takes no value for nulls, and a boolean for true and false", () => {
    expect(termsOf(filter("is null", "ignored"))).toEqual([{ column: "age", op: "is null" }]);
    expect(termsOf(filter("false"))).toEqual([{ column: "age", op: "=", value: false }]);
  });

  test("gives nothing for a filter without a value", () => {
    expect(termsOf(filter("icontains", ""))).toEqual([]);
    expect(termsOf(filter("in", " , \n"))).toEqual([]);
  });

  test("keeps blanks in a text that is looked for", () => {
    expect(termsOf(filter("icontains", " a"))).toEqual([{ column: "age", op: "icontains", value: " a" }]);
  });

  test("takes a list by commas and lines, each value once", () => {
    expect(listOf("gold, silver\ngold,,")).toEqual(["gold", "silver"]);
  });
});

test("whereOf puts what was typed beside the filters of columns", () => {
  expect(whereOf("  name = x ", [filter("=", "1")])).toEqual(["name = x", { column: "age", op: "=", value: "1" }]);
  expect(whereOf("  ", [])).toEqual([]);
});

test("every choice of every type makes a term that the server knows", () => {
  const known = ["=", "!=", "<", "<=", ">", ">=", "contains", "icontains", "starts with", "ends with", "in", "not in", "is null", "is not null"];
  for (const type of ["string", "boolean", "int64", "double", "decimal(9,2)", "date", "timestamp"]) {
    for (const { op } of choicesFor(type)) {
      const terms = termsOf({ column: "c", op, values: ["1", "2"] });
      expect(terms.length).toBeGreaterThan(0);
      for (const term of terms) expect(known).toContain(term.op);
    }
  }
});

test("describe says a filter in words", () => {
  expect(describe(filter(">=", "30"), "int64")).toBe("age ≥ 30");
  expect(describe(filter("between", "30", ""), "int64")).toBe("age ≥ 30");
  expect(describe(filter("between", "30", "40"), "int64")).toBe("age 30 – 40");
  expect(describe(filter("is null"), "int64")).toBe("age is null");
  expect(describe({ column: "name", op: "icontains", values: ["an"] }, "string")).toBe("name contains an");
});

test("momentText reads a moment without a zone as one of this browser's clock", () => {
  expect(momentText("2026-01-31T12:00", "timestamp")).toBe(new Date(2026, 0, 31, 12).toISOString().replace(".000", ""));
  expect(momentText("2026-01-31T12:00:00Z", "timestamp")).toBe("2026-01-31T12:00:00Z");
  expect(momentText("2026-01-31", "date")).toBe("2026-01-31");
  expect(momentText("T12", "string")).toBe("T12");
});

group("nextSort", () => {
  test("goes up, down, and away", () => {
    const up = nextSort([], "age", false);
    const down = nextSort(up, "age", false);
    expect([up, down, nextSort(down, "age", false)]).toEqual([
      [{ column: "age", descending: false }],
      [{ column: "age", descending: true }],
      [],
    ]);
  });

  test("replaces other columns, or adds to them", () => {
    const age = nextSort([], "age", false);
    expect(nextSort(age, "name", false).map((key) => key.column)).toEqual(["name"]);
    const both = nextSort(age, "name", true);
    expect(both.map((key) => key.column)).toEqual(["age", "name"]);
    expect(sortText(nextSort(both, "age", true))).toEqual(["-age", "name"]);
  });

  test("quotes names that are no words", () => {
    expect(sortText([{ column: 'a, "b"', descending: true }])).toEqual(['-"a, \\"b\\""']);
  });
});

test("a search is told as one", () => {
  expect(describe({ column: "*", op: "icontains", values: ["ann"] }, "string")).toBe("any text contains ann");
});
