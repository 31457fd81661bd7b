import "@angular/compiler";
import { columnDefs } from "@turnout/angular/ag-grid";
import { expect, test } from "vitest";
import { sortOf, termsOf } from "../ag-grid/src/filters";
import { clamp, covers, FIRST_SPAN, shouldMove, spanFor } from "../ag-grid/src/spans";

const target = (type = "string") => (column: string) => ({ column, type });

test.each([
  [{ filterType: "text", type: "contains", filter: "bo" }, [{ op: "icontains", value: "bo" }]],
  [{ filterType: "text", type: "startsWith", filter: "bo" }, [{ op: "starts with", value: "bo" }]],
  [{ filterType: "number", type: "equals", filter: 0 }, [{ op: "=", value: 0 }]],
  [{ filterType: "number", type: "greaterThanOrEqual", filter: 30 }, [{ op: ">=", value: 30 }]],
  [{ filterType: "number", type: "inRange", filter: 1, filterTo: 3 }, [{ op: ">=", value: 1 }, { op: "<=", value: 3 }]],
  [{ filterType: "text", type: "blank" }, [{ op: "is null" }]],
  [{ filterType: "date", type: "notEqual", dateFrom: "2026-01-31 00:00:00", dateTo: null }, [{ op: "!=", value: "2026-01-31" }]],
])("filter %j", (model, terms) => {
  expect(termsOf({ age: model }, target("date"))).toEqual(terms.map((term) => ({ column: "age", ...term })));
});

test.each([
  ["equals", [{ op: ">=", value: "2026-01-31" }, { op: "<", value: "2026-02-01" }]],
  ["greaterThan", [{ op: ">=", value: "2026-02-01" }]],
  ["lessThan", [{ op: "<", value: "2026-01-31" }]],
  ["inRange", [{ op: ">=", value: "2026-01-31" }, { op: "<", value: "2026-03-01" }]],
])("filter of a timestamp by day: %s", (type, terms) => {
  const model = { filterType: "date", type, dateFrom: "2026-01-31 00:00:00", dateTo: "2026-02-28 00:00:00" };
  expect(termsOf({ ts: model }, target("timestamp"))).toEqual(terms.map((term) => ({ column: "ts", ...term })));
});

test("conditions of a column are joined by AND; what the server does not have is an error of the one shape", () => {
  const conditions = [
    { filterType: "number", type: "greaterThan", filter: 1 },
    { filterType: "number", type: "lessThan", filter: 9 },
  ];
  const both = { filterType: "number", operator: "AND", conditions };
  expect(termsOf({ age: both }, target("int64")).map(({ op }) => op)).toEqual([">", "<"]);
  const wrong = { name: "TurnoutError", code: "bad_filter", hint: expect.stringContaining("AND") };
  expect(() => termsOf({ age: { ...both, operator: "OR" } }, target())).toThrow(expect.objectContaining(wrong));
  expect(() => termsOf({ name: { filterType: "text", type: "notContains", filter: "x" } }, target())).toThrow(expect.objectContaining(wrong));
});

test("order is that of the grid", () => {
  const model = [
    { colId: "age", sort: "desc" as const },
    { colId: "name", sort: "asc" as const },
  ];
  expect(sortOf(model, (id) => id)).toEqual(["-age", "name"]);
});

test("columns have the filters of their type", () => {
  const columns = columnDefs([
    { name: "name", type: "string" },
    { name: "balance", type: "decimal(9,2)" },
    { name: "ts", type: "timestamp" },
  ]);
  expect(columns.map(({ field, filter, type }) => [field, filter, type])).toEqual([
    ["name", "agTextColumnFilter", undefined],
    ["balance", "agNumberColumnFilter", "rightAligned"],
    ["ts", "agDateColumnFilter", undefined],
  ]);
});

test("wherever somebody scrolls, the span covers the screen and is asked for before its edge is seen", () => {
  const total = 20_000;
  let span = FIRST_SPAN;
  for (let first = 0; first < total - 40; first += 19) {
    const screen = { first, last: first + 39 };
    if (shouldMove(span, screen, total)) span = spanFor(screen);
    expect(covers(span.offset, span.limit, screen)).toBe(true);
    expect(span.limit).toBeLessThanOrEqual(600);
    expect(shouldMove(span, screen, total)).toBe(false);
  }
});

test("a table that becomes shorter moves the screen up", () => {
  expect(clamp({ first: 500, last: 539 }, 100)).toEqual({ first: 60, last: 99 });
  expect(clamp({ first: 500, last: 539 }, 5)).toEqual({ first: 0, last: 4 });
  expect(clamp({ first: 0, last: 39 }, 0)).toEqual({ first: 0, last: 0 });
});
