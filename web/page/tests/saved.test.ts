import { describe, expect, test } from "vitest";
import { emptyView, type View } from "../src/address";
import { emptyChart } from "../src/chart";
import { fromSaved, fromSavedSql, isSaved, toSaved, toSavedSql } from "../src/saved";

const COLUMNS = ["userId", "age", "email", "odd, name"];

describe("a saved view", () => {
  test("keeps what is searched for in all texts", () => {
    const view: View = { ...emptyView("t"), filters: [{ column: "*", op: "icontains", values: ["ann"] }] };
    const saved = toSaved("found", view, COLUMNS);
    expect(saved.where).toEqual([{ column: "*", op: "icontains", value: "ann" }]);
    expect(fromSaved(saved, COLUMNS)).toEqual(view);
  });

  test("can be a SELECT with its chart", () => {
    const sql = { text: "select 1 as n", live: false, chart: { kind: "bars", by: "n", value: "n" } } as const;
    const saved = toSavedSql("one", sql);
    expect(isSaved(JSON.parse(JSON.stringify(saved)))).toBe(true);
    expect(fromSavedSql(saved)).toEqual(sql);
    expect(fromSavedSql(toSaved("t", emptyView("t"), COLUMNS))).toBeNull();
  });

  test("comes back as it was", () => {
    const view: View = {
      table: "final_ui",
      where: "age >= 30, name contains an",
      filters: [
        { column: "age", op: "between", values: ["1", "2"] },
        { column: "accountType", op: "in", values: ["gold, silver"] },
        { column: "ok", op: "true", values: [] },
        { column: "email", op: "is null", values: [] },
        { column: "name", op: "icontains", values: ["An "] },
      ],
      sort: [
        { column: "odd, name", descending: true },
        { column: "age", descending: false },
      ],
      sorted: true,
      hidden: ["email"],
      chart: { ...emptyChart("line", "accountType"), minutes: 30 },
      row: "",
    };
    const saved = toSaved("mine", view, COLUMNS);
    expect(saved).toMatchObject({ name: "mine", columns: ["userId", "age", "odd, name"], sort: ['-"odd, name"', "age"] });
    expect(isSaved(JSON.parse(JSON.stringify(saved)))).toBe(true);
    expect(fromSaved(JSON.parse(JSON.stringify(saved)), COLUMNS)).toEqual(view);
    expect(fromSaved(toSaved("x", emptyView("t"), []), [])).toEqual(emptyView("t"));
  });

  test("of a program is shown as far as the page can", () => {
    const saved = {
      name: "api",
      table: "t",
      where: ["age>=30", { column: "kind", op: "in", value: ["a,b", "c"] }, { column: "age", op: "<=", value: 60 }, { column: "x y", op: "=", value: "" }],
      sort: "-age,+name",
      chart: { kind: "pie" },
    };
    expect(fromSaved(saved, [])).toEqual({
      ...emptyView("t"),
      where: 'age>=30, kind in ("a,b", "c"), "x y" = ""',
      filters: [{ column: "age", op: "<=", values: ["60"] }],
      sort: [
        { column: "age", descending: true },
        { column: "name", descending: false },
      ],
      sorted: true,
    });
  });

  test.each([null, 7, {}, { name: "a" }, { name: "a", table: 1 }, { name: "a", table: "t", where: [null] }, { name: "a", table: "t", sort: [1] }])(
    "is not %j",
    (found) => {
      expect(isSaved(found)).toBe(false);
    },
  );
});
