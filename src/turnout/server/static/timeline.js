// The history of swaps, newest first; read again only when its table has another version.

import { getJson } from "./api.js";
import { byId, element } from "./dom.js";

const SHOWN = 30;
let versionShown = null;

export async function showTimeline(tables) {
  const version = tables.find((table) => table.name === "swaps")?.version ?? null;
  if (version === versionShown) return;
  const { rows } = await getJson(`/api/tables/swaps/rows?sort=-ts&limit=${SHOWN}`);
  versionShown = version;
  const published = rows.find((row) => row.outcome !== "failed");
  byId("timeline").replaceChildren(...rows.map((row) => entry(row, row === published)));
  byId("no-swaps").hidden = rows.length > 0;
}

function entry(row, isPublished) {
  const failed = row.outcome === "failed";
  const line = element("li", `${row.outcome}${isPublished ? " published" : ""}`);
  const title = element("strong", "", failed ? "Not published" : `Generation ${row.generation}`);
  const outcome = element("span", "tag", row.outcome.replaceAll("_", " "));
  line.append(element("div", "title", title, outcome, moment(row.ts)), element("p", "what", whatChanged(row)));
  if (failed && row.detail) line.append(element("p", "why", row.detail));
  line.append(element("p", "more", `by ${row.requester}${row.requestId ? ` (${row.requestId})` : ""}, ${duration(row)}`));
  const parts = { build: row.buildSeconds, "catch-up": row.catchUpSeconds, publish: row.publishSeconds };
  line.title = Object.entries(parts).map(([part, took]) => `${part} ${seconds(took)}`).join(", ");
  return line;
}

function moment(ts) {
  const at = new Date(ts);
  const today = at.toDateString() === new Date().toDateString();
  const made = element("time", "", today ? at.toLocaleTimeString() : at.toLocaleString());
  made.dateTime = ts;
  return made;
}

// Plans are told as `users=users2 accounts=accounts join=left`, with start only where it is not latest.
function whatChanged(row) {
  if (!row.from) return row.to;
  const before = words(row.from);
  const after = words(row.to);
  const names = [...new Set([...before.keys(), ...after.keys()])];
  const changed = names.filter((name) => before.get(name) !== after.get(name));
  const word = (plan, name) => plan.get(name) ?? (name === "start" ? "latest" : "none");
  return changed.map((name) => `${name}: ${word(before, name)} → ${word(after, name)}`).join(", ") || row.to;
}

function words(plan) {
  return new Map(plan.split(" ").map((word) => [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
}

function duration(row) {
  return seconds(row.buildSeconds + row.catchUpSeconds + row.publishSeconds);
}

function seconds(value) {
  if (value === null || Number.isNaN(value)) return "-";
  return value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(value < 10 ? 1 : 0)} s`;
}
