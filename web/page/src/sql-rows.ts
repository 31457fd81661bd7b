// Conversion of the rows of a SELECT to rows of the grid, sorted if the user chose an order. Pure.

import type { SqlInfo } from "@turnout/client";
import type { Rows, Row } from "./rows";
import type { SortKey } from "./where";

export function sqlRows(query: number, found: readonly Record<string, unknown>[], info: SqlInfo, sort: readonly SortKey[]): Rows {
  const { columns, generation } = info;
  const places = found.map((_, i) => i);
  const rows = found.map((row) => columns.map(({ name }) => row[name]));
  const order = sorted(places, rows, sort.map(({ column, descending }) => [columns.findIndex(({ name }) => name === column), descending]));
  return {
    query,
    table: "sql",
    generation,
    version: 0,
    total: rows.length,
    offset: 0,
    columns,
    ids: order.map(String),
    rows: order.map((place) => rows[place]!),
  };
}

// Sort the positions; nulls are last, as on the server.
function sorted(places: number[], rows: readonly Row[], keys: readonly (readonly [number, boolean])[]): number[] {
  const known = keys.filter(([column]) => column >= 0);
  if (!known.length) return places;
  return places.sort((one, other) => {
    for (const [column, descending] of known) {
      const [a, b] = [rows[one]![column], rows[other]![column]];
      if (a === null || b === null) {
        if (a !== b) return a === null ? 1 : -1;
        continue;
      }
      const before = compared(a, b);
      if (before !== 0) return descending ? -before : before;
    }
    return one - other;
  });
}

function compared(one: unknown, other: unknown): number {
  if (typeof one === "number" && typeof other === "number") return one - other;
  const [a, b] = [one, other].map((value) => (typeof value === "object" ? JSON.stringify(value) : String(value)));
  return a! < b! ? -1 : a! > b! ? 1 : 0;
}
