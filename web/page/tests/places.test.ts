import { expect, test } from "vitest";
import { baseAround, baseAt, boundedBase, isAtEdge, MOST_PLACES, placesFor } from "../src/places";

const MANY = 10_000_000;

test("a table that can be painted has a place for each row", () => {
  expect([placesFor(0), placesFor(MOST_PLACES), placesFor(MANY)]).toEqual([0, MOST_PLACES, MOST_PLACES]);
  expect([baseAt(1, 1000), baseAround(900, 1000), isAtEdge(0, 0, 1000), isAtEdge(999, 0, 1000)]).toEqual([0, 0, false, false]);
});

test("the ends of the bar are the ends of the table", () => {
  expect([baseAt(0, MANY), baseAt(0.5, MANY), baseAt(1, MANY), baseAt(1.01, MANY)]).toEqual([
    0,
    (MANY - MOST_PLACES) / 2,
    MANY - MOST_PLACES,
    MANY - MOST_PLACES,
  ]);
  expect(boundedBase(9_999_999, MANY)).toBe(MANY - MOST_PLACES);
});

test("whoever goes on row by row reaches every row", () => {
  for (const total of [MOST_PLACES + 1, MOST_PLACES + 700, 1_000_000, MANY]) {
    for (const row of [0, 1, 999, 5_000, 30_000, Math.floor(total / 2), total - 30_000, total - 1_000, total - 1]) {
      const base = baseAround(row, total);
      const place = row - base;
      expect(place).toBeGreaterThanOrEqual(0);
      expect(place).toBeLessThan(MOST_PLACES);
      expect(isAtEdge(place, base, total), `row ${row} of ${total}`).toBe(false);
    }
  }
});
