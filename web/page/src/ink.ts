// Colours and text widths for drawing on a canvas, from the current styles of the page.

export const FONT = '12px system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';

export const LINE_COLOURS = 8;

export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export const lineColour = (index: number): string => colour(`--chart-${(index % LINE_COLOURS) + 1}`);

const ruler = document.createElement("canvas").getContext("2d");

export function textWidth(text: string): number {
  if (!ruler) return text.length * 7;
  ruler.font = FONT;
  return Math.ceil(ruler.measureText(text).width);
}
