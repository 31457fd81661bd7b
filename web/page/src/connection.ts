// The state of the connection: a label, a banner with the next attempt, and the title and icon of the browser tab.

import type { ConnectionState, Status, TurnoutClient as Client } from "@turnout/client";
import { timeText } from "./clock";
import { byId, button, element, say, setText } from "./dom";

// The banner appears only if the connection is lost for longer than this.
const PATIENCE_MS = 400;

export class ConnectionSign {
  private state: ConnectionState = { state: "idle" };
  private seenAt: Date | null = null;
  private table = "";
  private status: Status | null = null;
  private awaySince = 0;
  private readonly text = element("span");

  private readonly onAway: (away: boolean) => void;

  constructor(client: Client, onAway: (away: boolean) => void) {
    this.onAway = onAway;
    byId("banner").append(this.text, button("button", "Try now", () => client.reconnect()));
    setInterval(() => this.showBanner(), 250);
  }

  show(state: ConnectionState): void {
    const gone = state.state !== "live";
    if (gone && (this.state.state === "live" || this.awaySince === 0)) this.awaySince = Date.now();
    if (!gone) {
      this.awaySince = 0;
      this.seenAt = new Date();
    }
    this.state = state;
    const pill = byId("connection");
    pill.dataset["state"] = state.state;
    setText(pill, { live: "live", connecting: "connecting", idle: "connecting", away: "away", refused: "no access", closed: "closed" }[state.state]);
    this.showBanner();
    this.showTab();
  }

  showTab(table = this.table, status = this.status): void {
    this.table = table;
    this.status = status;
    const percent = status?.progress?.percent;
    const building = typeof percent === "number" ? `${Math.floor(percent)} % · ` : status?.progress ? "building · " : "";
    const lead = this.state.state === "live" ? building : this.seenAt ? "away · " : "";
    const generation = status ? ` · ${status.generation}` : "";
    const title = table ? `${lead}${table}${generation} · Turnout` : `${lead}Turnout`;
    if (document.title !== title) document.title = title;
    const icon = byId<HTMLLinkElement & HTMLElement>("icon");
    const name = this.state.state !== "live" ? "icon-away" : status?.progress ? "icon-building" : "icon";
    const address = icon.href.replace(/[^/]*$/, `${name}.svg`);
    if (icon.href !== address) icon.href = address;
  }

  // Show the time of the visible data while the server does not answer.
  private showBanner(): void {
    const { state } = this;
    const since = this.seenAt ? `Showing data from ${timeText(this.seenAt)}. ` : "";
    let text = "";
    if (state.state === "away" || (state.state === "connecting" && this.seenAt)) {
      const left = state.state === "away" ? Math.max(0, Math.ceil((state.retryAt - Date.now()) / 1000)) : 0;
      const next = left > 0 ? `trying again in ${left} s` : "trying again now";
      text = `The server does not answer. ${since}${capital(next)}.`;
    } else if (state.state === "refused" && state.error.status !== 401) {
      text = `The server refuses: ${state.error.message}. ${state.error.hint}`;
    }
    const banner = byId("banner");
    const show = text !== "" && Date.now() - this.awaySince >= PATIENCE_MS;
    if (show) setText(this.text, text);
    // Announced once to screen readers, without the countdown.
    if (show && banner.hidden) say(text.replace(/ Trying again.*/, ""));
    if (!show && !banner.hidden && state.state === "live") say("Connected again");
    banner.hidden = !show;
    const { classList } = document.body;
    if (classList.contains("away") !== show) {
      classList.toggle("away", show);
      this.onAway(show);
    }
    if (this.state.state === "live") this.seenAt = new Date();
  }
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
