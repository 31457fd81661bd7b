// The list of tables with their row counts: first data, then tables about operations.

import type { TableInfo } from "@turnout/client";
import { byId, element, fit, setText } from "./dom";
import { isNumeric } from "./column-types";
import { compact, number } from "./format";
import type { Column } from "./rows";

// The tables about operations, in the order of the list.
export const OPERATIONS = ["join_quality", "bad_records", "swaps", "alerts", "control_raw", "orchestrator_logs", "orchestrator_status"];
const JOURNALS = ["bad_records", "swaps", "alerts", "control_raw", "orchestrator_logs"];

// The first columns of tables about operations; the other columns follow in their own order.
// Maps instead of objects: a table may be named like a property that every object has, such as constructor.
const READ_FIRST = new Map([
  ["bad_records", ["ts", "topic", "reason", "field", "value"]],
  ["control_raw", ["ts", "outcome", "requester", "raw", "detail"]],
  ["swaps", ["ts", "generation", "outcome", "from", "to"]],
]);
const EXAMPLES = new Map([
  ["bad_records", "reason contains JSON, topic = users"],
  ["control_raw", "outcome = rejected, raw contains users"],
  ["orchestrator_logs", "level = ERROR, msg contains swap"],
  ["orchestrator_status", "state = live"],
  ["swaps", "outcome = failed, generation >= 2"],
]);

const baseName = (table: string): string => table.split("@")[0] ?? table;

// Return the indexes of the columns in the order to show.
export function inReadingOrder(table: string, columns: readonly Column[]): number[] {
  const first = (READ_FIRST.get(baseName(table)) ?? []).map((name) => columns.findIndex((column) => column.name === name));
  const known = first.filter((i) => i >= 0);
  return [...known, ...[...columns.keys()].filter((i) => !known.includes(i))];
}

// Return an example of a condition, with columns of the table.
export function exampleOf(table: string, columns: readonly Column[]): string {
  const known = EXAMPLES.get(baseName(table));
  if (known) return known;
  const counted = columns.find(({ type }) => isNumeric(type));
  const text = columns.find(({ name, type }) => type === "string" && !/id$/i.test(name));
  return [counted && `${counted.name} >= 30`, text && `${text.name} contains an`].filter(Boolean).join(", ");
}

export const isJournal = (table: string): boolean => JOURNALS.includes(baseName(table));

// Group the tables; tables whose name starts with `final` come first.
export function grouped(tables: readonly TableInfo[]): { data: TableInfo[]; operations: TableInfo[] } {
  const place = (name: string): number => OPERATIONS.indexOf(name);
  const isFinal = (name: string): number => (name.startsWith("final") ? 0 : 1);
  const data = tables.filter(({ name }) => place(name) < 0);
  const operations = tables.filter(({ name }) => place(name) >= 0);
  return {
    data: data.sort((a, b) => isFinal(a.name) - isFinal(b.name)),
    operations: operations.sort((a, b) => place(a.name) - place(b.name)),
  };
}

export class TableList {
  private readonly nav = byId("tables");
  private readonly onChoose: (table: string) => void;
  private readonly lists = { data: list("Data"), ask: list("Ask"), operations: list("Operations") };
  private readonly sql = element("button", "", element("span", "table-name", "SQL"));

  constructor(onChoose: (table: string) => void, onSql: () => void) {
    this.onChoose = onChoose;
    this.sql.id = "sql-open";
    this.sql.type = "button";
    this.sql.addEventListener("click", onSql);
    this.lists.ask.items.append(element("li", "", this.sql));
    this.lists.ask.group.hidden = true;
    this.nav.append(this.lists.data.group, this.lists.ask.group, this.lists.operations.group);
    this.nav.addEventListener("keydown", (event) => this.move(event));
  }

  // The table to show if the address names none.
  get first(): string | undefined {
    return this.tables()[0]?.dataset["table"];
  }

  show(tables: TableInfo[]): void {
    const groups = grouped(tables);
    for (const name of ["data", "operations"] as const) {
      const items = fit(this.lists[name].items, groups[name].length, () => this.item());
      groups[name].forEach((table, i) => setItem(items[i]!, table));
      this.lists[name].group.hidden = groups[name].length === 0;
    }
  }

  // Set the row count of a table, if it is known before the next list.
  setCount(table: string, rows: number): void {
    const item = this.tables().find((one) => one.dataset["table"] === table);
    if (item) setCount(item, rows);
  }

  // Mark the chosen table; null marks SQL, an empty name marks none.
  choose(table: string | null): void {
    for (const item of this.buttons()) {
      const chosen = table === null ? item === this.sql : item.dataset["table"] === table;
      if (chosen) item.setAttribute("aria-current", "true");
      else item.removeAttribute("aria-current");
      if (chosen && item.offsetParent && this.nav.scrollWidth > this.nav.clientWidth) {
        item.scrollIntoView({ inline: "nearest", block: "nearest" });
      }
    }
  }

  // Return the next or previous table, for a keyboard shortcut.
  neighbour(table: string, step: number): string | undefined {
    const names = this.tables().map((item) => item.dataset["table"] ?? "");
    return names[(names.indexOf(table) + step + names.length) % names.length];
  }

  setSql(allowed: boolean): void {
    this.lists.ask.group.hidden = !allowed;
  }

  private tables(): HTMLElement[] {
    return this.buttons().filter((item) => item !== this.sql);
  }

  private buttons(): HTMLElement[] {
    return [...this.nav.querySelectorAll<HTMLElement>(".group:not([hidden]) button")];
  }

  private item(): HTMLElement {
    const made = element("button", "", element("span", "table-name"), element("small"));
    made.type = "button";
    made.addEventListener("click", () => this.onChoose(made.dataset["table"] ?? ""));
    return element("li", "", made);
  }

  private move(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
    const items = this.buttons();
    const next = items[(items.indexOf(document.activeElement as HTMLElement) + step + items.length) % items.length];
    next?.focus();
    event.preventDefault();
  }
}

function list(title: string): { group: HTMLElement; items: HTMLElement } {
  const heading = element("h2", "", title);
  heading.id = `group-${title.toLowerCase()}`;
  const items = element("ul");
  items.setAttribute("aria-labelledby", heading.id);
  return { group: element("div", "group", heading, items), items };
}

function setItem(item: HTMLElement, { name, rows }: TableInfo): void {
  const made = item.firstElementChild as HTMLElement;
  made.dataset["table"] = name;
  setText(made.children[0]!, name);
  setCount(made, rows);
}

function setCount(item: HTMLElement, rows: number): void {
  const small = item.children[1] as HTMLElement;
  setText(small, compact(rows));
  small.title = `${number(rows)} rows`;
  item.classList.toggle("some-bad", item.dataset["table"] === "bad_records" && rows > 0);
}
