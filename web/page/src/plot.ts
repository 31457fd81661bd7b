// Drawing of charts on a canvas with uPlot. A shape of the same kind only replaces the data; another kind is drawn
// before the old chart is removed, so that no frame is empty. This module is loaded when the first chart is opened.

import uPlot from "uplot";
import { brief, clock, exact, momentText, type Bars, type Bins, type Lines, type Shape } from "./shape";
import { drawMarks, MARK_HEIGHT, markRows } from "./marks";
import { colour, FONT, textWidth, lineColour } from "./ink";

const BAR_HEIGHT = 84;
const LEAST_BAR_HEIGHT = 20;
const LABEL_GAP = 8;
// Lines with fewer points than this show a mark at each point.
const MOST_POINTS = 40;

export class Plot {
  private readonly host: HTMLElement;
  private readonly onPoint: (index: number | null) => void;
  private readonly sizes = new ResizeObserver(() => this.resize());
  private readonly themes = new MutationObserver(() => this.plot?.redraw());
  private plot: uPlot | null = null;
  private shape: Shape | null = null;

  constructor(host: HTMLElement, onPoint: (index: number | null) => void) {
    this.host = host;
    this.onPoint = onPoint;
    this.sizes.observe(host);
    this.themes.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  show(shape: Shape): void {
    const before = this.shape;
    this.shape = shape;
    if (this.plot && before && isAlike(before, shape)) {
      const height = this.size.height;
      this.plot.batch(() => {
        if (height !== this.plot!.height) this.plot!.setSize(this.size);
        this.plot!.setData(dataOf(shape), true);
      });
      return;
    }
    const old = this.plot;
    this.plot = new uPlot(this.options(shape), dataOf(shape), (made, init) => {
      this.host.append(made.root);
      init();
      old?.destroy();
    });
  }

  clear(): void {
    this.plot?.destroy();
    this.plot = this.shape = null;
  }

  private get size(): { width: number; height: number } {
    const { clientWidth: width, clientHeight: height } = this.host;
    if (this.shape?.kind !== "bars") return { width, height };
    const bars = Math.max(1, this.shape.values.length);
    return { width, height: Math.max(bars * LEAST_BAR_HEIGHT, Math.min(height - 2, bars * BAR_HEIGHT)) };
  }

  private resize(): void {
    if (this.plot && this.host.clientWidth > 0 && this.host.clientHeight > 0) this.plot.setSize(this.size);
  }

  private options(shape: Shape): uPlot.Options {
    // The data changes while the kind stays the same, so each function reads the current shape.
    const now = <S extends Shape>(): S => this.shape as S;
    const shared = { ...this.size, legend: { show: false }, cursor: { show: false }, ms: 1 as const };
    if (shape.kind === "bars") return { ...shared, ...barOptions(() => now<Bars>()) };
    const pointed = (index: (u: uPlot) => number | null) => (u: uPlot) => this.onPoint((u.cursor.left ?? -1) < 0 ? null : index(u));
    const cursor = { x: true, y: false, points: { show: false }, drag: { x: false, y: false, setScale: false } };
    if (shape.kind === "histogram") {
      const index = (u: uPlot): number | null => binAt(u.posToVal(u.cursor.left!, "x"), now<Bins>());
      return { ...shared, cursor, ...binOptions(() => now<Bins>()), hooks: { setCursor: [pointed(index)] } };
    }
    const index = (u: uPlot): number | null => {
      const time = u.posToVal(u.cursor.left!, "x");
      const found = now<Lines>().times.findLastIndex((moment) => moment <= time);
      return found < 0 ? null : found;
    };
    const marks = (u: uPlot): void => drawMarks(u, now<Lines>().swaps);
    if (shape.along) return { ...shared, cursor, ...lineOptions(() => now<Lines>(), shape.lines.length) };
    return { ...shared, cursor, ...lineOptions(() => now<Lines>(), shape.lines.length), hooks: { setCursor: [pointed(index)], draw: [marks] } };
  }
}

function isAlike(one: Shape, other: Shape): boolean {
  if (one.kind !== other.kind) return false;
  if (one.kind === "line") return one.lines.length === (other as Lines).lines.length && one.along === (other as Lines).along;
  return one.kind === "bars" || one.time === (other as Bins).time;
}

function dataOf(shape: Shape): uPlot.AlignedData {
  if (shape.kind === "bars") return [shape.values.map((_, i) => i), shape.values];
  if (shape.kind === "histogram") return [shape.starts, shape.values];
  return [shape.times, ...shape.lines.map(({ values }) => values)];
}

function binAt(value: number, { starts, width }: Bins): number | null {
  const found = starts.findLastIndex((start) => start <= value);
  return found >= 0 && value < starts[found]! + width ? found : null;
}

type Part = Pick<uPlot.Options, "series" | "scales" | "axes" | "padding" | "hooks" | "tzDate">;

const AXIS: uPlot.Axis = {
  font: FONT,
  stroke: () => colour("--quiet"),
  grid: { stroke: () => colour("--line-soft"), width: 1 },
  ticks: { show: false },
};

function valueAxis(): uPlot.Axis {
  const values = (_: uPlot, splits: number[]): string[] => splits.map(brief);
  const size = (_: uPlot, texts: string[] | null): number => Math.max(30, ...(texts ?? []).map(textWidth)) + 14;
  return { ...AXIS, side: 3, values, size, space: 40 };
}

// Return the options of horizontal bars, which leave space for long group names.
function barOptions(shape: () => Bars): Part {
  const short = (u: uPlot): string[] => shape().labels.map((label) => cut(label, u.width * 0.38));
  const widest = (): number => Math.max(0, ...shape().values.map((value) => textWidth(value === null ? "none" : brief(value))));
  return {
    padding: [2, () => widest() + LABEL_GAP + 4, 2, 2],
    scales: {
      x: { time: false, ori: 1, dir: -1, range: () => [-0.5, Math.max(1, shape().values.length) - 0.5] },
      y: { ori: 0, range: (_, min, max) => zeroBased(min, max) },
    },
    axes: [
      {
        ...AXIS,
        side: 3,
        stroke: () => colour("--text"),
        grid: { show: false },
        splits: () => shape().labels.map((_, i) => i),
        values: (u) => short(u),
        size: (u) => Math.max(20, ...short(u).map(textWidth)) + LABEL_GAP,
        gap: LABEL_GAP - 2,
      },
      { show: false, side: 2, scale: "y" },
    ],
    series: [
      {},
      {
        fill: () => lineColour(0),
        width: 0,
        points: { show: false },
        paths: uPlot.paths.bars!({ size: [0.68, 48], radius: [0.12, 0] }),
      },
    ],
    hooks: { draw: [(u) => drawValues(u, shape())] },
  };
}

function drawValues(u: uPlot, { values }: Bars): void {
  const { ctx } = u;
  ctx.save();
  ctx.font = FONT.replace(/[\d.]+px/, (size) => `${Number.parseFloat(size) * uPlot.pxRatio}px`);
  ctx.fillStyle = colour("--text");
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  values.forEach((value, i) => {
    const end = u.valToPos(Math.max(0, value ?? 0), "y", true);
    ctx.fillText(value === null ? "none" : brief(value), end + LABEL_GAP * uPlot.pxRatio, u.valToPos(i, "x", true));
  });
  ctx.restore();
}

function binOptions(shape: () => Bins): Part {
  const ends = (): [number, number] => {
    const { starts, width } = shape();
    return [starts[0] ?? 0, (starts.at(-1) ?? 0) + width];
  };
  return {
    padding: [10, () => Math.max(14, shape().time ? 0 : textWidth(exact(ends()[1])) / 2 + 2), 0, 0],
    tzDate: (time) => (shape().date ? uPlot.tzDate(new Date(time), "Etc/UTC") : new Date(time)),
    scales: { x: { time: shape().time, range: ends }, y: { range: (_, min, max) => zeroBased(min, max) } },
    axes: [
      {
        ...AXIS,
        grid: { show: false },
        border: { show: true, stroke: () => colour("--line"), width: 1 },
        values: (_, splits, __, ___, step) => (shape().time ? moments(splits, step, shape().date) : splits.map(exact)),
        space: (_, __, min, max) => (shape().time ? 110 : Math.max(40, textWidth(exact(max)) + 24, textWidth(exact(min)) + 24)),
        size: 30,
      },
      valueAxis(),
    ],
    series: [
      {},
      {
        fill: () => lineColour(0),
        width: 0,
        points: { show: false },
        paths: uPlot.paths.bars!({ size: [1, Infinity], gap: 1, align: 1 }),
      },
    ],
  };
}

function lineOptions(shape: () => Lines, lines: number): Part {
  const flat = (_: uPlot, min: number, max: number): [number, number] => {
    if (min === null || max === null) return [0, 1];
    // If the values vary little, the axis is zoomed; otherwise it starts at zero.
    if (min > 0 && min > max * 0.7) return uPlot.rangeNum(min, max === min ? max + 1 : max, 0.15, true) as [number, number];
    return zeroBased(min, max);
  };
  const ends = (): [number, number] => {
    const { from, times } = shape();
    const to = times.at(-1) ?? 0;
    return from === to ? [from - 1, to + 1] : [from, to];
  };
  return {
    padding: [() => 10 + markRows(shape().swaps.length) * MARK_HEIGHT, () => lastTextRoom(shape()), 0, 0],
    scales: { x: { time: shape().along !== "number", range: ends }, y: { range: flat } },
    axes: [
      {
        ...AXIS,
        grid: { show: false },
        border: { show: true, stroke: () => colour("--line"), width: 1 },
        values: (_, splits, __, ___, step) => alongTexts(splits, step, shape().along),
        space: shape().along === "time" ? 110 : 58,
        size: 30,
      },
      valueAxis(),
    ],
    series: [
      {},
      ...Array.from({ length: lines }, (_, i) => ({
        stroke: () => lineColour(shape().colours[i] ?? i),
        width: 2,
        // A line of a single point would be invisible without a mark.
        points: { show: (u: uPlot) => shape().along !== undefined && u.data[0].length < MOST_POINTS, size: 5 },
        paths: shape().along ? uPlot.paths.linear!() : uPlot.paths.stepped!({ align: 1 }),
      })),
    ],
  };
}

// Label the x axis: a line of the last minutes has times of day; a line of a SELECT has any times, or numbers.
function alongTexts(splits: number[], step: number, along: Lines["along"]): string[] {
  if (along === "number") return splits.map(exact);
  if (along === "time") return moments(splits, step, false);
  return splits.map((time) => clock(time).slice(0, step >= 60_000 ? 5 : 8));
}

// Half of the last label of the x axis may lie beside the plot.
function lastTextRoom({ along, times }: Lines): number {
  const text = along === "number" ? exact(times.at(-1) ?? 0) : along === "time" ? "0000-00-00 00:00" : "00:00:00";
  return Math.max(14, textWidth(text) / 2 + 2);
}

function zeroBased(min: number, max: number): [number, number] {
  const low = Math.min(0, min ?? 0);
  const high = Math.max(0, max ?? 0);
  return low === high ? [0, 1] : [low, high];
}

// Format times, without the day if it is the same for all.
function moments(splits: number[], step: number, date: boolean): string[] {
  const texts = splits.map((split) => momentText(split, step, date));
  const days = new Set(texts.map((text) => text.slice(0, 10)));
  return days.size === 1 && step < 86_400_000 ? texts.map((text) => text.slice(11)) : texts;
}

function cut(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  let kept = [...text];
  while (kept.length > 1 && textWidth(`${kept.join("")}…`) > width) kept = kept.slice(0, Math.floor(kept.length * 0.9));
  return `${kept.join("")}…`;
}

