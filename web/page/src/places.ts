// A table may have more rows than a browser can paint one below the other: past some 2^24 pixels lines and letters go
// astray. So the grid has at most so many places, and shows the rows from `base` on in them. Small scrolls move among the
// places, row by row; a jump goes as far into the table as the bar went. Pure.

// At 30 pixels each less than half of what is painted well.
export const MOST_PLACES = 250_000;
// So near to the first or last place others are taken, while there are rows beyond it, with so much room then.
const EDGE = 1_000;
const ROOM = 25_000;

export const placesFor = (total: number): number => Math.min(total, MOST_PLACES);

const bounded = (value: number, low: number, high: number): number => Math.max(low, Math.min(high, value));

export const boundedBase = (base: number, total: number): number => bounded(base, 0, total - placesFor(total));

// Where a jump leads: `share` is how far the bar is between its ends.
export function baseAt(share: number, total: number): number {
  return boundedBase(Math.round(bounded(share, 0, 1) * (total - placesFor(total))), total);
}

export function isAtEdge(place: number, base: number, total: number): boolean {
  const places = placesFor(total);
  return (place < EDGE && base > 0) || (place > places - EDGE && base < total - places);
}

// The base with which `row` is as far from the ends as it is in the table, and never too near.
export function baseAround(row: number, total: number): number {
  const places = placesFor(total);
  const place = bounded((row / total) * places, Math.min(row, ROOM), places - Math.min(total - row, ROOM));
  return boundedBase(row - Math.round(place), total);
}
