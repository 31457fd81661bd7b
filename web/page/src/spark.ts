// Sparklines: the recent values and their scale (pure), and the SVG that draws them.

const SVG = "http://www.w3.org/2000/svg";

// The newest `size` values, oldest first.
export class Recent {
  readonly values: number[] = [];
  private readonly size: number;

  constructor(size: number) {
    this.size = size;
  }

  add(value: number): void {
    this.values.push(Number.isFinite(value) ? Math.max(0, value) : 0);
    if (this.values.length > this.size) this.values.shift();
  }
}

export interface Box {
  width: number;
  height: number;
  size: number;
}

// Return the points, aligned to the right edge, so that a short history is visible as such. The scale starts at zero,
// so that a rate that varies by one percent is a flat line.
export function points(values: readonly number[], { width, height, size }: Box): [number, number][] {
  const most = Math.max(...values, 0) || 1;
  const step = width / (size - 1);
  const left = width - (values.length - 1) * step;
  return values.map((value, i) => [round(left + i * step), round(height - 1 - (value / most) * (height - 2))]);
}

export function linePath(values: readonly number[], box: Box): string {
  if (values.length < 2) return "";
  return points(values, box).map(([x, y], i) => `${i ? "L" : "M"}${x} ${y}`).join("");
}

const round = (value: number): number => Math.round(value * 10) / 10;

export class Sparkline {
  readonly element: SVGSVGElement;
  private readonly recent: Recent;
  private readonly line: SVGPathElement;
  private readonly area: SVGPathElement;
  private readonly box: Box;

  constructor(size = 60, width = 72, height = 22) {
    this.box = { width, height, size };
    this.recent = new Recent(size);
    this.element = document.createElementNS(SVG, "svg");
    this.element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.element.setAttribute("class", "spark");
    // Screen readers read the number beside it.
    this.element.setAttribute("aria-hidden", "true");
    this.area = document.createElementNS(SVG, "path");
    this.area.setAttribute("class", "area");
    this.line = document.createElementNS(SVG, "path");
    this.element.append(this.area, this.line);
  }

  add(value: number): void {
    this.recent.add(value);
    const path = linePath(this.recent.values, this.box);
    this.line.setAttribute("d", path);
    const start = points(this.recent.values, this.box)[0]?.[0] ?? 0;
    this.area.setAttribute("d", path && `${path}L${this.box.width} ${this.box.height}L${start} ${this.box.height}Z`);
  }
}
