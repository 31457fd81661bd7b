// Formatting of values, counts, durations and column widths. Pure: no document, no clock.

import { localText } from "./clock";

export type Value = string | number | boolean | null | undefined | object;

export function valueText(value: Value, type: string): string {
  if (value === undefined) return "";
  if (value === null) return "null";
  if (type === "timestamp" && typeof value === "string") return localText(value);
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

const PLAIN = /^-?\d+(\.\d+)?$/;
const MOST_DECIMALS = 6;

// Return the number of digits after the point, at most 6; large numbers arrive as texts.
export function decimalsOf(value: Value): number {
  const text = String(value ?? "");
  return PLAIN.test(text) ? Math.min(MOST_DECIMALS, text.split(".")[1]?.length ?? 0) : 0;
}

// Format a number with thousands separators and the decimals of its column. The row panel shows all digits.
export function numberText(value: Value, decimals: number): string {
  const text = String(value);
  if (!PLAIN.test(text)) return text;
  const [whole = "", part = ""] = (typeof value === "number" ? value.toFixed(decimals) : text).split(".");
  const digits = part.padEnd(decimals, "0");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (digits && `.${digits}`);
}

// Return the text for the clipboard: the exact value, not the displayed one.
export function copyText(value: Value): string {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// Indent a text that is a JSON object or array; return null for any other text.
export function prettyJson(text: string): string | null {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

export const number = (value: number): string => value.toLocaleString("en-US");

export function count(value: number, noun: string): string {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// Format a number for a list: 999, 12.3k, 1.2M.
export function compact(value: number): string {
  if (value < 10_000) return number(value);
  const [scaled, unit] = value < 999_500 ? [value / 1e3, "k"] : value < 999_500_000 ? [value / 1e6, "M"] : [value / 1e9, "G"];
  return `${scaled < 99.95 ? scaled.toFixed(1).replace(/\.0$/, "") : Math.round(scaled)}${unit}`;
}

export function rate(perSecond: number): string {
  return perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : compact(Math.round(perSecond));
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

// Format an age in one whole unit: 5 s, 3 min, 2 h.
export function age(milliseconds: number): string {
  const elapsed = Math.max(0, Math.floor(milliseconds / 1000));
  if (elapsed < 1) return "now";
  if (elapsed < 60) return `${elapsed} s`;
  if (elapsed < 3600) return `${Math.floor(elapsed / 60)} min`;
  if (elapsed < 48 * 3600) return `${Math.floor(elapsed / 3600)} h`;
  return `${Math.floor(elapsed / 86_400)} d`;
}

// Format an age with "ago"; NaN, from a year beyond a browser's range, is "unknown".
export function ago(milliseconds: number): string {
  if (Number.isNaN(milliseconds)) return "unknown";
  const text = age(milliseconds);
  return text === "now" ? text : `${text} ago`;
}

export function percent(part: number, whole: number): string {
  if (whole <= 0) return "-";
  const share = (100 * part) / whole;
  // 99.98 % must not be shown as 100 %, nor 0.02 % as 0 %.
  if (share > 99.9 && part < whole) return "> 99.9 %";
  if (share < 0.1 && part > 0) return "< 0.1 %";
  return `${share.toFixed(share === 100 || share === 0 ? 0 : 1)} %`;
}

export const words = (name: string): string => name.replaceAll("_", " ");

// Return the width of a column in pixels, from its name and the texts of its first rows.
export function columnWidth(name: string, type: string, texts: readonly string[]): number {
  const longest = texts.reduce((most, text) => Math.max(most, text.length), 0);
  const header = name.length * 7.8 + type.length * 6 + 46;
  return Math.round(Math.min(460, Math.max(84, header, longest * 7.3 + 30)));
}
