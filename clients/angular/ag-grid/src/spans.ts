// The choice of rows to request while scrolling. Pure.

/** The rows to request. */
export interface Span {
  readonly offset: number;
  readonly limit: number;
}

/** A range of positions, both ends included. */
export interface Places {
  readonly first: number;
  readonly last: number;
}

const STEP = 25;
const FEWEST = 20;
const MOST = 600;

/** The first span, enough for most screens; larger screens request more once they show rows. */
export const FIRST_SPAN: Span = { offset: 0, limit: 100 };

/** Return the screen and one more screen on both sides, rounded, so that small scrolls need no request. */
export function spanFor({ first, last }: Places): Span {
  const visible = Math.max(FEWEST, last - first + 1);
  const offset = Math.max(0, Math.floor((first - visible) / STEP) * STEP);
  const end = Math.ceil((last + 1 + visible) / STEP) * STEP;
  return { offset, limit: Math.min(MOST, end - offset) };
}

/** Whether to request other rows, because the screen is near an end of the span. */
export function shouldMove({ offset, limit }: Span, { first, last }: Places, total: number): boolean {
  const margin = Math.ceil(Math.max(FEWEST, last - first + 1) / 2);
  const end = offset + limit;
  return (last + margin >= end && end < total) || (first - margin < offset && offset > 0);
}

/** Limit the screen to `total` rows: a grid that becomes shorter scrolls up. */
export function clamp({ first, last }: Places, total: number): Places {
  const end = Math.max(0, Math.min(last, total - 1));
  return { first: Math.max(0, Math.min(first, end - (last - first))), last: end };
}

/** Whether `count` rows from `offset` fill the screen. */
export function covers(offset: number, count: number, { first, last }: Places): boolean {
  return offset <= first && last < offset + count;
}
