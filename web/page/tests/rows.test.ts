import { describe, expect, test } from "vitest";
import { canShow, cellAt, changedCells, clamp, shouldMove, spanFor, type Rows } from "../src/rows";

function rows(part: Partial<Rows> = {}, count = 100): Rows {
  const offset = part.offset ?? 0;
  const ids = Array.from({ length: count }, (_, i) => `r${offset + i}`);
  return {
    query: 1,
    table: "t",
    generation: 1,
    version: 1,
    total: 1000,
    offset,
    columns: [{ name: "a", type: "string" }],
    ids,
    rows: ids.map((id) => [id]),
    ...part,
  };
}

test("a cell that is not here yet is undefined, and null is a value", () => {
  const shown = rows({ offset: 10, ids: ["x"], rows: [[null]] });
  expect([cellAt(shown, 10, 0), cellAt(shown, 11, 0), cellAt(null, 10, 0)]).toEqual([null, undefined, undefined]);
});

describe("the span to ask for", () => {
  test("has a screen more on both sides, in steps", () => {
    expect(spanFor({ first: 500, last: 529 })).toEqual({ offset: 450, limit: 125 });
    expect(spanFor({ first: 0, last: 29 })).toEqual({ offset: 0, limit: 75 });
  });

  test("never asks for more than the most", () => {
    expect(spanFor({ first: 0, last: 5000 }).limit).toBe(600);
  });

  test("moves before its edge is seen, and not at the ends of the table", () => {
    const span = { offset: 450, limit: 125 };
    expect(shouldMove(span, { first: 500, last: 529 }, 1000)).toBe(false);
    expect(shouldMove(span, { first: 535, last: 564 }, 1000)).toBe(true);
    expect(shouldMove(span, { first: 460, last: 489 }, 1000)).toBe(true);
    expect(shouldMove({ offset: 0, limit: 75 }, { first: 0, last: 29 }, 1000)).toBe(false);
    expect(shouldMove(span, { first: 545, last: 574 }, 575)).toBe(false);
  });

  test("what it gives needs no move at once, wherever the screen is", () => {
    for (let first = 0; first < 960; first += 7) {
      const viewport = { first, last: first + 39 };
      expect(shouldMove(spanFor(viewport), viewport, 1000)).toBe(false);
    }
  });
});

test("clamp moves the screen up when the table became shorter", () => {
  expect(clamp({ first: 900, last: 929 }, 100)).toEqual({ first: 70, last: 99 });
  expect(clamp({ first: 0, last: 29 }, 5)).toEqual({ first: 0, last: 4 });
  expect(clamp({ first: 0, last: 29 }, 0)).toEqual({ first: 0, last: 0 });
});

describe("canShow", () => {
  const screen = { first: 10, last: 39 };

  test("takes rows that fill the screen, of any generation", () => {
    expect(canShow(rows(), rows({ generation: 2 }), screen)).toBe(true);
  });

  test("lets rows of another generation wait that would leave a gap", () => {
    const far = { first: 700, last: 729 };
    expect(canShow(rows({ offset: 650 }), rows({ offset: 650, generation: 2, total: 20, ids: [], rows: [] }), far)).toBe(false);
    expect(canShow(rows({ offset: 650 }), rows({ generation: 2, offset: 100, total: 2000 }), far)).toBe(false);
  });

  test("takes rows of the same generation that fill the screen in part: somebody scrolls", () => {
    expect(canShow(rows(), rows({ offset: 20 }), screen)).toBe(true);
  });

  test("takes an empty table", () => {
    expect(canShow(rows(), rows({ generation: 2, total: 0, ids: [], rows: [] }), screen)).toBe(true);
  });

  test("lets the first rows of another question wait that would leave a gap", () => {
    expect(canShow(rows(), rows({ query: 2, offset: 50 }), { first: 0, last: 29 })).toBe(false);
  });
});

describe("changedCells", () => {
  const before = rows({ ids: ["x", "y"], rows: [["1"], ["2"]] }, 2);

  test("finds a row where it is now", () => {
    const after = rows({ version: 2, ids: ["new", "x", "y"], rows: [["0"], ["1"], ["3"]] });
    expect(changedCells(before, after)).toEqual([{ index: 2, column: 0 }]);
  });

  test("finds nothing in a swap, or in the answer to another question", () => {
    const changed = { ids: ["x", "y"], rows: [["9"], ["9"]] };
    expect(changedCells(before, rows({ ...changed, generation: 2 }))).toEqual([]);
    expect(changedCells(before, rows({ ...changed, query: 2 }))).toEqual([]);
    expect(changedCells(null, rows(changed))).toEqual([]);
    expect(changedCells(before, rows(changed))).toHaveLength(2);
  });
});
