// The numbers of a chart as an HTML table: for screen readers, and for everybody after a click.

import { byId, element, fit, setText } from "./dom";
import type { Numbered } from "./shape";

export function showNumbers(title: string, { head, rows }: Numbered): void {
  const table = byId<HTMLTableElement>("chart-table");
  setText(table.caption ?? table.createCaption(), title);
  const top = table.tHead ?? table.createTHead();
  const cells = fit(top.rows[0] ?? top.insertRow(), head.length, () => {
    const made = element("th");
    made.scope = "col";
    return made;
  });
  head.forEach((text, i) => setText(cells[i]!, text));
  const body = table.tBodies[0] ?? table.createTBody();
  const lines = fit(body, rows.length, () => element("tr"));
  rows.forEach((row, i) => setRow(lines[i]!, row));
}

function setRow(line: HTMLElement, row: readonly string[]): void {
  if (line.firstElementChild === null) {
    const name = element("th");
    name.scope = "row";
    line.append(name);
  }
  const cells = fit(line, row.length, () => element("td"));
  row.forEach((text, i) => setText(cells[i]!, text));
}

export interface Entry {
  colour: number;
  name: string;
  value: string;
}

// Show the names of the lines, each with its colour and its value at the time under the pointer.
export function showLegend(entries: readonly Entry[], moment: string): void {
  const legend = byId("chart-legend");
  legend.hidden = entries.length === 0;
  const items = fit(legend, entries.length, () => element("li", "", element("i"), element("span"), element("strong")));
  entries.forEach(({ colour, name, value }, i) => {
    const [, label, number] = [...items[i]!.children];
    items[i]!.dataset["line"] = String(colour + 1);
    setText(label!, name);
    setText(number!, value);
  });
  setText(byId("chart-moment"), moment);
}
