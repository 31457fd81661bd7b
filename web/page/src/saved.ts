// Conversion of views to the format in which they are saved, and back. Pure.

import type { SavedView } from "@turnout/client";
import { emptyView, type SqlText, type View } from "./address";
import { readChart, writeChart } from "./chart";
import { quoted, unquoted } from "./names";
import { readSqlChart } from "./sql-chart";
import { choicesFor, listOf, sortText, whereOf, type Filter, type SortKey, type Term } from "./where";

// Convert a view for saving; `columns` are all known column names of the table.
export function toSaved(name: string, view: View, columns: readonly string[]): SavedView {
  const { table, where, filters, sort, sorted, hidden, chart } = view;
  const shown = columns.filter((column) => !hidden.includes(column));
  return {
    name,
    table,
    where: whereOf(where, filters),
    sort: sorted ? sortText(sort) : [],
    columns: hidden.length && shown.length ? shown : null,
    chart: chart && chart !== "auto" ? writeChart(chart) : null,
  };
}

export function toSavedSql(name: string, { text, chart }: SqlText): SavedView {
  return { name, table: "", sql: text, chart: chart && { ...chart } };
}

// Return the saved statement; null if a view of a table was saved.
export function fromSavedSql({ sql, chart }: SavedView): SqlText | null {
  return sql ? { text: sql, live: false, chart: readSqlChart(chart) } : null;
}

// Convert a saved view. Programs can save views too, so texts and terms of any form are accepted.
export function fromSaved(saved: SavedView, columns: readonly string[]): View {
  const given = saved.where ?? [];
  const parts = Array.isArray(given) ? given : [given];
  const texts: string[] = [];
  const filters: Filter[] = [];
  for (const part of parts) {
    const filter = typeof part === "string" ? null : filterOf(part, filters);
    if (typeof part === "string") texts.push(part.trim());
    else if (filter) filters.push(filter);
    else texts.push(textOf(part));
  }
  const sort = sortKeys(saved.sort ?? []);
  const shown = saved.columns ?? [];
  return {
    ...emptyView(saved.table),
    where: texts.filter(Boolean).join(", "),
    filters,
    sort,
    sorted: sort.length > 0,
    hidden: shown.length ? columns.filter((column) => !shown.includes(column)) : [],
    chart: readChart(saved.chart),
  };
}

// Convert a term to a filter of a column; null if there is no such filter. Two terms become one `between`.
function filterOf({ column, op, value }: Term, before: Filter[]): Filter | null {
  if (op === "is null" || op === "is not null") return { column, op, values: [] };
  if (op === "=" && typeof value === "boolean") return { column, op: String(value), values: [] };
  if (op === "in" || op === "not in") {
    const items = Array.isArray(value) ? value.map(String) : [];
    const text = items.join(", ");
    return items.length && JSON.stringify(listOf(text)) === JSON.stringify(items) ? { column, op, values: [text] } : null;
  }
  if (typeof value !== "string" && typeof value !== "number") return null;
  const last = before.at(-1);
  if (op === "<=" && last?.column === column && last.op === ">=") {
    before.pop();
    return { column, op: "between", values: [last.values[0] ?? "", String(value)] };
  }
  const known = [...choicesFor("string"), ...choicesFor("int64")].some((choice) => choice.op === op);
  return known && String(value) !== "" ? { column, op, values: [String(value)] } : null;
}

function textOf({ column, op, value }: Term): string {
  const text = (item: unknown): string => (typeof item === "string" ? `"${item.replace(/["\\]/g, "\\$&")}"` : String(item));
  const values = Array.isArray(value) ? `(${value.map(text).join(", ")})` : value === undefined ? "" : text(value);
  return `${quoted(column)} ${op} ${values}`.trim();
}

const KEY = /\s*([+-]?)("(?:[^"\\]|\\.)*"|[^,]+?)\s*(?:,|$)/gsy;

function sortKeys(sort: string | string[]): SortKey[] {
  const texts = Array.isArray(sort) ? sort : [sort];
  return texts.flatMap((text) =>
    [...text.matchAll(KEY)].map((found) => ({ column: unquoted(found[2]!), descending: found[1] === "-" })),
  );
}

// Validate a view from this browser's storage, which an older page or another program may have written.
export function isSaved(found: unknown): found is SavedView {
  if (typeof found !== "object" || found === null) return false;
  const { name, table, sql, where, sort, columns } = found as Partial<SavedView>;
  const texts = (value: unknown): boolean => Array.isArray(value) && value.every((item) => typeof item === "string");
  const terms = Array.isArray(where) && where.every((term) => typeof term === "string" || isTerm(term));
  return (
    typeof name === "string" &&
    typeof table === "string" &&
    (sql === undefined || sql === null || typeof sql === "string") &&
    (where === undefined || typeof where === "string" || terms) &&
    (sort === undefined || typeof sort === "string" || texts(sort)) &&
    (columns === undefined || columns === null || texts(columns))
  );
}

const isTerm = (term: unknown): boolean => {
  const { column, op } = (term ?? {}) as Partial<Term>;
  return typeof column === "string" && typeof op === "string";
};
