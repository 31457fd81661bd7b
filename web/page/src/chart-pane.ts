// The chart beside the rows: one live summary with the same filter as the rows. The previous chart stays visible until
// the first data of the next one arrives, also during swaps.

import { type TurnoutError, type SummaryInfo, type SummarySubscription, type TurnoutClient } from "@turnout/client";
import { changeKind, groupable, RECORD_TIME, summaryOf, titleOf, type Chart, type Chosen, type Kind } from "./chart";
import { firstChart, firstWidth, type Question } from "./chart-first";
import { ChartForm } from "./chart-form";
import { showLegend, showNumbers } from "./chart-numbers";
import { zoneName } from "./clock";
import { byId, setText } from "./dom";
import { LINE_COLOURS } from "./ink";
import { Palette } from "./palette";
import type { Plot } from "./plot";
import { problemText } from "./problem";
import { sameColumns, type Column } from "./rows";
import { binText, brief, clock, exact, numbersOf, shapeOf, type Answer, type Shape } from "./shape";

const TICK_MS = 1000;
const WORKING_MS = 250;

interface Asked {
  key: string;
  chart: Chart;
  sub: SummarySubscription | null;
}

export class ChartPane {
  private readonly client: TurnoutClient;
  private readonly onChart: (chart: Chosen) => void;
  private readonly form: ChartForm;
  private readonly box = byId("chart");
  private readonly canvas = byId("chart-plot");
  private plot: Plot | null = null;
  private chosen: Chosen = null;
  private question: Question = { table: "", where: [] };
  private columns: { table: string; columns: readonly Column[] } = { table: "", columns: [] };
  private current: Asked | null = null;
  private pending: Asked | null = null;
  private shown: { chart: Chart; answer: Answer; shape: Shape } | null = null;
  private readonly withTimes = new Map<string, boolean>();
  private palette = { of: "", colours: new Palette(LINE_COLOURS) };
  private resolving = "";
  private working = 0;
  private numbersAt = 0;
  private skewMs = 0;

  constructor(client: TurnoutClient, onChart: (chart: Chosen) => void) {
    this.client = client;
    this.onChart = onChart;
    this.form = new ChartForm({ onChart, onKind: (kind) => void this.changeKind(kind) });
    byId("chart-close").addEventListener("click", () => {
      onChart(null);
      byId("chart-open").focus();
    });
    byId("chart-open").addEventListener("click", () => this.toggle());
    byId("chart-numbers").addEventListener("click", () => this.toggleNumbers());
    client.onStatus(({ time }) => {
      if (typeof time === "string") this.skewMs = Date.parse(time) - Date.now();
    });
    setInterval(() => this.tick(), TICK_MS);
  }

  toggle(): void {
    this.onChart(this.chosen ? null : "auto");
  }

  show(chosen: Chosen, question: Question): void {
    this.chosen = chosen;
    this.question = question;
    byId("chart-open").setAttribute("aria-pressed", String(chosen !== null));
    this.box.hidden = chosen === null;
    if (chosen === null) return this.close();
    void this.load();
    this.findTimes();
    this.setWorking(this.shown === null);
    this.box.classList.toggle("unchosen", chosen === "auto");
    if (chosen !== "auto") this.fillForm(chosen);
    if (chosen === "auto" || (chosen.kind === "histogram" && !chosen.width)) void this.resolve(chosen);
    else this.ask(chosen);
  }

  // Set the columns of the current rows, which the default chart needs.
  setColumns(table: string, columns: readonly Column[]): void {
    const known = this.columns.table === table && sameColumns(this.columns.columns, columns);
    this.columns = { table, columns };
    if (known || this.chosen === null || table !== this.question.table) return;
    if (this.chosen === "auto" || (this.chosen.kind === "histogram" && !this.chosen.width)) void this.resolve(this.chosen);
    else this.fillForm(this.chosen);
  }

  private get dated(): boolean {
    return this.withTimes.get(this.question.table) ?? false;
  }

  // Find out once for each table whether its rows have record times: the server does not list this.
  private findTimes(): void {
    const { table } = this.question;
    if (this.withTimes.has(table)) return;
    this.withTimes.set(table, false);
    const answered = (dated: boolean): void => {
      this.withTimes.set(table, dated);
      sub.close();
      if (dated && table === this.question.table && this.chosen && this.chosen !== "auto") this.fillForm(this.chosen);
    };
    const options = { table, by: `${RECORD_TIME}:365d`, limit: 1 };
    const sub = this.client.liveSummary(options, { onRows: () => answered(true), onError: () => answered(false) });
  }

  private get known(): readonly Column[] | null {
    return this.columns.table === this.question.table ? this.columns.columns : null;
  }

  private async load(): Promise<void> {
    if (this.plot) return;
    const { Plot } = await import("./plot");
    this.plot ??= new Plot(this.canvas, (index) => this.point(index));
    this.draw();
  }

  // Complete a chart that is not fully chosen, from the contents of the table.
  private async resolve(chosen: Chart | "auto"): Promise<void> {
    const { question, known } = this;
    const asked = JSON.stringify([question, chosen]);
    if (!known || asked === this.resolving) return;
    this.resolving = asked;
    try {
      const chart = chosen === "auto" ? await firstChart(this.client, question.table, known) : chosen;
      const column = groupable("histogram", known, true).find(({ name }) => name === chart.by);
      // For a missing column the width does not matter: the server reports the error.
      const found = column ? () => firstWidth(this.client, question, column) : () => "1";
      const width = chart.kind === "histogram" ? await found() : "";
      // The user may have chosen another chart meanwhile.
      if (this.chosen === chosen && this.question === question) this.onChart({ ...chart, width });
    } catch (error) {
      if (this.question === question) this.showProblem(error);
    } finally {
      if (this.resolving === asked) this.resolving = "";
    }
  }

  private async changeKind(kind: Kind): Promise<void> {
    const { chosen: chart, known, question } = this;
    if (!chart || chart === "auto" || !known) return;
    try {
      const binned = chart.kind === "histogram" || (kind === "bars" && !chart.by);
      const usual = binned ? (await firstChart(this.client, question.table, known)).by : "";
      const named = usual || (known.find(({ type }) => type === "string") ?? known[0])?.name || "";
      if (this.chosen === chart) this.onChart(changeKind(chart, kind, known, this.dated, named));
    } catch (error) {
      this.showProblem(error);
    }
  }

  private ask(chart: Chart): void {
    const options = { ...this.question, ...summaryOf(chart) };
    const key = JSON.stringify(options);
    if (key === (this.pending ?? this.current)?.key) return;
    this.setWorking(true);
    this.pending?.sub?.close();
    const asked: Asked = { key, chart, sub: null };
    this.pending = asked;
    asked.sub = this.client.liveSummary(options, {
      onRows: (groups, info) => this.arrived(asked, groups, info),
      onError: (error) => this.failed(asked, error),
    });
  }

  private arrived(asked: Asked, groups: readonly Record<string, unknown>[], info: SummaryInfo): void {
    if (asked !== this.pending && asked !== this.current) return;
    if (asked === this.pending) {
      this.current?.sub?.close();
      this.current = asked;
      this.pending = null;
      this.numbersAt = 0;
      this.showProblem(null);
    }
    const cells = groups.map((group) => info.columns.map(({ name }) => group[name]));
    const { columns, by, total, past } = info;
    const answer = { columns, by, total, past, groups: cells };
    this.shown = { chart: asked.chart, answer, shape: this.shapeOf(asked.chart, answer) };
    this.setWorking(false);
    this.draw();
  }

  // Compute the shape. Lines of the same column keep their colours when other options change.
  private shapeOf(chart: Chart, answer: Answer): Shape {
    const shape = shapeOf(chart, answer, this.now);
    if (shape.kind !== "line") return shape;
    const of = JSON.stringify([this.question.table, chart.by]);
    if (this.palette.of !== of) this.palette = { of, colours: new Palette(LINE_COLOURS) };
    return { ...shape, colours: this.palette.colours.of(shape.lines.map(({ name }) => name)) };
  }

  // Show the busy state only after a delay, because most answers arrive at once.
  private setWorking(working: boolean): void {
    clearTimeout(this.working);
    if (!working) this.box.removeAttribute("aria-busy");
    else this.working = window.setTimeout(() => this.box.setAttribute("aria-busy", "true"), WORKING_MS);
  }

  private failed(asked: Asked, error: TurnoutError): void {
    if (this.client.connection.state === "refused") return;
    if (asked === this.pending) this.pending = null;
    else if (asked === this.current) this.current = null;
    else return;
    this.showProblem(error);
  }

  private close(): void {
    this.clear();
    this.showProblem(null);
  }

  // Remove the chart at once, for example because another table is opened.
  clear(): void {
    this.pending?.sub?.close();
    this.current?.sub?.close();
    this.pending = this.current = this.shown = null;
    this.plot?.clear();
    setText(byId("chart-title"), "Chart");
    setText(byId("chart-note"), "");
    byId("chart-table").replaceChildren();
    showLegend([], "");
    this.setWorking(false);
  }

  private get now(): number {
    return Date.now() + this.skewMs;
  }

  // Extend lines to the present while connected, also if no data changes.
  private tick(): void {
    if (this.box.hidden || !this.shown || document.hidden) return;
    const { chart, answer } = this.shown;
    if (chart.kind === "line" && this.client.connection.state === "live") {
      this.shown = { chart, answer, shape: this.shapeOf(chart, answer) };
      this.draw();
    } else {
      this.showNumbers();
    }
  }

  private draw(): void {
    if (!this.plot || !this.shown || this.box.hidden) return;
    const { chart, shape } = this.shown;
    const title = titleOf(chart);
    setText(byId("chart-title"), title);
    this.canvas.setAttribute("aria-label", `Chart: ${title}. The same numbers follow as a table.`);
    this.box.dataset["kind"] = chart.kind;
    this.box.dataset["by"] = chart.by;
    this.plot.show(shape);
    this.point(null);
    this.showNumbers();
  }

  // Update the table of numbers at most once a second, so that people and screen readers can follow it.
  private showNumbers(): void {
    if (!this.shown || performance.now() - this.numbersAt < TICK_MS) return;
    this.numbersAt = performance.now();
    const { chart, shape, answer } = this.shown;
    const numbers = numbersOf(chart, shape, answer);
    showNumbers(titleOf(chart), numbers);
    const none = answer.groups.length === 0;
    const zone = shape.kind === "line" || (shape.kind === "histogram" && shape.time && !shape.date) ? `times in ${zoneName()}` : "";
    setText(byId("chart-note"), none ? "No rows to show." : [numbers.note, zone].filter(Boolean).join("; "));
  }

  // Show the value under the pointer; for lines without a pointer the newest values.
  private point(index: number | null): void {
    if (!this.shown) return;
    const { shape } = this.shown;
    if (shape.kind === "line") {
      const at = index ?? shape.times.length - 1;
      const entries = shape.lines.map(({ name, values }, i) => ({ colour: shape.colours[i] ?? i, name, value: shortOf(values[at]) }));
      return showLegend(entries, index === null ? "" : clock(shape.times[at]!));
    }
    const bin = shape.kind === "histogram" && index !== null ? `${binText(shape.starts[index]!, shape)}: ${exact(shape.values[index])}` : "";
    showLegend([], bin);
  }

  private toggleNumbers(): void {
    const on = this.box.classList.toggle("as-numbers");
    byId("chart-numbers").setAttribute("aria-pressed", String(on));
    // A scrollable element must be reachable by keyboard.
    byId("chart-scroll").tabIndex = on ? 0 : -1;
  }

  private fillForm(chart: Chart): void {
    this.form.show(chart, this.known ?? [], this.dated);
  }

  private showProblem(error: unknown): void {
    if (error) this.setWorking(false);
    const problem = byId("chart-problem");
    const text = problemText(error);
    setText(problem, text);
    problem.hidden = !text;
  }
}

function shortOf(value: number | null | undefined): string {
  return value === null || value === undefined ? "none" : brief(value);
}
