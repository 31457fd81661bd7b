// How things stand with the server, for people: a pill, a banner with the next try, the title and the icon of the tab.

import type { ConnectionState, Status, TurnoutClient as Client } from "@turnout/client";
import { timeText } from "./clock";
import { byId, button, element, say, setText } from "./dom";

// A moment without a connection is not worth a banner.
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

  // The data of before stays; this says from when it is.
  private showBanner(): void {
    const { state } = this;
    const since = this.seenAt ? `Showing data of ${timeText(this.seenAt)}. ` : "";
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
    // Said once: the countdown is for those who see it.
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
