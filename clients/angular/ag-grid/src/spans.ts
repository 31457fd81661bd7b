// Which rows to ask for while somebody scrolls. Pure.

/** Rows to ask for. */
export interface Span {
  readonly offset: number;
  readonly limit: number;
}

/** Places of a table, both included. */
export interface Places {
  readonly first: number;
  readonly last: number;
}

const STEP = 25;
const FEWEST = 20;
const MOST = 600;

/** Enough for most screens; larger ones ask for more once they show rows. */
export const FIRST_SPAN: Span = { offset: 0, limit: 100 };

/** The screen, and as much again on both sides, in steps: small scrolls ask for nothing new. */
export function spanFor({ first, last }: Places): Span {
  const visible = Math.max(FEWEST, last - first + 1);
  const offset = Math.max(0, Math.floor((first - visible) / STEP) * STEP);
  const end = Math.ceil((last + 1 + visible) / STEP) * STEP;
  return { offset, limit: Math.min(MOST, end - offset) };
}

/** Whether to ask for others before the edge of these is seen. */
export function shouldMove({ offset, limit }: Span, { first, last }: Places, total: number): boolean {
  const margin = Math.ceil(Math.max(FEWEST, last - first + 1) / 2);
  const end = offset + limit;
  return (last + margin >= end && end < total) || (first - margin < offset && offset > 0);
}

/** Where the screen is once the table has `total` rows: a grid that becomes shorter scrolls up. */
export function clamp({ first, last }: Places, total: number): Places {
  const end = Math.max(0, Math.min(last, total - 1));
  return { first: Math.max(0, Math.min(first, end - (last - first))), last: end };
}

/** Whether `count` rows from `offset` on fill the screen. */
export function covers(offset: number, count: number, { first, last }: Places): boolean {
  return offset <= first && last < offset + count;
}
