// Marks of swaps in a line chart: a vertical line at each swap, with its new generation.

import uPlot from "uplot";
import { colour, FONT, textWidth } from "./ink";
import { labelRows } from "./shape";

export const MARK_HEIGHT = 18;
// The number of label rows above the chart.
export const markRows = (swaps: number): number => Math.min(swaps, 3);
const PAD = 5;

export function drawMarks(u: uPlot, swaps: readonly { time: number; generation: number }[]): void {
  const { ctx, bbox } = u;
  const scale = uPlot.pxRatio;
  const labels = swaps.map(({ generation }) => `generation ${generation}`);
  const places = swaps.map(({ time }) => u.valToPos(time, "x", true));
  const spans = places.map((at, i) => {
    const width = (textWidth(labels[i]!) + 2 * PAD) * scale;
    // At the right edge the label is left of the line.
    const left = at + width > bbox.left + bbox.width ? at - width : at;
    return [left, left + width] as const;
  });
  const rows = labelRows(spans, markRows(swaps.length));
  const used = markRows(swaps.length);
  ctx.save();
  ctx.font = FONT.replace(/[\d.]+px/, `${11 * scale}px`);
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.lineWidth = scale;
  places.forEach((at, i) => {
    ctx.strokeStyle = colour("--mark");
    ctx.setLineDash([4 * scale, 3 * scale]);
    ctx.beginPath();
    ctx.moveTo(at, bbox.top + ((rows[i] ?? used) - used) * MARK_HEIGHT * scale);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
    const row = rows[i];
    if (row === null || row === undefined) return;
    const [left, right] = spans[i]!;
    const top = bbox.top + (row - used) * MARK_HEIGHT * scale;
    ctx.fillStyle = colour("--mark-soft");
    ctx.fillRect(left, top, right - left, (MARK_HEIGHT - 2) * scale);
    ctx.fillStyle = colour("--mark");
    ctx.fillText(labels[i]!, left + PAD * scale, top + (MARK_HEIGHT / 2 - 0.5) * scale);
  });
  ctx.restore();
}
