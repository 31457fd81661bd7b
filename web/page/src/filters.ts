// The filter of one column, the choice of columns, and the chips that show active filters and sorting.

import { button, byId, element } from "./dom";
import { toField, zoneName } from "./clock";
import { isNumeric } from "./column-types";
import { closePopover, openPopover } from "./popover";
import type { Column } from "./rows";
import { choicesFor, describe, momentText, termsOf, type Choice, type Filter, type SortKey } from "./where";

// Open the filter of a column; `apply` receives the filter, or null to remove it.
export function openFilter(
  anchor: HTMLElement,
  column: Column,
  now: Filter | undefined,
  apply: (filter: Filter | null) => void,
): void {
  const choices = choicesFor(column.type);
  const select = element("select");
  select.setAttribute("aria-label", "Condition");
  select.append(...choices.map(({ op, label }) => new Option(label, op, false, op === now?.op)));
  const inputs = element("div", "values");
  const chosen = (): Choice => choices.find(({ op }) => op === select.value) ?? choices[0]!;
  const showInputs = (values: string[]): void => inputs.replaceChildren(...inputsFor(chosen(), column, values));
  const read = (): Filter => ({ column: column.name, op: select.value, values: valuesOf(inputs, column.type) });
  select.addEventListener("change", () => {
    showInputs(valuesOf(inputs, column.type));
    inputs.querySelector<HTMLElement>("input, textarea")?.focus();
  });
  showInputs(now?.values ?? []);
  const form = element("form", "filter-form");
  form.append(element("h3", "", column.name, element("small", "quiet", column.type)), select, inputs);
  const clear = button("button", "Clear", () => {
    closePopover();
    apply(null);
  });
  const ok = element("button", "button primary", "Apply");
  form.append(element("div", "actions", ok, clear));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const filter = read();
    closePopover();
    apply(termsOf(filter).length ? filter : null);
  });
  openPopover(anchor, `Filter ${column.name}`, [form]);
  inputs.querySelector<HTMLElement>("input, textarea")?.focus();
}

function inputsFor(choice: Choice, { type }: Column, values: string[]): HTMLElement[] {
  if (choice.values === 0) return [];
  if (choice.values === "list") {
    const area = element("textarea");
    area.rows = 4;
    area.value = values.join(", ");
    area.setAttribute("aria-label", "Values, separated by commas or lines");
    area.placeholder = "one, two, three";
    return [area];
  }
  const labels = choice.values === 2 ? ["from", "to"] : ["value"];
  return labels.map((label, i) => {
    const input = element("input");
    input.type = type === "date" ? "date" : type === "timestamp" ? "datetime-local" : "text";
    if (type === "timestamp") input.step = "1";
    if (isNumeric(type)) input.inputMode = "decimal";
    input.spellcheck = false;
    input.autocomplete = "off";
    input.value = type === "timestamp" ? toField(values[i] ?? "") : (values[i] ?? "");
    const text = type === "timestamp" ? `${label} (${zoneName()})` : label;
    return element("label", "field", element("span", "", text), input);
  });
}

function valuesOf(inputs: HTMLElement, type: string): string[] {
  const found = inputs.querySelectorAll<HTMLInputElement | HTMLTextAreaElement>("input, textarea");
  return [...found].map((input) => momentText(input.value, type));
}

export function openColumns(
  anchor: HTMLElement,
  columns: readonly Column[],
  hidden: readonly string[],
  apply: (hidden: string[]) => void,
): void {
  const list = element("fieldset", "column-list");
  const boxes = columns.map(({ name }) => {
    const box = element("input");
    box.type = "checkbox";
    box.checked = !hidden.includes(name);
    list.append(element("label", "", box, element("span", "", name)));
    return { name, box };
  });
  const update = (): void => {
    const off = boxes.filter(({ box }) => !box.checked).map(({ name }) => name);
    // At least one column must stay visible.
    for (const { box } of boxes) box.disabled = box.checked && off.length === boxes.length - 1;
    apply(off);
  };
  list.prepend(element("legend", "", "Columns to show"));
  list.addEventListener("change", update);
  const all = button("button small", "All", () => {
    for (const { box } of boxes) box.checked = true;
    update();
  });
  openPopover(anchor, "Columns", [list, element("div", "actions", all)]);
}

export interface Chips {
  where: string;
  filters: readonly Filter[];
  sort: readonly SortKey[];
  sorted: boolean;
  hidden: readonly string[];
  typeOf(column: string): string;
  // Whether the server refused this part, so that the rows are not filtered by it.
  isWrong(part: string | Filter): boolean;
  onWhere(): void;
  onFilter(filter: Filter): void;
  onSort(): void;
  onHidden(): void;
  onAll(): void;
}

export function showChips(chips: Chips): void {
  const made: HTMLElement[] = [];
  if (chips.where) made.push(chip(chips.where, "condition", chips.onWhere, chips.isWrong(chips.where)));
  for (const filter of chips.filters) {
    made.push(chip(describe(filter, chips.typeOf(filter.column)), "filter", () => chips.onFilter(filter), chips.isWrong(filter)));
  }
  if (chips.sorted && chips.sort.length) {
    const order = chips.sort.map(({ column, descending }) => `${column} ${descending ? "▼" : "▲"}`).join(", ");
    made.push(chip(order, "sort", chips.onSort));
  }
  if (chips.hidden.length) made.push(chip(`${chips.hidden.length} hidden`, "hidden columns", chips.onHidden));
  if (made.length > 1) made.push(button("button plain small", "Clear all", chips.onAll));
  const box = byId("chips");
  box.replaceChildren(...made);
  box.hidden = made.length === 0;
}

function chip(text: string, what: string, onRemove: () => void, wrong = false): HTMLElement {
  const remove = button("", "✕", onRemove);
  remove.setAttribute("aria-label", `Remove the ${what} ${text}`);
  const told = element("span", "", wrong ? `not applied: ${text}` : text);
  return element("span", `chip ${wrong ? "wrong" : (what.split(" ")[0] ?? "")}`, told, remove);
}
