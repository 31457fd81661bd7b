// The controls of a chart: kind, grouping column, value, the bin width of a histogram and the minutes of a line.

import { countable, groupable, isWidth, KINDS, MINUTES, RECORD_TIME, VALUES, type Chart, type Kind } from "./chart";
import { byId, element } from "./dom";
import { setOptions } from "./options";
import type { Column } from "./rows";

export interface ChartFormEvents {
  onKind(kind: Kind): void;
  onChart(chart: Chart): void;
}

export class ChartForm {
  private readonly events: ChartFormEvents;
  private readonly by = byId<HTMLSelectElement>("chart-by");
  private readonly value = byId<HTMLSelectElement>("chart-value");
  private readonly of = byId<HTMLSelectElement>("chart-of");
  private readonly width = byId<HTMLInputElement>("chart-width");
  private readonly minutes = byId<HTMLSelectElement>("chart-minutes");
  private readonly kinds = new Map<Kind, HTMLInputElement>();
  private columns: readonly Column[] = [];
  private chart: Chart | null = null;

  constructor(events: ChartFormEvents) {
    this.events = events;
    for (const [kind, label] of KINDS) {
      const radio = element("input");
      Object.assign(radio, { type: "radio", name: "chart-kind", value: kind });
      radio.addEventListener("change", () => this.events.onKind(kind));
      this.kinds.set(kind, radio);
      byId("chart-kinds").append(element("label", "", radio, element("span", "", label)));
    }
    this.minutes.append(...MINUTES.map((count) => new Option(count === 1 ? "1 minute" : `${count} minutes`, String(count))));
    // The bin width of one column does not fit another.
    this.by.addEventListener("change", () => this.change({ by: this.by.value, width: "" }));
    this.value.addEventListener("change", () => this.changeValue());
    this.of.addEventListener("change", () => this.change({ of: this.of.value }));
    this.minutes.addEventListener("change", () => this.change({ minutes: Number(this.minutes.value) }));
    this.width.addEventListener("change", () => this.changeWidth());
    byId("chart-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.changeWidth();
    });
  }

  show(chart: Chart, columns: readonly Column[], dated: boolean): void {
    this.chart = chart;
    this.columns = columns;
    for (const [kind, radio] of this.kinds) {
      radio.checked = kind === chart.kind;
      radio.disabled = kind === "histogram" && kind !== chart.kind && groupable(kind, columns, dated).length === 0;
    }
    const names = groupable(chart.kind, columns, dated).map(({ name }) => [name, name === RECORD_TIME ? "time of the record" : name]);
    setOptions(this.by, chart.kind === "line" ? [["", "all rows"], ...names] : names, chart.by);
    setOptions(this.value, VALUES.filter(([value]) => value === "count" || countable(value, columns).length > 0), chart.value);
    setOptions(this.of, countable(chart.value, columns).map(({ name }) => [name, name]), chart.of);
    byId("chart-of-field").hidden = chart.value === "count";
    byId("chart-width-field").hidden = chart.kind !== "histogram";
    byId("chart-minutes-field").hidden = chart.kind !== "line";
    this.minutes.value = String(chart.minutes);
    if (document.activeElement !== this.width || isWidth(this.width.value)) this.width.value = chart.width;
    this.width.setAttribute("aria-invalid", "false");
  }

  private changeValue(): void {
    const value = this.value.value;
    const choices = countable(value, this.columns).map(({ name }) => name);
    const sensible = choices.find((name) => !/id$/i.test(name)) ?? choices[0] ?? "";
    const stays = this.chart !== null && choices.includes(this.chart.of);
    this.change({ value, of: value === "count" ? "" : stays ? this.chart!.of : sensible });
  }

  private changeWidth(): void {
    const width = this.width.value.trim();
    const valid = isWidth(width);
    this.width.setAttribute("aria-invalid", String(!valid));
    if (valid && width !== this.chart?.width) this.change({ width });
  }

  private change(part: Partial<Chart>): void {
    if (this.chart) this.events.onChart({ ...this.chart, ...part });
  }
}
