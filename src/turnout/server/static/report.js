// What a dry run found, for people to read.

import { count, element } from "./dom.js";

export function reportOf(report, status) {
  const list = element("dl", "report");
  const add = (label, lines) => {
    if (lines.length) list.append(element("dt", "", label), ...lines.map((line) => element("dd", "", line)));
  };
  add("would change", changes(report.plan, status));
  add("start", report.plan?.start ? [report.plan.start.timestamp ?? report.plan.start] : []);
  add("records to read first", pairs(report.records).map(([source, n]) => `${source}: ${count(n, "record")}`));
  for (const [view, columns] of pairs(report.columns)) {
    add(`columns of ${view}`, [pairs(columns).map(([name, type]) => `${name} ${type}`).join(", ")]);
  }
  for (const [view, keys] of pairs(report.sampleUnmatched)) {
    add(`${view}: keys of the sample without a match`, keys.length ? [keys.join(", ")] : []);
  }
  add("bad records in the sample", (report.sampleBad ?? []).map(badRecord));
  return list;
}

function changes(plan, status) {
  const found = [];
  for (const [source, topic] of pairs(plan?.topics)) {
    const now = status[`${source}Topic`];
    if (now !== topic) found.push(`${source}: ${now} → ${topic}`);
  }
  for (const [view, join] of pairs(plan?.joins)) {
    if (status.joinType !== join) found.push(`join of ${view}: ${status.joinType} → ${join}`);
  }
  return found;
}

function badRecord({ topic, field, reason, value }) {
  const place = field ? `${topic}, field ${field}` : topic;
  return `${place}: ${reason}${value ? ` (${String(value).slice(0, 80)})` : ""}`;
}

const pairs = (object) => Object.entries(object ?? {});
