import { expect, test } from "vitest";
import type { Progress } from "@turnout/client";
import { progressText } from "../src/progress";

test("the progress of a build says what is known of it", () => {
  const known = { generation: 4, state: "catching_up", plan: "", records: 1, lag: null, percent: null };
  expect(progressText(known)).toBe("Generation 4: catching up");
  const more: Progress = { ...known, step: "reading", percent: 42.9, lag: 1, secondsLeft: 83.2 };
  expect(progressText(more)).toBe("Generation 4: reading records, 42\u00a0%, 1 record to go, about 1 min 24 s left");
  expect(progressText({ ...known, percent: 100, secondsLeft: 0 })).toBe("Generation 4: catching up, 100\u00a0%, nearly done");
});
