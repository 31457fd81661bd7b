// The tab strip of the SQL view, with a close button for each tab. The texts are stored until this browser tab is
// closed; the SQL view has the contents of the tabs.

import { byId, button, element } from "./dom";
import { readSqlChart, type SqlChart } from "./sql-chart";

const KEY = "turnout.sql.tabs";
export const MOST_TABS = 12;

export interface KeptTab {
  text: string;
  live: boolean;
  chart: SqlChart | null;
}

// Return the name of a tab: its number, and the first table that it reads.
export function tabName(text: string, place: number): string {
  const [, quoted, plain] = /\bfrom\s+(?:"([^"]+)"|([\p{L}_][\p{L}\p{N}_@]*))/iu.exec(text) ?? [];
  return `${place} ${quoted ?? plain ?? (text.trim() ? "SELECT" : "new")}`;
}

export function readTabs(found: unknown): { tabs: KeptTab[]; active: number } {
  const { tabs, active } = (found ?? {}) as { tabs?: unknown; active?: unknown };
  const kept = (Array.isArray(tabs) ? tabs : [])
    .map((tab: unknown) => (tab ?? {}) as Partial<KeptTab>)
    .filter((tab) => typeof tab.text === "string")
    .slice(0, MOST_TABS)
    .map(({ text, live, chart }) => ({ text: text!, live: live === true, chart: readSqlChart(chart) }));
  const place = typeof active === "number" && kept[active] ? active : 0;
  return { tabs: kept, active: place };
}

export function storedTabs(): { tabs: KeptTab[]; active: number } {
  try {
    return readTabs(JSON.parse(sessionStorage.getItem(KEY) ?? "null"));
  } catch {
    return readTabs(null);
  }
}

export function storeTabs(tabs: readonly KeptTab[], active: number): void {
  try {
    const kept = tabs.map(({ text, live, chart }) => ({ text, live, chart }));
    sessionStorage.setItem(KEY, JSON.stringify({ tabs: kept, active }));
  } catch {
    // The browser refuses storage, so a reload shows only the text of the address.
  }
}

export interface TabEvents {
  onChoose(place: number): void;
  onClose(place: number): void;
  onNew(): void;
}

export class TabStrip {
  private readonly strip = byId("sql-tabs");
  private readonly events: TabEvents;
  private drawn = "";

  constructor(events: TabEvents) {
    this.events = events;
    byId("sql-new").addEventListener("click", () => events.onNew());
    this.strip.addEventListener("keydown", (event) => this.move(event));
  }

  show(texts: readonly string[], active: number): void {
    const names = texts.map((text, i) => tabName(text, i + 1));
    const key = JSON.stringify([names, active]);
    if (key === this.drawn) return;
    this.drawn = key;
    const hadFocus = this.strip.contains(document.activeElement);
    this.strip.replaceChildren(...names.map((name, i) => this.tab(name, i, i === active, names.length > 1)));
    byId("sql-new").hidden = names.length >= MOST_TABS;
    if (hadFocus) this.chosen?.focus();
  }

  private get chosen(): HTMLElement | null {
    return this.strip.querySelector<HTMLElement>("[aria-selected=true]");
  }

  private tab(name: string, place: number, isActive: boolean, closes: boolean): HTMLElement {
    const choose = button("tab-name", name, () => this.events.onChoose(place));
    choose.setAttribute("role", "tab");
    choose.setAttribute("aria-selected", String(isActive));
    choose.setAttribute("aria-controls", "sql-editor");
    choose.tabIndex = isActive ? 0 : -1;
    const made = element("span", isActive ? "tab chosen" : "tab", choose);
    made.setAttribute("role", "presentation");
    if (closes) {
      const close = button("tab-close", "✕", () => this.events.onClose(place));
      close.setAttribute("aria-label", `Close tab ${name}`);
      made.append(close);
    }
    return made;
  }

  private move(event: KeyboardEvent): void {
    const names = [...this.strip.querySelectorAll<HTMLElement>("[role=tab]")];
    const at = names.indexOf(document.activeElement as HTMLElement);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (at < 0) return;
    if (event.key === "Delete" && names.length > 1) this.events.onClose(at);
    else if (step) this.events.onChoose((at + step + names.length) % names.length);
    else return;
    event.preventDefault();
    this.chosen?.focus();
  }
}
