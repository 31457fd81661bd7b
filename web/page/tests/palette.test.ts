import { expect, test } from "vitest";
import { Palette } from "../src/palette";

test("a line keeps its colour when ranks change and when others come and go", () => {
  const palette = new Palette(3);
  expect(palette.of(["gold", "basic"])).toEqual([1, 0]);
  expect(palette.of(["basic", "credit", "gold"])).toEqual([0, 2, 1]);
  expect(palette.of(["credit"])).toEqual([2]);
  expect(palette.of(["gold", "credit"])).toEqual([1, 2]);
});

test("a new line takes the colour of the one that was gone longest, and never that of one that is shown", () => {
  const palette = new Palette(3);
  palette.of(["a", "b", "c"]);
  expect(palette.of(["c", "b"])).toEqual([2, 1]);
  expect(palette.of(["c", "b", "new"])).toEqual([2, 1, 0]);
});
