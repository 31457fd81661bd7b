// The header: topics, join, generation, lag, record rate and the age of the newest record. The status arrives about
// once a second; ages are updated in between.

import type { SinkStatus, Status } from "@turnout/client";
import { byId, element, say, setText } from "./dom";
import { ago, compact, rate, words } from "./format";
import { Sparkline } from "./spark";

const TICK_MS = 1000;
const STALE_MS = 60_000;

interface Stat {
  box: HTMLElement;
  value: HTMLElement;
}

export const topicFields = (status: Status): string[] => {
  const known = status.sources?.map((source) => `${source}Topic`);
  return known ?? Object.keys(status).filter((name) => name.endsWith("Topic"));
};

export class Header {
  private readonly list = byId("stats");
  private readonly stats = new Map<string, Stat>();
  private readonly lagLine = new Sparkline();
  private readonly rateLine = new Sparkline();
  private status: Status | null = null;
  // How many milliseconds the server's clock is ahead of the browser's.
  private skewMs = 0;
  private away = false;

  constructor() {
    setInterval(() => this.showAge(), TICK_MS);
  }

  show(status: Status): void {
    if (typeof status.time === "string") this.skewMs = Date.parse(status.time) - Date.now();
    const before = this.status;
    this.status = status;
    for (const field of topicFields(status)) {
      const { box } = this.set(field, field.replace(/Topic$/, ""), textOf(status[field]));
      box.classList.add("topic");
      box.title = textOf(status[field]);
    }
    this.set("join", "join", textOf(status.joinType));
    this.set("generation", "generation", textOf(status.generation));
    if (before && status.generation !== before.generation) this.pulse(status);
    this.showNow(status);
    this.lagLine.add(status.lag ?? 0);
    this.rateLine.add(status.recordsPerSecond ?? 0);
    this.showSinks(status.sinks ?? []);
    this.showTrouble(status);
  }

  // While the server is away, its state, lag and rate are unknown.
  setAway(away: boolean): void {
    this.away = away;
    if (this.status) this.showNow(this.status);
  }

  private showNow(status: Status): void {
    const told = this.away ? "away" : textOf(status.state);
    this.set("state", "state", words(told)).box.dataset["state"] = told;
    this.showAge();
    const known = !this.away && typeof status.lag === "number";
    this.set("lag", "lag", known ? compact(status.lag ?? 0) : "-", this.lagLine);
    this.set("rate", "records/s", this.away ? "-" : rate(status.recordsPerSecond ?? 0), this.rateLine);
  }

  private showAge(): void {
    if (!this.status) return;
    const newest = this.status.newestRecord;
    const elapsed = typeof newest === "string" ? Date.now() + this.skewMs - Date.parse(newest) : null;
    const fresh = this.set("fresh", "newest record", elapsed === null ? "-" : ago(elapsed));
    fresh.box.classList.toggle("stale", elapsed !== null && elapsed > STALE_MS);
    fresh.box.title = typeof newest === "string" ? newest : "";
  }

  private showSinks(sinks: SinkStatus[]): void {
    if (!sinks.length && !this.stats.has("sinks")) return;
    const { state, text, lines } = describeSinks(sinks);
    const { box } = this.set("sinks", "sinks", text);
    box.hidden = !sinks.length;
    box.dataset["state"] = state;
    box.title = lines.join("\n");
  }

  private showTrouble(status: Status): void {
    const text = status.ready === false ? (status.reason ?? "not ready") : "";
    setText(byId("trouble"), text);
    byId("trouble").hidden = !text;
  }

  private pulse(status: Status): void {
    const { box } = this.set("generation", "generation", textOf(status.generation));
    box.classList.remove("pulse");
    void box.offsetWidth; // restarts the animation
    box.classList.add("pulse");
    say(`Generation ${status.generation} is published: ${describePlan(status)}`);
  }

  private set(key: string, label: string, text: string, line?: Sparkline): Stat {
    let stat = this.stats.get(key);
    if (!stat) {
      const value = element("dd");
      const box = element("div", `stat ${key}`, element("dt", "", label), value);
      if (line) box.append(line.element);
      this.list.append(box);
      stat = { box, value };
      this.stats.set(key, stat);
    }
    setText(stat.value, text);
    return stat;
  }
}

// Summarize all sinks in two words, and describe each in one line.
export function describeSinks(sinks: SinkStatus[]): { state: string; text: string; lines: string[] } {
  const failing = sinks.filter((sink) => sink.state === "failing");
  const rows = sinks.reduce((sum, sink) => sum + (sink.waitingRows ?? 0), 0);
  const state = failing.length ? "failing" : sinks.some((sink) => sink.state === "starting") ? "starting" : rows ? "behind" : "written";
  const only = failing.length === 1 && failing[0] ? `${failing[0].name} fails` : `${failing.length} fail`;
  const text = { failing: only, starting: "starting", behind: `${compact(rows)} rows wait`, written: "up to date" }[state] ?? state;
  const lines = sinks.map((sink) => {
    const waits = sink.waitingRows ? `, ${compact(sink.waitingRows)} rows wait` : "";
    return `${sink.name}: ${sink.table} to topic ${sink.topic}, ${words(sink.delivery)}${sink.error ? `: ${sink.error}` : waits}`;
  });
  return { state, text, lines };
}

export function describePlan(status: Status): string {
  const topics = topicFields(status).map((field) => `${field.replace(/Topic$/, "")} from ${textOf(status[field])}`);
  return [...topics, `${textOf(status.joinType)} join`].join(", ");
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return "-";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
