// The rows of a review: each changed cell has the old and the new value. A plain table is enough, because at most a
// thousand rows are shown; the numbers above count all of them.

import type { ChangedRow, ColumnInfo, Difference } from "@turnout/client";
import { isNumeric } from "./column-types";
import { button, byId, element, setText } from "./dom";
import { decimalsOf, number, numberText, valueText, type Value } from "./format";
import { pairOf, shownText, type Change, type Review } from "./review";
import { nextSort, type SortKey } from "./where";

const CHANGES: readonly [Change | null, string][] = [
  [null, "all"],
  ["changed", "changed"],
  ["added", "added"],
  ["removed", "removed"],
];

export interface ReviewRowsEvents {
  onSort(sort: SortKey[]): void;
  onChange(change: Change | null): void;
}

export class ReviewRows {
  private readonly events: ReviewRowsEvents;
  private readonly table = byId<HTMLTableElement>("review-table");
  private readonly counts = new Map<Change | null, HTMLElement>();
  private readonly choices = new Map<Change | null, HTMLInputElement>();
  private readonly heads = new Map<string, { cell: HTMLElement; sign: HTMLElement }>();
  private drawn = "";
  private drawnHead = "";
  private sort: SortKey[] = [];

  constructor(events: ReviewRowsEvents) {
    this.events = events;
    for (const [change, label] of CHANGES) {
      const input = element("input");
      Object.assign(input, { type: "radio", name: "review-change" });
      input.addEventListener("change", () => events.onChange(change));
      const figure = element("small");
      byId("review-changes").append(element("label", "", input, element("span", "", `${label} `, figure)));
      this.choices.set(change, input);
      this.counts.set(change, figure);
    }
  }

  // Unchanged rows are not redrawn, because the user may be selecting text.
  show(found: Difference, { change, sort }: Review): void {
    this.sort = sort;
    const { counts, rows, total } = found;
    const all = counts.added + counts.removed + counts.changed;
    for (const [kind, figure] of this.counts) setText(figure, number(kind === null ? all : counts[kind]));
    for (const [kind, input] of this.choices) input.checked = kind === change;
    setText(byId("review-shown"), shownText(rows.length, total));
    const key = JSON.stringify([found.table, found.columns.map(({ name, type }) => [name, type]), rows, sort]);
    if (key === this.drawn) return;
    this.drawn = key;
    this.drawHead(found.columns, found.key);
    this.table.tBodies[0]!.replaceChildren(...rows.map((row) => line(row, found.columns)));
  }

  clear(): void {
    this.drawn = this.drawnHead = "";
    this.table.tHead!.replaceChildren();
    this.table.tBodies[0]!.replaceChildren();
    setText(byId("review-shown"), "");
  }

  // Keep the buttons while the columns are the same: replacing a button while it is pressed would lose the click.
  private drawHead(columns: readonly ColumnInfo[], key: readonly string[]): void {
    const drawn = JSON.stringify([columns.map(({ name, type }) => [name, type]), key]);
    if (drawn !== this.drawnHead) {
      this.drawnHead = drawn;
      this.heads.clear();
      const change = element("th", "", "change");
      change.scope = "col";
      this.table.tHead!.replaceChildren(element("tr", "", change, ...columns.map(({ name, type }) => this.head(name, type, key.includes(name)))));
    }
    for (const [name, { cell, sign }] of this.heads) {
      const at = this.sort.findIndex(({ column }) => column === name);
      const order = this.sort[at];
      cell.setAttribute("aria-sort", !order ? "none" : order.descending ? "descending" : "ascending");
      setText(sign, order ? ` ${order.descending ? "▼" : "▲"}${this.sort.length > 1 ? at + 1 : ""}` : "");
    }
  }

  private head(name: string, type: string, isKey: boolean): HTMLElement {
    const cell = element("th", isNumeric(type) ? "number" : "");
    cell.scope = "col";
    const sorts = button("", name, (event) => {
      // Set at once, because the next click may come before the rows arrive.
      this.sort = nextSort(this.sort, name, event.shiftKey || event.ctrlKey);
      this.events.onSort(this.sort);
    });
    const sign = element("span", "head-order");
    if (isKey) sorts.append(element("small", "key-mark", "key"));
    sorts.append(sign);
    cell.append(sorts);
    this.heads.set(name, { cell, sign });
    return cell;
  }
}

function line(row: ChangedRow, columns: readonly ColumnInfo[]): HTMLElement {
  const made = element("tr", `is-${row.change}`, element("td", "", element("span", "tag", row.change)));
  for (const { name, type } of columns) {
    const { from, to, changed } = pairOf(row, name);
    const cell = element("td", [isNumeric(type) ? "number" : "", changed ? "changed" : ""].join(" ").trim());
    if (changed) cell.append(element("del", "", textOf(from, type)), " ", element("ins", "", textOf(to, type)));
    else cell.append(textOf(row.change === "removed" ? from : to, type));
    made.append(cell);
  }
  return made;
}

function textOf(value: Value, type: string): string {
  if (value === "") return "(empty text)";
  return isNumeric(type) && value !== null && value !== undefined ? numberText(value, decimalsOf(value)) : valueText(value, type);
}
