// The shown rows, which always come from one message of the server, so that no frame mixes two versions. This module
// also decides which rows to request while scrolling, and which cells have changed. Pure.

export interface Column {
  name: string;
  type: string;
}

export type Row = readonly unknown[];

// One message, with the number of its query: rows of different queries are different rows, even with equal ids.
export interface Rows {
  query: number;
  table: string;
  generation: number;
  version: number;
  total: number;
  offset: number;
  columns: readonly Column[];
  ids: readonly string[];
  rows: readonly Row[];
}

export interface Span {
  offset: number;
  limit: number;
}

// The first and the last visible row.
export interface Viewport {
  first: number;
  last: number;
}

const STEP = 25;
const MOST = 600;

// Return the value of a cell; undefined means "not loaded yet", null is a value.
export function cellAt(rows: Rows | null, index: number, column: number): unknown {
  return rows?.rows[index - rows.offset]?.[column];
}

// Return the span to request: the screen and one more on both sides, rounded, so that small scrolls need no request.
export function spanFor({ first, last }: Viewport): Span {
  const visible = Math.max(20, last - first + 1);
  const offset = Math.max(0, Math.floor((first - visible) / STEP) * STEP);
  const end = Math.ceil((last + 1 + visible) / STEP) * STEP;
  return { offset, limit: Math.min(MOST, end - offset) };
}

// Whether to request other rows, because the screen is near an end of the loaded span.
export function shouldMove(span: Span, { first, last }: Viewport, total: number): boolean {
  const margin = Math.ceil(Math.max(20, last - first + 1) / 2);
  const end = span.offset + span.limit;
  const tooLate = last + margin >= end && end < total;
  const tooEarly = first - margin < span.offset && span.offset > 0;
  return tooLate || tooEarly;
}

// Limit the screen to `total` rows: a grid that becomes shorter scrolls up.
export function clamp({ first, last }: Viewport, total: number): Viewport {
  const visible = last - first;
  const end = Math.max(0, Math.min(last, total - 1));
  return { first: Math.max(0, Math.min(first, end - visible)), last: end };
}

// Whether these rows can be shown now. Rows of another generation wait until they fill the screen; the old rows stay
// until then, so that there is no gap.
export function canShow(shown: Rows | null, arrived: Rows, viewport: Viewport): boolean {
  if (arrived.total === 0) return true;
  const { first, last } = clamp(viewport, arrived.total);
  const covers = arrived.offset <= first && last < arrived.offset + arrived.rows.length;
  if (covers) return true;
  const sameThing = shown !== null && shown.query === arrived.query && shown.generation === arrived.generation;
  return sameThing && arrived.rows.length > 0;
}

export interface Changed {
  index: number;
  column: number;
}

// Return the changed cells of rows that were loaded before. After a swap or for another query there are none, because
// every row is new.
export function changedCells(before: Rows | null, after: Rows): Changed[] {
  if (!before || before.query !== after.query || before.generation !== after.generation) return [];
  const places = new Map(before.ids.map((id, i) => [id, i]));
  return after.ids.flatMap((id, i) => {
    const place = places.get(id);
    if (place === undefined) return [];
    const was = before.rows[place] ?? [];
    const row = after.rows[i] ?? [];
    return row.flatMap((value, column) => (same(value, was[column]) ? [] : [{ index: after.offset + i, column }]));
  });
}

function same(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  return typeof one === "object" && typeof other === "object" && JSON.stringify(one) === JSON.stringify(other);
}

export function idAt(rows: Rows | null, index: number): string | undefined {
  return rows?.ids[index - rows.offset];
}

export function sameColumns(one: readonly Column[], other: readonly Column[]): boolean {
  return one.length === other.length && one.every(({ name, type }, i) => other[i]?.name === name && other[i]?.type === type);
}
