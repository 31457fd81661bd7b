// Widths of a histogram's bins: round steps for numbers and for times. Pure.

import { isTime, isWhole } from "./column-types";

const BINS = 20;
const UNITS = { s: 1, m: 60, h: 3600, d: 86_400 } as const;
const TIME_STEPS = ["1s", "5s", "10s", "30s", "1m", "5m", "10m", "30m", "1h", "3h", "6h", "12h", "1d", "7d", "30d", "365d"];

// Return a width as a number; for a time in milliseconds.
export function widthOf(text: string): number {
  const unit = /[smhd]$/.exec(text)?.[0] as keyof typeof UNITS | undefined;
  return Number.parseFloat(text) * (unit ? UNITS[unit] * 1000 : 1);
}

// Return a round width of about 1/20 of the range; `from` and `to` are numbers, for a time in milliseconds.
export function niceWidth(from: number, to: number, type: string): string {
  const range = Math.max(0, to - from);
  if (isTime(type)) {
    const steps = type === "date" ? TIME_STEPS.filter((step) => step.endsWith("d")) : TIME_STEPS;
    return steps.find((step) => widthOf(step) >= range / BINS) ?? steps.at(-1)!;
  }
  if (range === 0 || !Number.isFinite(range)) return "1";
  const raw = range / BINS;
  const power = 10 ** Math.floor(Math.log10(raw));
  const nice = [1, 2, 5, 10].find((step) => step * power >= raw * 0.999) ?? 10;
  const width = isWhole(type) ? Math.max(1, nice * power) : nice * power;
  return decimal(width);
}

// Format a width for the server: no exponent, at most 18 digits before the point and 12 after it.
function decimal(width: number): string {
  if (width >= 1e17) return "100000000000000000";
  if (width >= 1) return String(Math.round(width));
  return width.toFixed(12).replace(/0+$/, "").replace(/\.$/, "") || "0.000000000001";
}
