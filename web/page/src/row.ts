// The panel of one row: every column with its full value, JSON indented, and copy buttons. It follows the row while the
// row is in the loaded window; a row opened by its address has its own subscription.

import { utcText } from "./clock";
import { copyNow } from "./clipboard";
import { button, element } from "./dom";
import { copyText, number, prettyJson, valueText, type Value } from "./format";
import type { Why } from "@turnout/client";
import type { Column, Rows } from "./rows";
import { WhyPart } from "./why";

export interface RowEvents {
  onClose(): void;
  // Called with the id of an opened row, if rows have addresses.
  onOpen?(id: string): void;
  address?(): string;
  // Returns the records of a row, if its table has records.
  why?(table: string, row: string): Promise<Why>;
}

export class RowPanel {
  private readonly panel: HTMLElement;
  private readonly events: RowEvents;
  private readonly why: WhyPart | null;
  private open: { id: string; table: string; generation: number; isAlone: boolean } | null = null;
  private drawn = "";
  private pretty = true;

  constructor(panel: HTMLElement, events: RowEvents) {
    this.panel = panel;
    this.events = events;
    this.why = events.why ? new WhyPart(events.why) : null;
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  get isOpen(): boolean {
    return this.open !== null;
  }

  show(rows: Rows, index: number): void {
    const place = index - rows.offset;
    const id = rows.ids[place];
    if (id === undefined) return;
    this.open = { id, table: rows.table, generation: rows.generation, isAlone: false };
    this.panel.classList.remove("old");
    this.draw(rows, place);
    this.panel.hidden = false;
    this.panel.querySelector<HTMLElement>("h3")?.focus();
    this.events.onOpen?.(id);
  }

  // Show a row by its address; `rows` contains only this row, or nothing if the table does not have it.
  showAlone(id: string, rows: Rows): void {
    const wasOpen = this.open?.id === id;
    this.panel.hidden = false;
    this.panel.classList.toggle("old", wasOpen && rows.total === 0);
    if (rows.total > 0) this.draw(rows, 0, true);
    else if (!wasOpen) this.drawNone();
    this.open = { id, table: rows.table, generation: rows.generation, isAlone: true };
  }

  // Update the open row. After a swap the ids differ, so the panel keeps the row and marks it as old.
  follow(rows: Rows): void {
    if (!this.open) return;
    if (rows.table !== this.open.table) return this.close();
    if (this.open.isAlone) return;
    const place = rows.generation === this.open.generation ? rows.ids.indexOf(this.open.id) : -1;
    this.panel.classList.toggle("old", rows.generation !== this.open.generation);
    if (place >= 0) this.draw(rows, place);
  }

  close(): void {
    if (!this.open) return;
    this.open = null;
    this.drawn = "";
    this.panel.hidden = true;
    this.events.onClose();
  }

  private drawNone(): void {
    const text = "This row is not in the table now. A swap may have brought other rows, or it was removed.";
    this.panel.replaceChildren(this.heading("Row", ""), element("p", "quiet", text));
  }

  private heading(title: string, note: string): HTMLElement {
    const heading = element("h3", "", title);
    heading.tabIndex = -1;
    const made = element("div", "heading", heading, element("span", "quiet", note));
    const { address } = this.events;
    if (address) {
      const link = button("button plain small", "copy link", () => copyNow(address(), link));
      link.setAttribute("aria-label", "Copy a link to this row");
      made.append(link);
    }
    const close = button("button icon plain", "✕", () => this.close());
    close.setAttribute("aria-label", "Close the row");
    made.append(close);
    return made;
  }

  private draw(rows: Rows, place: number, isAlone = false): void {
    const row = rows.rows[place] ?? [];
    // An unchanged row is not redrawn, because the user may be selecting text.
    const key = JSON.stringify([rows.table, rows.ids[place], rows.columns, row, this.pretty]);
    const title = isAlone ? "Row" : `Row ${number(rows.offset + place + 1)}`;
    if (key === this.drawn) {
      this.panel.querySelector("h3")?.replaceChildren(title);
      return;
    }
    this.drawn = key;
    const top = this.heading(title, `generation ${rows.generation}`);
    const fields = element("dl", "values");
    rows.columns.forEach((column, i) => fields.append(...this.field(column, row[i] as Value, rows, place)));
    const before = this.panel.scrollTop;
    this.why?.follow(rows.table, rows.generation, rows.ids[place] ?? "", JSON.stringify(row));
    this.panel.replaceChildren(top, fields, ...(this.why ? [this.why.element] : []));
    this.panel.scrollTop = before;
  }

  private field(column: Column, value: Value, rows: Rows, place: number): HTMLElement[] {
    const json = typeof value === "string" ? prettyJson(value) : null;
    const name = element("dt", "", column.name, element("small", "quiet", column.type));
    if (json !== null) {
      const toggle = button("button plain small", this.pretty ? "unformatted" : "formatted", () => {
        this.pretty = !this.pretty;
        this.draw(rows, place, this.open?.isAlone);
      });
      name.append(toggle);
    }
    const copy = button("button plain small copy", "copy", () => copyNow(copyText(value), copy));
    copy.setAttribute("aria-label", `Copy ${column.name}`);
    name.append(copy);
    const text = json !== null && this.pretty ? json : shownText(value, column);
    const shown = element("dd", value === null ? "null" : "", element("pre", "", text));
    if (column.type === "timestamp" && typeof value === "string") shown.title = utcText(value);
    return [name, shown];
  }
}

function shownText(value: Value, column: Column): string {
  return value === "" ? "(empty text)" : valueText(value, column.type);
}
