// The definition of a chart: its kind, its grouping column and its value; the possible choices, and the summary to
// request from the server. Pure.

import type { SummaryOptions } from "@turnout/client";
import { isNumeric, isTime } from "./column-types";
import { quoted } from "./names";
import type { Column } from "./rows";

export type Kind = "bars" | "histogram" | "line";

export interface Chart {
  kind: Kind;
  // Empty: all rows are one group, which is useful only for a line.
  by: string;
  // The width of a histogram's bins: `10`, or `1m` for a time. Empty: not computed yet.
  width: string;
  // `count`, or a function of the column `of`.
  value: string;
  of: string;
  // The time range of a line.
  minutes: number;
}

// "auto": the default chart of the table, chosen once its columns are known.
export type Chosen = Chart | "auto" | null;

export const KINDS: readonly [Kind, string][] = [
  ["bars", "Bars"],
  ["histogram", "Histogram"],
  ["line", "Over time"],
];
export const MINUTES = [1, 5, 10, 30, 60];
export const MOST_BARS = 20;
export const MOST_BINS = 500;
export const MOST_LINES = 8;
// The server stores at most this number of groups for each point in time.
const LINE_GROUPS = 50;
// The time of a row's Kafka record: not a column, but allowed for grouping.
export const RECORD_TIME = "_time";

const OF_NUMBERS = ["sum", "avg", "min", "max", "p50", "p95", "p99"];
export const VALUES: readonly [string, string][] = [
  ["count", "rows"],
  ["sum", "sum of"],
  ["avg", "average of"],
  ["min", "minimum of"],
  ["max", "maximum of"],
  ["p50", "median of"],
  ["p95", "95th percentile of"],
  ["p99", "99th percentile of"],
  ["count_distinct", "different values of"],
];

export const emptyChart = (kind: Kind, by = ""): Chart => ({ kind, by, width: "", value: "count", of: "", minutes: 10 });

const hasBins = (type: string): boolean => isNumeric(type) || isTime(type);

// Return the columns to group by; `dated`: the rows have record times.
export function groupable(kind: Kind, columns: readonly Column[], dated: boolean): Column[] {
  if (kind !== "histogram") return [...columns];
  const times = dated && !columns.some(({ name }) => name === RECORD_TIME) ? [{ name: RECORD_TIME, type: "timestamp" }] : [];
  return [...columns.filter(({ type }) => hasBins(type)), ...times];
}

// Return the columns that a function can be applied to.
export function countable(value: string, columns: readonly Column[]): Column[] {
  if (value === "count") return [];
  return OF_NUMBERS.includes(value) ? columns.filter(({ type }) => isNumeric(type)) : [...columns];
}

export function valueName({ value, of }: Chart): string {
  return value === "count" ? "count" : `${value}(${of})`;
}

// Return the title, such as "number of rows by accountType".
export function titleOf(chart: Chart): string {
  const value = VALUES.find(([name]) => name === chart.value)?.[1] ?? chart.value;
  const what = chart.value === "count" ? "number of rows" : `${value} ${chart.of}`;
  const by = chart.by === RECORD_TIME ? "time of the record" : chart.by;
  const bins = chart.kind === "histogram" && chart.width ? ` in steps of ${chart.width}` : "";
  const time = chart.kind === "line" ? `, last ${chart.minutes === 1 ? "minute" : `${chart.minutes} minutes`}` : "";
  return `${what}${by ? ` by ${by}` : ""}${bins}${time}`;
}

export function summaryOf(chart: Chart): Omit<SummaryOptions, "table" | "where"> {
  const values = [chart.value === "count" ? "count" : `${chart.value}(${quoted(chart.of)})`];
  const sort = [`-${quoted(valueName(chart))}`];
  const by = chart.by ? [quoted(chart.by)] : [];
  if (chart.kind === "bars") return { by, values, sort, limit: MOST_BARS };
  if (chart.kind === "line") return { by, values, sort, limit: LINE_GROUPS, history: chart.minutes * 60 };
  return { by: [`${quoted(chart.by)}:${chart.width}`], values, limit: MOST_BINS };
}

// Change the kind of a chart, and keep its grouping column if possible.
export function changeKind(chart: Chart, kind: Kind, columns: readonly Column[], dated: boolean, usual: string): Chart {
  if (kind !== "histogram") {
    const by = kind === "bars" && !columns.some(({ name }) => name === chart.by) ? usual : chart.by;
    const binned = chart.kind === "histogram";
    return { ...chart, kind, by: binned ? usual : by, width: "" };
  }
  const choices = groupable(kind, columns, dated);
  const stays = choices.find(({ name }) => name === chart.by);
  const number = choices.find(({ name, type }) => isNumeric(type) && !/id$/i.test(name));
  return { ...chart, kind, by: (stays ?? number ?? choices[0])?.name ?? "", width: "" };
}

// Return the columns whose number of distinct values determines the default chart.
export function candidates(columns: readonly Column[]): string[] {
  const texts = columns.filter(({ type }) => type === "string" || type === "boolean");
  return texts.slice(0, 12).map(({ name }) => name);
}

const FEW = 30;

// Return the default chart: bars by the text column with the fewest values, else a histogram, else a line of counts.
export function usualChart(columns: readonly Column[], distinct: ReadonlyMap<string, number>): Chart {
  const few = [...distinct].filter(([, values]) => values >= 2 && values <= FEW).sort((one, other) => one[1] - other[1]);
  const best = few[0]?.[0];
  if (best !== undefined) return emptyChart("bars", best);
  const number = columns.find(({ name, type }) => isNumeric(type) && !/id$/i.test(name));
  return number ? emptyChart("histogram", number.name) : emptyChart("line");
}

// Validate a chart from an address or a saved view; anybody can have written it.
export function readChart(found: unknown): Chart | null {
  if (typeof found !== "object" || found === null) return null;
  const { kind, by = "", width = "", value = "count", of = "", minutes = 10 } = found as Record<string, unknown>;
  if (!KINDS.some(([name]) => name === kind) || !VALUES.some(([name]) => name === value)) return null;
  if (typeof by !== "string" || typeof width !== "string" || typeof of !== "string") return null;
  if (typeof minutes !== "number" || !MINUTES.includes(minutes)) return null;
  if (!isWidth(width) || (kind !== "line" && by === "") || (value !== "count" && of === "")) return null;
  return { kind: kind as Kind, by, width, value: value as string, of, minutes };
}

export const isWidth = (text: string): boolean => text === "" || /^(?=.*[1-9])\d{1,18}(\.\d{1,12})?[smhd]?$/.test(text);

// Return only the options that differ from the default, so that addresses stay short.
export function writeChart({ kind, by, width, value, of, minutes }: Chart): Record<string, string | number> {
  return {
    kind,
    ...(by ? { by } : {}),
    ...(kind === "histogram" && width ? { width } : {}),
    value,
    ...(of && value !== "count" ? { of } : {}),
    ...(kind === "line" ? { minutes } : {}),
  };
}
