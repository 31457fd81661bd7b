// Conversion of a column's filter to terms of `where` and to text. Pure.

import { fromField, localText } from "./clock";
import { quoted } from "./names";

export interface Term {
  column: string;
  op: string;
  value?: unknown;
}

export interface Choice {
  op: string;
  label: string;
  // The number of values; "list" means any number, separated by lines or commas.
  values: 0 | 1 | 2 | "list";
}

export interface Filter {
  column: string;
  op: string;
  values: string[];
}

// The column name that stands for every text column; the search box is a filter of it.
export const ANY_TEXT = "*";

const NULLS: Choice[] = [
  { op: "is null", label: "is null", values: 0 },
  { op: "is not null", label: "is not null", values: 0 },
];
const LISTS: Choice[] = [
  { op: "in", label: "is one of", values: "list" },
  { op: "not in", label: "is none of", values: "list" },
];
const TEXT: Choice[] = [
  { op: "icontains", label: "contains", values: 1 },
  { op: "contains", label: "contains, same case", values: 1 },
  { op: "=", label: "equals", values: 1 },
  { op: "!=", label: "is not", values: 1 },
  { op: "starts with", label: "starts with", values: 1 },
  { op: "ends with", label: "ends with", values: 1 },
  ...LISTS,
  ...NULLS,
];
const ORDERED: Choice[] = [
  { op: "=", label: "equals", values: 1 },
  { op: "!=", label: "is not", values: 1 },
  { op: ">=", label: "at least", values: 1 },
  { op: "<=", label: "at most", values: 1 },
  { op: ">", label: "more than", values: 1 },
  { op: "<", label: "less than", values: 1 },
  { op: "between", label: "between", values: 2 },
  ...LISTS,
  ...NULLS,
];
const MOMENT_LABELS: Record<string, string> = { ">=": "from", "<=": "until", ">": "after", "<": "before" };
const BOOLEAN: Choice[] = [
  { op: "true", label: "is true", values: 0 },
  { op: "false", label: "is false", values: 0 },
  ...NULLS,
];

export function choicesFor(type: string): Choice[] {
  if (type === "string") return TEXT;
  if (type === "boolean") return BOOLEAN;
  if (type === "date" || type === "timestamp") {
    return ORDERED.map((choice) => ({ ...choice, label: MOMENT_LABELS[choice.op] ?? choice.label }));
  }
  return ORDERED;
}

// Return the terms of a filter; none while it is incomplete, so that half-typed filters hide nothing. Values stay
// texts: the server converts them to the column's type, so that large numbers keep all digits.
export function termsOf({ column, op, values }: Filter): Term[] {
  if (op === "is null" || op === "is not null") return [{ column, op }];
  if (op === "true" || op === "false") return [{ column, op: "=", value: op === "true" }];
  if (op === "in" || op === "not in") {
    const list = listOf(values[0] ?? "");
    return list.length ? [{ column, op, value: list }] : [];
  }
  if (op === "between") {
    const [low = "", high = ""] = values.map((value) => value.trim());
    const terms: Term[] = [];
    if (low) terms.push({ column, op: ">=", value: low });
    if (high) terms.push({ column, op: "<=", value: high });
    return terms;
  }
  const value = values[0] ?? "";
  return value === "" ? [] : [{ column, op, value }];
}

export function listOf(text: string): string[] {
  const items = text.split(/[,\n]/).map((item) => item.trim());
  return [...new Set(items.filter((item) => item !== ""))];
}

// Convert a local time of the browser to UTC for the server; a date is unchanged.
export function momentText(text: string, type: string): string {
  return type === "timestamp" && /^\d{4}-\d\d-\d\dT/.test(text) ? fromField(text) : text;
}

// Return the complete `where`: the typed condition and the filters of the columns.
export function whereOf(text: string, filters: readonly Filter[]): (string | Term)[] {
  const typed = text.trim();
  return [...(typed ? [typed] : []), ...filters.flatMap(termsOf)];
}

export function describe({ column: name, op, values: given }: Filter, type: string): string {
  const column = name === ANY_TEXT ? "any text" : name;
  const filter = { column, op, values: type === "timestamp" ? given.map((value) => value && localText(value)) : given };
  const choice = choicesFor(type).find(({ op }) => op === filter.op);
  const label = choice?.label ?? filter.op;
  const values = filter.values.filter((value) => value !== "");
  if (!choice || choice.values === 0) return `${filter.column} ${label}`;
  if (filter.op === "between") {
    const [low = "", high = ""] = filter.values;
    if (!low) return `${filter.column} ≤ ${high}`;
    if (!high) return `${filter.column} ≥ ${low}`;
    return `${filter.column} ${low} – ${high}`;
  }
  const symbol = /^[<>=!]/.test(filter.op) ? ({ "!=": "≠", ">=": "≥", "<=": "≤" }[filter.op] ?? filter.op) : label;
  return `${filter.column} ${symbol} ${values.join(", ")}`;
}

// -- order

export interface SortKey {
  column: string;
  descending: boolean;
}

// Return the next order of a column: ascending, descending, none. `add` keeps the other columns.
export function nextSort(sort: readonly SortKey[], column: string, add: boolean): SortKey[] {
  const now = sort.find((key) => key.column === column);
  const next = !now ? { column, descending: false } : now.descending ? null : { column, descending: true };
  if (!add) return next ? [next] : [];
  if (!now) return [...sort, { column, descending: false }];
  return sort.flatMap((key) => (key.column === column ? (next ? [next] : []) : [key]));
}

export function sortText(sort: readonly SortKey[]): string[] {
  return sort.map(({ column, descending }) => `${descending ? "-" : ""}${quoted(column)}`);
}
