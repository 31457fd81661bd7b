// The state of the page, stored in the address after `#`, so that a link or a reload shows the same. Never a token.

import { readChart, writeChart, type Chosen } from "./chart";
import { emptyReview, type Change, type Review } from "./review";
import { readSqlChart, type SqlChart } from "./sql-chart";
import type { Filter, SortKey } from "./where";

export interface View {
  table: string;
  where: string;
  filters: Filter[];
  sort: SortKey[];
  // False: the default order of the table, which for journals is newest first.
  sorted: boolean;
  hidden: string[];
  chart: Chosen;
  // The id of the open row; empty if none is open.
  row: string;
}

// The statement in the SQL view.
export interface SqlText {
  text: string;
  live: boolean;
  chart: SqlChart | null;
}

// The visible part of the page: the review of the candidate, the SQL view, or otherwise the table.
export interface Place {
  view: View;
  sql: SqlText | null;
  review: Review | null;
}

const CHANGES: readonly Change[] = ["added", "removed", "changed"];

export const emptyView = (table: string): View => ({
  table,
  where: "",
  filters: [],
  sort: [],
  sorted: false,
  hidden: [],
  chart: null,
  row: "",
});

export function toHash({ view, sql, review }: Place): string {
  const state = new URLSearchParams();
  if (review) writeReview(state, review);
  if (view.table) state.set("table", view.table);
  if (view.where) state.set("where", view.where);
  if (view.filters.length) state.set("filters", JSON.stringify(view.filters));
  if (view.sorted) state.set("sort", JSON.stringify(view.sort.map((key) => [key.column, key.descending])));
  if (view.hidden.length) state.set("hidden", JSON.stringify(view.hidden));
  if (view.chart) state.set("chart", view.chart === "auto" ? view.chart : JSON.stringify(writeChart(view.chart)));
  if (view.row) state.set("row", view.row);
  if (sql) state.set("sql", sql.text);
  if (sql?.chart) state.set("plot", JSON.stringify(sql.chart));
  if (sql?.live) state.set("live", "1");
  return `#${state}`;
}

// Read an address; anybody can have written it, so invalid parts are ignored.
export function fromHash(hash: string): Place | null {
  const state = new URLSearchParams(hash.replace(/^#/, ""));
  const table = state.get("table") ?? "";
  const text = state.get("sql");
  const review = readReview(state);
  if (!table && text === null && !review) return null;
  return { view: viewOf(table, state), review, sql: text === null ? null : { text, live: state.get("live") === "1", chart: readSqlChart(parsed(state.get("plot"))) } };
}

function viewOf(table: string, state: URLSearchParams): View {
  const chart = state.get("chart");
  return {
    table,
    where: state.get("where") ?? "",
    filters: list(state.get("filters")).filter(isFilter),
    sort: sortOf(state.get("sort")),
    sorted: state.has("sort"),
    hidden: list(state.get("hidden")).filter((name) => typeof name === "string"),
    chart: chart === "auto" ? chart : readChart(parsed(chart)),
    row: state.get("row") ?? "",
  };
}

function writeReview(state: URLSearchParams, { table, where, change, sort }: Review): void {
  state.set("review", table);
  if (where) state.set("differs", where);
  if (change) state.set("change", change);
  if (sort.length) state.set("order", JSON.stringify(sort.map((key) => [key.column, key.descending])));
}

function readReview(state: URLSearchParams): Review | null {
  const table = state.get("review");
  if (table === null) return null;
  const change = CHANGES.find((name) => name === state.get("change")) ?? null;
  return { ...emptyReview(table), where: state.get("differs") ?? "", change, sort: sortOf(state.get("order")) };
}

function sortOf(text: string | null): SortKey[] {
  return list(text).filter(isSortKey).map(([column, descending]) => ({ column, descending }));
}

function list(text: string | null): unknown[] {
  const value = parsed(text);
  return Array.isArray(value) ? value : [];
}

function parsed(text: string | null): unknown {
  try {
    return JSON.parse(text ?? "null");
  } catch {
    return null;
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
