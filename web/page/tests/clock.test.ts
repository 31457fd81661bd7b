import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { fromField, localText, toField, utcText, zoneName } from "../src/clock";
import { valueText } from "../src/format";
import { momentText as binText } from "../src/shape";
import { whatChanged } from "../src/timeline";
import { describe as told } from "../src/where";

beforeEach(() => vi.stubEnv("TZ", "Asia/Tokyo"));
afterEach(() => vi.unstubAllEnvs());

test("moments are in the time of this browser, with its zone", () => {
  expect(localText("2026-01-31T20:00:00.500123Z")).toBe("2026-02-01 05:00:00.500 +9");
  expect(localText("2026-01-31T20:00:00Z")).toBe("2026-02-01 05:00:00 +9");
  expect(valueText("2026-01-31T20:00:00Z", "timestamp")).toBe("2026-02-01 05:00:00 +9");
  expect(zoneName()).toBe("UTC+9");
  vi.stubEnv("TZ", "Asia/Kolkata");
  expect(localText("2026-01-31T20:00:00Z")).toBe("2026-02-01 01:30:00 +5:30");
  vi.stubEnv("TZ", "UTC");
  expect([localText("2026-01-31T20:00:00Z"), zoneName()]).toEqual(["2026-01-31 20:00:00 Z", "UTC"]);
});

test("years that no browser knows stay as they came", () => {
  expect(localText("+292278994-08-17T07:12:55.807Z")).toBe("+292278994-08-17T07:12:55.807Z");
  expect(utcText("2026-01-31T20:00:00.5Z")).toBe("2026-01-31 20:00:00.5 UTC");
});

test("fields for moments are local, and the server gets UTC", () => {
  expect(fromField("2026-02-01T05:00:30")).toBe("2026-01-31T20:00:30Z");
  expect(toField("2026-01-31T20:00:30Z")).toBe("2026-02-01T05:00:30");
  expect([fromField(""), toField("")]).toEqual(["", ""]);
  expect(told({ column: "ts", op: ">=", values: ["2026-01-31T20:00:00Z"] }, "timestamp")).toBe("ts ≥ 2026-02-01 05:00:00 +9");
});

test("bins of a day of UTC say when they begin here; dates have no zone", () => {
  const midnight = Date.parse("2026-01-01T00:00:00Z");
  expect(binText(midnight, 86_400_000, false)).toBe("2026-01-01 09:00");
  expect(binText(midnight, 86_400_000, true)).toBe("2026-01-01");
  expect(binText(midnight, 1_000, false)).toBe("2026-01-01 09:00:00");
});

test("moments in a plan are local, too", () => {
  const plans = { from: "users=a start=2026-01-31T20:00:00Z", to: "users=a start=earliest" };
  expect(whatChanged(plans)).toBe("start: 2026-02-01 05:00:00 +9 → earliest");
});
