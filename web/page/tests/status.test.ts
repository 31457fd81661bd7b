import { describe, expect, it } from "vitest";
import type { SinkStatus } from "@turnout/client";
import { describeSinks } from "../src/status";

const sink = (more: Partial<SinkStatus> = {}): SinkStatus => ({
  name: "final_out",
  table: "final_ui",
  topic: "final-joined",
  format: "json",
  delivery: "exactly_once",
  state: "writing",
  error: null,
  generation: 1,
  version: 3,
  records: 10,
  lastWritten: null,
  waitingVersions: 0,
  waitingRows: 0,
  ...more,
});

describe("sinks in the header", () => {
  it("says that all is written", () => {
    expect(describeSinks([sink(), sink()])).toMatchObject({ state: "written", text: "up to date" });
  });

  it("counts the rows that wait", () => {
    expect(describeSinks([sink({ waitingRows: 1200 }), sink({ waitingRows: 34 })]).state).toBe("behind");
    expect(describeSinks([sink({ waitingRows: 34 })])).toMatchObject({ text: "34 rows wait" });
  });

  it("names one that fails, with its error", () => {
    const found = describeSinks([sink(), sink({ name: "other", state: "failing", error: "no topic" })]);
    expect(found).toMatchObject({ state: "failing", text: "other fails" });
    expect(found.lines[1]).toBe("other: final_ui to topic final-joined, exactly once: no topic");
    expect(describeSinks([sink({ state: "failing" }), sink({ state: "failing" })]).text).toBe("2 fail");
  });
});
