// The chart beside the rows of a SELECT: its controls and its canvas.

import { byId, setText } from "./dom";
import { exact } from "./shape";
import { setOptions } from "./options";
import type { Plot } from "./plot";
import type { Column } from "./rows";
import { alongColumns, chartFor, MOST_SQL_BARS, SQL_KINDS, sqlShape, sqlTitle, valueColumns, type SqlChart } from "./sql-chart";

export class SqlChartPane {
  private readonly onChart: (chart: SqlChart | null) => void;
  private readonly box = byId("sql-chart");
  private readonly kind = byId<HTMLSelectElement>("sql-chart-kind");
  private readonly by = byId<HTMLSelectElement>("sql-chart-by");
  private readonly value = byId<HTMLSelectElement>("sql-chart-value");
  private plot: Plot | null = null;
  private columns: readonly Column[] = [];
  private rows: readonly (readonly unknown[])[] = [];
  private chart: SqlChart | null = null;

  constructor(onChart: (chart: SqlChart | null) => void) {
    this.onChart = onChart;
    byId("sql-chart-open").addEventListener("click", () => this.toggle());
    byId("sql-chart-close").addEventListener("click", () => {
      onChart(null);
      byId("sql-chart-open").focus();
    });
    this.kind.addEventListener("change", () => this.change({ kind: this.kind.value as SqlChart["kind"] }));
    this.by.addEventListener("change", () => this.change({ by: this.by.value }));
    this.value.addEventListener("change", () => this.change({ value: this.value.value }));
    byId("sql-chart-form").addEventListener("submit", (event) => event.preventDefault());
  }

  // Show the chosen chart of these rows; null hides the chart.
  show(chosen: SqlChart | null, columns: readonly Column[], rows: readonly (readonly unknown[])[]): void {
    this.columns = columns;
    this.rows = rows;
    // Columns that the SELECT no longer has are replaced.
    this.chart = chosen && columns.length ? chartFor(columns, chosen) : chosen;
    byId("sql-chart-open").setAttribute("aria-pressed", String(chosen !== null));
    this.box.hidden = chosen === null;
    if (chosen === null) return;
    void this.draw();
  }

  private toggle(): void {
    if (!this.box.hidden) return this.onChart(null);
    this.onChart(chartFor(this.columns) ?? { kind: "bars", by: "", value: "" });
  }

  private change(part: Partial<SqlChart>): void {
    const chart = this.chart && chartFor(this.columns, { ...this.chart, ...part });
    if (chart) this.onChart(chart);
  }

  private async draw(): Promise<void> {
    const { Plot } = await import("./plot");
    this.plot ??= new Plot(byId("sql-plot"), () => undefined);
    const { chart, columns, rows } = this;
    const shape = chart && sqlShape(chart, columns, rows);
    setText(byId("sql-chart-note"), this.note(shape !== null));
    byId("sql-chart-form").hidden = !shape;
    if (!chart || !shape) {
      setText(byId("sql-chart-title"), "Chart");
      return this.plot.clear();
    }
    setOptions(this.kind, SQL_KINDS.filter(([kind]) => alongColumns(kind, columns).length > 0), chart.kind);
    setOptions(this.by, alongColumns(chart.kind, columns).map(({ name }) => [name]), chart.by);
    setOptions(this.value, valueColumns(columns).map(({ name }) => [name]), chart.value);
    setText(byId("sql-chart-title"), sqlTitle(chart));
    this.box.dataset["kind"] = chart.kind;
    byId("sql-plot").setAttribute("aria-label", `Chart: ${sqlTitle(chart)}. The rows beside it have the same numbers.`);
    this.plot.show(shape);
  }

  private note(drawn: boolean): string {
    if (!this.columns.length) return "Run a SELECT: its rows are drawn here.";
    if (!drawn) return "No column of these rows is a number: there is nothing to draw.";
    const more = this.chart?.kind === "bars" && this.rows.length > MOST_SQL_BARS;
    return more ? `The first ${exact(MOST_SQL_BARS)} of ${exact(this.rows.length)} rows` : "";
  }
}
