// The bell in the header: the newest events of alerts, the number of unseen ones, and links to the rows of each alert.

import type { AlertState, TurnoutClient } from "@turnout/client";
import { timeText } from "./clock";
import { button, byId, element, setText } from "./dom";
import { closePopover, openPopover } from "./popover";

const SHOWN = 20;
const SEEN = "turnout.alerts.seen";

type Event = Record<string, unknown>;

export class Bell {
  private readonly bell = byId("bell");
  private readonly count = byId("bell-count");
  private readonly onOpen: (table: string, where: string) => void;
  private readonly list = element("ul", "bell-events");
  private alerts: readonly AlertState[] = [];
  private events: readonly Event[] = [];

  constructor(client: TurnoutClient, onOpen: (table: string, where: string) => void) {
    this.onOpen = onOpen;
    this.bell.addEventListener("click", () => this.open());
    client.window({ table: "alerts", sort: "-ts", limit: SHOWN }, { onRows: (rows) => this.show(rows), onError: () => undefined });
  }

  // Set the alerts and the state of their targets.
  setAlerts(alerts: readonly AlertState[]): void {
    this.alerts = alerts;
    this.showCount();
  }

  private show(events: readonly Event[]): void {
    this.events = events;
    if (this.list.isConnected) this.fill();
    this.showCount();
  }

  private open(): void {
    this.fill();
    const all = button("button small", "All events", () => this.go("alerts", ""));
    openPopover(this.bell, "Alerts", [element("strong", "", "Alerts"), ...this.failing(), this.list, element("div", "actions", all)]);
    const newest = this.events[0];
    if (newest) localStorage.setItem(SEEN, String(newest["ts"]));
    this.showCount();
  }

  private fill(): void {
    const none = element("li", "quiet", "No events yet.");
    this.list.replaceChildren(...(this.events.length ? this.events.map((event) => this.entry(event)) : [none]));
  }

  private entry(event: Event): HTMLElement {
    const name = String(event["alert"]);
    const alert = this.alerts.find((one) => one.name === name);
    const text = `${name}: ${String(event["key"] ?? "no key")} ${String(event["event"])}`;
    const line = button("plain bell-event", text, () => (alert ? this.go(alert.table, alert.where) : this.go("alerts", "")));
    line.dataset["event"] = String(event["event"]);
    const more = event["delivered"] === "delivered" ? "" : ` · ${String(event["delivered"])}`;
    line.append(element("small", "quiet", timeText(new Date(String(event["ts"]))) + more));
    return element("li", "", line);
  }

  private failing(): HTMLElement[] {
    return this.alerts.flatMap(({ name, error }) => (error ? [element("p", "bad small", `${name}: ${error}`)] : []));
  }

  private go(table: string, where: string): void {
    closePopover();
    this.onOpen(table, where);
  }

  private showCount(): void {
    const seen = localStorage.getItem(SEEN) ?? "";
    const fresh = this.events.filter((event) => String(event["ts"]) > seen).length;
    const failing = this.failing().length > 0;
    this.bell.hidden = this.alerts.length === 0 && this.events.length === 0;
    this.count.hidden = fresh === 0 && !failing;
    setText(this.count, fresh === 0 ? "!" : fresh === SHOWN ? `${SHOWN}+` : String(fresh));
    this.bell.setAttribute("aria-label", `Alerts: ${fresh || "no"} new${failing ? ", and one is not delivered" : ""}`);
  }
}
