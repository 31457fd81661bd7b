// Positions of the grid. A table can have more rows than a browser can render: beyond about 2^24 pixels the layout
// breaks. So the grid has a limited number of positions, which show the rows from `base` on. Small scrolls move row by
// row among the positions; a jump moves to the same fraction of the table as the scrollbar. Pure.

// The maximum number of positions: at 30 pixels each, less than half of what browsers render correctly.
export const MOST_PLACES = 250_000;
// Within EDGE positions of an end, `base` is moved if there are more rows; then there are at least ROOM positions left.
const EDGE = 1_000;
const ROOM = 25_000;

export const placesFor = (total: number): number => Math.min(total, MOST_PLACES);

const bounded = (value: number, low: number, high: number): number => Math.max(low, Math.min(high, value));

export const boundedBase = (base: number, total: number): number => bounded(base, 0, total - placesFor(total));

// Return the base after a jump; `share` is the position of the scrollbar from 0 to 1.
export function baseAt(share: number, total: number): number {
  return boundedBase(Math.round(bounded(share, 0, 1) * (total - placesFor(total))), total);
}

export function isAtEdge(place: number, base: number, total: number): boolean {
  const places = placesFor(total);
  return (place < EDGE && base > 0) || (place > places - EDGE && base < total - places);
}

// Return the base that puts `row` at its relative position in the table, but not near an end of the grid.
export function baseAround(row: number, total: number): number {
  const places = placesFor(total);
  const place = bounded((row / total) * places, Math.min(row, ROOM), places - Math.min(total - row, ROOM));
  return boundedBase(row - Math.round(place), total);
}
