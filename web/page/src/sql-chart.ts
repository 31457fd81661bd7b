// The chart of the rows of a SELECT: the choice of columns, and the shape to draw. Pure.

import { isNumeric, isTime } from "./column-types";
import { valueText, type Value } from "./format";
import type { Column } from "./rows";
import type { Bars, Lines } from "./shape";

export interface SqlChart {
  kind: "bars" | "line";
  by: string;
  value: string;
}

export const SQL_KINDS: readonly [SqlChart["kind"], string][] = [
  ["bars", "Bars"],
  ["line", "Line"],
];
export const MOST_SQL_BARS = 50;

// Return the columns for the x axis: a line needs numbers or times.
export function alongColumns(kind: SqlChart["kind"], columns: readonly Column[]): Column[] {
  return kind === "bars" ? [...columns] : columns.filter(({ type }) => isNumeric(type) || isTime(type));
}

export const valueColumns = (columns: readonly Column[]): Column[] => columns.filter(({ type }) => isNumeric(type));

// Return the default chart of a result; null if no column is a number. Options of `asked` are kept if possible.
export function chartFor(columns: readonly Column[], asked: Partial<SqlChart> = {}): SqlChart | null {
  const values = valueColumns(columns);
  const dated = columns.find(({ type }) => isTime(type));
  const kind = asked.kind ?? (dated ? "line" : "bars");
  const along = alongColumns(kind, columns);
  const named = (list: readonly Column[], name: string | undefined) => list.find((column) => column.name === name);
  // In most SELECTs names and times come first, and the value last.
  const by = named(along, asked.by) ?? dated ?? along.find(({ type }) => !isNumeric(type)) ?? along[0];
  const value = named(values, asked.value) ?? values.findLast(({ name }) => name !== by?.name) ?? values[0];
  if (!value || !by) return kind === "line" ? chartFor(columns, { ...asked, kind: "bars" }) : null;
  return { kind, by: by.name, value: value.name };
}

type Cells = readonly (readonly unknown[])[];

export function sqlShape({ kind, by, value }: SqlChart, columns: readonly Column[], rows: Cells): Bars | Lines | null {
  const place = columns.findIndex(({ name }) => name === by);
  const of = columns.findIndex(({ name }) => name === value);
  const type = columns[place]?.type;
  if (type === undefined || of < 0) return null;
  if (kind === "bars") {
    const first = rows.slice(0, MOST_SQL_BARS);
    return { kind, labels: first.map((row) => labelOf(row[place], type)), values: first.map((row) => numberOf(row[of])) };
  }
  const time = isTime(type);
  const points = rows
    .map((row) => [time ? momentOf(row[place]) : numberOf(row[place]), numberOf(row[of])] as const)
    .filter((point): point is readonly [number, number | null] => point[0] !== null)
    .sort(([one], [other]) => one - other);
  const times = points.map(([at]) => at);
  const lines = [{ name: value, values: points.map(([, number]) => number) }];
  return { kind, times, from: times[0] ?? 0, lines, colours: [0], swaps: [], along: time ? "time" : "number" };
}

export function sqlTitle({ by, value }: SqlChart): string {
  return `${value} by ${by}`;
}

function labelOf(value: unknown, type: string): string {
  if (value === null) return "null";
  return value === "" ? "(empty text)" : valueText(value as Value, type);
}

function numberOf(value: unknown): number | null {
  const found = value === null || value === undefined || value === "" ? NaN : Number(value);
  return Number.isFinite(found) ? found : null;
}

function momentOf(value: unknown): number | null {
  const found = Date.parse(String(value));
  return Number.isNaN(found) ? null : found;
}

// Validate a chart from an address or a saved statement; anybody can have written it.
export function readSqlChart(found: unknown): SqlChart | null {
  const { kind, by, value } = (found ?? {}) as Partial<SqlChart>;
  if (!SQL_KINDS.some(([name]) => name === kind) || typeof by !== "string" || typeof value !== "string") return null;
  return { kind: kind!, by, value };
}
