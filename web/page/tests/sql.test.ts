import { describe, expect, test } from "vitest";
import { sqlRows } from "../src/sql-rows";
import { firstSql, namedTables, sqlName, wordsFor } from "../src/sql-words";

const TABLES = [
  { name: "users_ui", columns: [{ name: "userId", type: "string" }, { name: "odd name", type: "string" }] },
  { name: "accounts_ui", columns: [{ name: "userId", type: "string" }, { name: "balance", type: "double" }] },
  { name: "a b", columns: [] },
];
const labels = (text: string, before = text): string[] => wordsFor(text, before, TABLES).map(({ label }) => label);

describe("completion", () => {
  test("offers tables only after from and join", () => {
    const names = TABLES.map(({ name }) => name);
    expect(labels("select * from ")).toEqual(names);
    expect(labels("select * from users_ui u JOIN ")).toEqual(names);
    expect(labels("select * from users_ui, ")).toEqual(names);
  });

  test("offers the columns of the tables that the text names, wherever it does", () => {
    const found = wordsFor("select  from users_ui join accounts_ui", "select ", TABLES);
    expect(found.find(({ label }) => label === "userId")).toMatchObject({ detail: "string · users_ui, accounts_ui" });
    expect(found.find(({ label }) => label === "odd name")).toMatchObject({ apply: '"odd name"' });
    expect(labels("select ")).not.toContain("balance");
    expect(labels("select ")).toEqual(expect.arrayContaining(["users_ui", "group", "count"]));
  });

  test("puts columns before tables, and tables before words", () => {
    const boost = (label: string) => wordsFor("select x from users_ui", "select ", TABLES).find((word) => word.label === label)!.boost;
    expect(boost("userId")).toBeGreaterThan(boost("users_ui"));
    expect(boost("users_ui")).toBeGreaterThan(boost("where"));
  });

  test("knows names in quotes and in any case", () => {
    expect(namedTables('select * from "a b", USERS_UI', TABLES).map(({ name }) => name)).toEqual(["users_ui", "a b"]);
    expect(sqlName('say "hi"')).toBe('"say ""hi"""');
  });

  test("begins with the table that was looked at", () => {
    expect(firstSql(TABLES, "a b")).toBe('select *\nfrom "a b"\nlimit 100');
    expect(firstSql(TABLES, "gone")).toContain("users_ui");
  });
});

describe("rows of a SELECT", () => {
  const columns = [{ name: "n", type: "int64" }, { name: "t", type: "string" }];
  const info = { generation: 3, columns, complete: true, swapped: false, options: { sql: "" } };
  const found = [{ n: 2, t: "b" }, { n: null, t: "a" }, { n: 10, t: "b" }];

  test("are as they came, until somebody sorts them; nulls are last", () => {
    expect(sqlRows(1, found, info, []).rows).toEqual([[2, "b"], [null, "a"], [10, "b"]]);
    expect(sqlRows(1, found, info, [{ column: "n", descending: true }])).toMatchObject({ ids: ["2", "0", "1"], total: 3, generation: 3 });
    expect(sqlRows(1, found, info, [{ column: "t", descending: false }, { column: "n", descending: true }]).ids).toEqual(["1", "2", "0"]);
    expect(sqlRows(1, found, info, [{ column: "gone", descending: true }]).ids).toEqual(["0", "1", "2"]);
  });
});
