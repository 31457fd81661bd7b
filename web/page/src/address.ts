// What is looked at, kept in the address after `#`, so that a link or a reload shows the same. Never a token.

import type { Filter, SortKey } from "./where";

export interface View {
  table: string;
  where: string;
  filters: Filter[];
  sort: SortKey[];
  // False: the table's usual order, which for journals is newest first.
  sorted: boolean;
  hidden: string[];
}

export const emptyView = (table: string): View => ({
  table,
  where: "",
  filters: [],
  sort: [],
  sorted: false,
  hidden: [],
});

export function toHash(view: View): string {
  const state = new URLSearchParams();
  state.set("table", view.table);
  if (view.where) state.set("where", view.where);
  if (view.filters.length) state.set("filters", JSON.stringify(view.filters));
  if (view.sorted) state.set("sort", JSON.stringify(view.sort.map((key) => [key.column, key.descending])));
  if (view.hidden.length) state.set("hidden", JSON.stringify(view.hidden));
  return `#${state}`;
}

// Anything in an address can have been written by anybody: what is no view is left out.
export function fromHash(hash: string): View | null {
  const state = new URLSearchParams(hash.replace(/^#/, ""));
  const table = state.get("table");
  if (!table) return null;
  const sort = list(state.get("sort")).filter(isSortKey);
  return {
    table,
    where: state.get("where") ?? "",
    filters: list(state.get("filters")).filter(isFilter),
    sort: sort.map(([column, descending]) => ({ column, descending })),
    sorted: state.has("sort"),
    hidden: list(state.get("hidden")).filter((name) => typeof name === "string"),
  };
}

function list(text: string | null): unknown[] {
  try {
    const value: unknown = JSON.parse(text ?? "[]");
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}

function isSortKey(item: unknown): item is [string, boolean] {
  return Array.isArray(item) && typeof item[0] === "string" && typeof item[1] === "boolean";
}

function isFilter(item: unknown): item is Filter {
  if (typeof item !== "object" || item === null) return false;
  const { column, op, values } = item as Partial<Filter>;
  return (
    typeof column === "string" &&
    typeof op === "string" &&
    Array.isArray(values) &&
    values.every((value) => typeof value === "string")
  );
}
