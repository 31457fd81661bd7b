// Conversion of a summary to a shape to draw (bars, bins or lines), and to a table of the same numbers. Pure.

import type { SummaryInfo } from "@turnout/client";
import { widthOf } from "./bins";
import { MOST_BARS, MOST_BINS, MOST_LINES, valueName, type Chart } from "./chart";
import { dayText, timeText } from "./clock";
import { isTime } from "./column-types";
import { compact, number, valueText, type Value } from "./format";

const LEAST_LINE_MS = 10_000;

type Numbers = (number | null)[];

export interface Bars {
  kind: "bars";
  labels: string[];
  values: Numbers;
}

export interface Bins {
  kind: "histogram";
  starts: number[];
  width: number;
  time: boolean;
  // Whether the starts are dates, which have no time zone.
  date: boolean;
  values: Numbers;
}

export interface Lines {
  kind: "line";
  // Milliseconds; the last is now.
  times: number[];
  from: number;
  lines: { name: string; values: Numbers }[];
  // The colour number of each line.
  colours: readonly number[];
  swaps: readonly { time: number; generation: number }[];
  // The x axis of a SELECT's line, which connects its points; undefined for a step line of the last minutes.
  along?: "time" | "number";
}

export type Shape = Bars | Bins | Lines;

// The numbers of a shape as a table.
export interface Numbered {
  head: string[];
  rows: string[][];
  // A note on values that are not drawn.
  note: string;
}

export type Answer = Pick<SummaryInfo, "columns" | "by" | "total" | "past"> & { groups: readonly (readonly unknown[])[] };

export function shapeOf(chart: Chart, answer: Answer, now: number): Shape {
  if (chart.kind === "line") return linesOf(chart, answer, now);
  return chart.kind === "bars" ? barsOf(answer) : binsOf(chart, answer);
}

function barsOf({ groups, columns, by }: Answer): Bars {
  const labels = groups.map((group) => labelOf(group[0], columns[0]?.type ?? ""));
  return { kind: "bars", labels, values: groups.map((group) => numeric(group[by.length])) };
}

// Compute the bins. The answer omits empty bins: they are zero for a count or a sum, otherwise they have no bar.
function binsOf(chart: Chart, { groups, columns, by }: Answer): Bins {
  const time = isTime(columns[0]?.type ?? "");
  const width = widthOf(chart.width);
  const known = new Map(
    groups.map((group) => [binNumber(place(group[0], time), width), numeric(group[by.length])] as const),
  );
  known.delete(NaN);
  const numbers = [...known.keys()].sort((one, other) => one - other);
  const [first = 0, last = -1] = [numbers[0], numbers.at(-1)];
  const whole = last - first < MOST_BINS;
  const shown = whole ? Array.from({ length: last - first + 1 }, (_, i) => first + i) : numbers;
  const none = ["count", "sum", "count_distinct"].includes(chart.value) ? 0 : null;
  return {
    kind: "histogram",
    starts: shown.map((bin) => Number((bin * width).toPrecision(15))),
    width,
    time,
    date: columns[0]?.type === "date",
    values: shown.map((bin) => known.get(bin) ?? none),
  };
}

const binNumber = (start: number, width: number): number => Math.round(start / width);

// Compute the lines: the largest groups of now, then earlier groups, which may come from another generation. Each line
// spans all points in time, with a gap where its group did not exist.
function linesOf(chart: Chart, { groups, columns, by, past }: Answer, now: number): Lines {
  const points = past?.points ?? [];
  const end = Math.max(now, points.at(-1)?.time ?? 0);
  // Nothing is known before the first point.
  const begun = Math.min(points[0]?.time ?? end, end - LEAST_LINE_MS);
  const from = Math.max(end - chart.minutes * 60_000, begun);
  const key = (group: readonly unknown[]): string => JSON.stringify(group.slice(0, by.length));
  const moments = points.map((point) => new Map(point.groups.map((group) => [key(group), numeric(group[by.length])])));
  const before = points.toReversed().flatMap((point) => point.groups);
  const known = new Map<string, readonly unknown[]>();
  for (const group of [...groups, ...before]) if (!known.has(key(group))) known.set(key(group), group);
  const lines = [...known.values()].slice(0, MOST_LINES).map((group) => {
    const values = moments.map((moment) => moment.get(key(group)) ?? null);
    const name = by.length ? labelOf(group[0], columns[0]?.type ?? "") : valueName(chart);
    // The values of the last point still apply now.
    return { name, values: [...values, values.at(-1) ?? null] };
  });
  const times = [...points.map((point) => Math.max(point.time, from)), end];
  // Put the mark of a swap at the first point of its generation.
  const swaps = (past?.swaps ?? []).map(({ time, generation }) => {
    return { time: points.find((point) => point.generation === generation)?.time ?? time, generation };
  });
  const colours = lines.map((_, i) => i);
  return { kind: "line", times, from, lines, colours, swaps: swaps.filter(({ time }) => time >= from) };
}

export function numbersOf(chart: Chart, shape: Shape, answer: Answer): Numbered {
  const value = valueName(chart);
  const note = noteOf(chart, shape, answer);
  if (shape.kind === "bars") {
    return { head: [chart.by, value], rows: shape.labels.map((label, i) => [label, exact(shape.values[i])]), note };
  }
  if (shape.kind === "histogram") {
    const rows = shape.starts.map((start, i) => [binText(start, shape), exact(shape.values[i])]);
    return { head: [chart.by, value], rows, note };
  }
  const marks = new Map<number, string>();
  for (const { time, generation } of shape.swaps) {
    const at = shape.times.findLastIndex((moment) => moment <= time);
    marks.set(Math.max(at, 0), `generation ${generation}`);
  }
  const rows = shape.times.slice(0, -1).map((time, i) => {
    return [clock(time), ...shape.lines.map(({ values }) => exact(values[i])), marks.get(i) ?? ""];
  });
  // The newest values come first.
  return { head: ["time", ...shape.lines.map(({ name }) => name), "swap"], rows: rows.reverse(), note };
}

function noteOf({ kind, by }: Chart, shape: Shape, { groups, total }: Answer): string {
  const notes: string[] = [];
  const most = { bars: MOST_BARS, histogram: MOST_BINS, line: MOST_LINES }[kind];
  const what = kind === "histogram" ? "bins" : "groups";
  const which = kind === "histogram" ? "first" : "largest";
  if (by && total > most) notes.push(`the ${which} ${number(most)} of ${number(total)} ${what}`);
  const empty = shape.kind === "histogram" ? groups.find((group) => group[0] === null) : undefined;
  if (empty) notes.push(`without ${by}: ${exact(numeric(empty[1]))}`);
  return notes.join("; ");
}

export const clock = (time: number): string => timeText(new Date(time));

export function binText(start: number, { width, time, date }: Bins): string {
  if (!time) return `${plain(start)} – ${plain(Number((start + width).toPrecision(15)))}`;
  return momentText(start, width, date);
}

// Format a time as briefly as `step` allows. Days of the server begin at midnight UTC, which can be another local time.
export function momentText(time: number, step: number, date: boolean): string {
  const at = new Date(time);
  if (date) return at.toISOString().slice(0, 10);
  const text = timeText(at);
  if (step >= 86_400_000 && text === "00:00:00") return dayText(at);
  return `${dayText(at)} ${text.slice(0, step >= 60_000 ? 5 : 8)}`;
}

function place(value: unknown, time: boolean): number {
  if (value === null) return NaN;
  return time ? Date.parse(String(value)) : Number(value);
}

function labelOf(value: unknown, type: string): string {
  if (value === null) return "null";
  return value === "" ? "(empty text)" : valueText(value as Value, type);
}

// Convert a value to a number; decimals and large integers arrive as texts.
function numeric(value: unknown): number | null {
  if (value === null || value === undefined) return null;
  const found = Number(value);
  return Number.isFinite(found) ? found : null;
}

// Format an end of a bin with all digits.
const plain = (value: number): string => value.toLocaleString("en-US", { maximumFractionDigits: 12 });

export function exact(value: number | null | undefined): string {
  if (value === null || value === undefined) return "none";
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.abs(value) < 100 ? 4 : 2 });
}

// Format a number briefly, for bars and axes: 1,234; 12.3k; 0.25.
export function brief(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(1);
  if (size >= 10_000) return `${value < 0 ? "-" : ""}${compact(size)}`;
  return value.toLocaleString("en-US", { maximumFractionDigits: size < 1 ? 4 : size < 100 ? 2 : 1 });
}

// Return the row of each label, so that labels do not overlap; null if no row is free.
export function labelRows(spans: readonly (readonly [number, number])[], rows: number): (number | null)[] {
  const ends: number[] = [];
  return spans.map(([left, right]) => {
    const free = Array.from({ length: rows }, (_, row) => row).find((row) => (ends[row] ?? -Infinity) <= left);
    if (free === undefined) return null;
    ends[free] = right;
    return free;
  });
}
