// The report of a dry run.

import type { DryRunReport, Status } from "@turnout/client";
import { localMoments } from "./clock";
import { element } from "./dom";
import { count } from "./format";

export function reportOf(report: DryRunReport, status: Status): HTMLElement {
  const list = element("dl", "report");
  const add = (label: string, lines: string[]): void => {
    if (lines.length) list.append(element("dt", "", label), ...lines.map((text) => element("dd", "", text)));
  };
  add("would change", changes(report.plan, status));
  add("start", startText(report.plan?.start));
  add("rows of each source", pairs(report.sources).map(([source, origin]) => `${source}: ${originText(origin)}`));
  for (const [view, columns] of pairs(report.columns)) add(`columns of ${view}`, [columnsText(columns)]);
  for (const [view, keys] of pairs(report.sampleUnmatched)) {
    add(`${view}: keys of the sample without a match`, keys.length ? [keys.map(String).join(", ")] : []);
  }
  add("bad records in the sample", (report.sampleBad ?? []).map(badRecord));
  return list;
}

function originText(origin: { kept?: number; read: number }): string {
  const read = `${count(origin.read, "record")} to read`;
  if (origin.kept === undefined) return read;
  return `${count(origin.kept, "row")} kept${origin.read ? `, ${read}` : ""}`;
}

function changes(plan: DryRunReport["plan"] | undefined, status: Status): string[] {
  const topics = pairs(plan?.topics).map(([source, topic]) => [source, status[`${source}Topic`], topic]);
  const joins = pairs(plan?.joins).map(([view, join]) => [`join of ${view}`, status.joinType, join]);
  return [...topics, ...joins]
    .filter(([, now, then]) => now !== then)
    .map(([what, now, then]) => `${String(what)}: ${String(now)} → ${String(then)}`);
}

function startText(start: unknown): string[] {
  if (!start) return [];
  if (typeof start === "object" && "timestamp" in start) return [localMoments(String(start.timestamp))];
  return [typeof start === "string" ? start : JSON.stringify(start)];
}

// Format columns, given as a list of names and types or as an object.
function columnsText(columns: unknown): string {
  if (Array.isArray(columns)) {
    return columns.map(({ name, type }: { name: string; type: string }) => `${name} ${type}`).join(", ");
  }
  return pairs(columns as Record<string, unknown>).map(([name, type]) => `${name} ${String(type)}`).join(", ");
}

function badRecord({ topic, field, reason, value }: DryRunReport["sampleBad"][number]): string {
  const place = field ? `${topic}, field ${field}` : topic;
  return `${place}: ${reason}${value ? ` (${String(value).slice(0, 80)})` : ""}`;
}

const pairs = <T>(object: Record<string, T> | undefined): [string, T][] => Object.entries(object ?? {});
