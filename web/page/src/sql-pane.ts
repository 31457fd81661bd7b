// The SQL view: tabs, an editor, and the rows and the chart of the active tab.

import type { TurnoutClient } from "@turnout/client";
import type { SqlText } from "./address";
import { timeText } from "./clock";
import { button, byId, element, say, setText } from "./dom";
import { downloadSql } from "./download";
import { count, number, seconds } from "./format";
import { Grid } from "./grid";
import { closePopover, openPopover } from "./popover";
import { problemText } from "./problem";
import { RowPanel } from "./row";
import type { Rows } from "./rows";
import type { SqlChart } from "./sql-chart";
import { SqlChartPane } from "./sql-chart-pane";
import type { SqlEditor } from "./sql-editor";
import { forgetStatements, lineOf, statements, type Statement } from "./sql-history";
import { MOST_ROWS, SqlTab } from "./sql-tab";
import { MOST_TABS, storedTabs, storeTabs, TabStrip, type KeptTab } from "./sql-tabs";
import { firstSql, type KnownTable } from "./sql-words";
import { nextSort } from "./where";

const TYPING_MS = 400;
const FORMATS: [string, string][] = [
  ["csv", "CSV"],
  ["json", "JSON"],
  ["arrow", "Arrow"],
  ["parquet", "Parquet"],
];

export interface SqlEvents {
  onText(): void;
  token(): string | null;
}

export class SqlPane {
  private readonly client: TurnoutClient;
  private readonly events: SqlEvents;
  private readonly live = byId<HTMLInputElement>("sql-live");
  private readonly strip: TabStrip;
  private readonly chart: SqlChartPane;
  private readonly tabs: SqlTab[];
  private active: number;
  private grid: Grid | null = null;
  private row: RowPanel | null = null;
  private editor: SqlEditor | null = null;
  private tables: readonly KnownTable[] = [];
  private typing = 0;
  private rows: Rows | null = null;
  private hasFailed = false;

  constructor(client: TurnoutClient, events: SqlEvents) {
    this.client = client;
    this.events = events;
    const { tabs, active } = storedTabs();
    this.tabs = tabs.length ? tabs.map((tab) => this.made(tab)) : [this.made({ text: "", live: false, chart: null })];
    for (const tab of this.tabs) tab.isUntouched = tab.text === "";
    this.active = active;
    this.strip = new TabStrip({
      onChoose: (place) => this.choose(place),
      onClose: (place) => this.close(place),
      onNew: () => this.add({ text: "", live: false, chart: null }),
    });
    this.chart = new SqlChartPane((chart) => this.setChart(chart));
    byId("sql-run").addEventListener("click", () => this.run());
    byId("sql-stop").addEventListener("click", () => this.tab.stop());
    byId("sql-export").addEventListener("click", (event) => this.openExport(event.currentTarget as HTMLElement));
    byId("sql-history").addEventListener("click", (event) => this.openHistory(event.currentTarget as HTMLElement));
    byId("sql-more").addEventListener("click", () => this.run(MOST_ROWS));
    this.live.addEventListener("change", () => {
      this.tab.live = this.live.checked;
      this.keep();
      if (this.tab.text.trim()) this.run();
    });
  }

  get sql(): SqlText {
    const { text, live, chart } = this.tab;
    return { text, live, chart };
  }

  // Open the view: run the text of an address or a saved statement, or else show the last text. `table` is the table
  // that was shown before.
  open(given: SqlText | null, table: string): void {
    this.grid ??= this.makeGrid();
    const { tab } = this;
    if (given) this.openText(given);
    else if (!tab.text) tab.text = firstSql(this.tables, table);
    else tab.wake();
    this.show();
    void this.load();
  }

  // Called when the view is hidden.
  leave(): void {
    this.tab.rest();
  }

  focus(): void {
    this.editor?.focus();
  }

  focusRows(): void {
    this.grid?.focus();
  }

  setTables(tables: readonly KnownTable[]): void {
    this.tables = tables;
    this.editor?.setTables(tables);
  }

  // Called when the server answers again.
  setBack(): void {
    if (this.hasFailed) void this.load();
  }

  // Show a note, instead of a refusal of each statement, if the user may not run SQL.
  setAllowed(allowed: boolean): void {
    byId("sql-view").classList.toggle("not-allowed", !allowed);
    byId("sql-refused").hidden = allowed;
  }

  private get tab(): SqlTab {
    return this.tabs[this.active]!;
  }

  private made(kept: KeptTab): SqlTab {
    return new SqlTab(this.client, kept, (tab, isFirst) => {
      if (tab !== this.tab) return;
      if (isFirst) say(count(tab.answered?.found.length ?? 0, "row"));
      this.showRun();
    });
  }

  private openText(given: SqlText): void {
    const known = this.tabs.findIndex(({ text }) => text === given.text);
    if (known >= 0) this.active = known;
    else if (this.tab.isUntouched || this.tabs.length >= MOST_TABS) this.tab.text = given.text;
    else this.active = this.tabs.push(this.made(given)) - 1;
    const { tab } = this;
    const again = !tab.answered || tab.live !== given.live || known < 0;
    tab.live = given.live;
    tab.chart = given.chart;
    if (again && given.text.trim()) tab.run();
    this.keep();
  }

  private choose(place: number): void {
    if (place === this.active) return;
    this.tab.rest();
    this.active = place;
    this.tab.wake();
    this.keep();
    this.show();
  }

  private close(place: number): void {
    if (this.tabs.length === 1) return;
    this.tabs[place]?.rest();
    this.tabs.splice(place, 1);
    const next = Math.min(place < this.active ? this.active - 1 : this.active, this.tabs.length - 1);
    if (place === this.active) this.tabs[next]!.wake();
    this.active = next;
    this.keep();
    this.show();
  }

  private add(kept: KeptTab): void {
    if (this.tabs.length >= MOST_TABS) return;
    this.tab.rest();
    this.active = this.tabs.push(this.made(kept)) - 1;
    this.keep();
    this.show();
    this.editor?.focus();
  }

  private setChart(chart: SqlChart | null): void {
    this.tab.chart = chart;
    this.keep();
    this.showChart();
  }

  private keep(): void {
    storeTabs(this.tabs, this.active);
    this.strip.show(this.tabs.map(({ text }) => text), this.active);
    this.events.onText();
  }

  private async load(): Promise<void> {
    if (!this.editor) {
      // Some browsers (Chromium 153) cache a failed import, so import only after the server has answered.
      const answered = fetch("/healthz", { cache: "no-store" });
      const loaded = await answered.then(() => import("./sql-editor")).catch(() => null);
      this.hasFailed = !loaded;
      if (!loaded) return this.showProblem("The editor could not be loaded. It is loaded when the server answers again.");
      this.showProblem(this.tab.problem);
      const { SqlEditor } = loaded;
      this.editor ??= new SqlEditor(byId("sql-editor"), this.tab.text, {
        onChange: (text) => this.typed(text),
        onRun: () => this.run(),
      });
      this.editor.setTables(this.tables);
      this.editor.markWrong(this.tab.wrongPlace);
    }
    if (document.activeElement === document.body || byId("tables").contains(document.activeElement)) this.editor.focus();
  }

  private typed(text: string): void {
    if (text === this.tab.text) return;
    this.tab.text = text;
    this.tab.isUntouched = false;
    clearTimeout(this.typing);
    this.typing = window.setTimeout(() => this.keep(), TYPING_MS);
  }

  private run(limit?: number): void {
    clearTimeout(this.typing);
    this.tab.run(limit);
    this.keep();
  }

  // Show the active tab.
  private show(): void {
    const { tab } = this;
    if (this.editor) this.editor.text = tab.text;
    this.live.checked = tab.live;
    this.row?.close();
    this.strip.show(this.tabs.map(({ text }) => text), this.active);
    this.showRun();
  }

  private showRun(): void {
    const { tab } = this;
    byId("sql-stop").hidden = !tab.isRunning;
    byId("sql-view").classList.toggle("running", tab.isRunning);
    byId("sql-view").classList.toggle("old", tab.isOld);
    setText(byId("sql-run"), tab.isRunning ? "Running" : "Run");
    this.showProblem(tab.problem);
    if (!tab.isRunning) this.editor?.markWrong(tab.wrongPlace);
    this.showRows();
    this.showChart();
  }

  private showRows(): void {
    const { tab, grid } = this;
    if (!grid) return;
    this.rows = tab.rows;
    const empty = byId("sql-empty");
    empty.hidden = this.rows !== null && this.rows.total > 0;
    setText(empty.firstElementChild!, this.rows ? "The result has no rows." : "Write one SELECT over the tables, and press Ctrl+Enter.");
    if (!this.rows || !tab.answered) {
      grid.clear();
      for (const place of ["sql-total", "sql-range", "sql-place"]) setText(byId(place), "");
      byId("sql-more").hidden = true;
      return;
    }
    const { run, found, info } = tab.answered;
    grid.show(this.rows, []);
    this.row?.follow(this.rows);
    setText(byId("sql-total"), count(found.length, "row"));
    const part = info.complete ? "" : `The first ${number(found.length)} rows`;
    setText(byId("sql-range"), tab.isOld ? `Rows of the previous statement: ${lineOf(run.text)}` : part);
    byId("sql-more").hidden = info.complete || tab.limit >= MOST_ROWS;
    const place = [`generation ${info.generation}`, run.took === null ? "" : seconds(run.took), info.options.live && !tab.isOld ? "live" : ""];
    setText(byId("sql-place"), place.filter(Boolean).join(", "));
  }

  private showChart(): void {
    this.chart.show(this.tab.chart, this.rows?.columns ?? [], this.rows?.rows ?? []);
  }

  private makeGrid(): Grid {
    this.row = new RowPanel(byId("sql-row"), { onClose: () => this.grid?.focus() });
    return new Grid(byId("sql-grid"), {
      onScroll: () => undefined,
      onSort: (column, add) => {
        this.tab.sort = nextSort(this.tab.sort, column, add);
        this.showRows();
        this.showChart();
      },
      onOpen: (index) => this.rows && this.row?.show(this.rows, index),
      orderOf: (column) => {
        const { sort } = this.tab;
        const place = sort.findIndex((key) => key.column === column);
        const key = sort[place];
        return key ? { place: place + 1, of: sort.length, descending: key.descending } : null;
      },
      isFiltered: () => false,
    });
  }

  private openExport(anchor: HTMLElement): void {
    const items = FORMATS.map(([format, label]) =>
      button("menu-item", label, () => {
        closePopover();
        downloadSql(this.tab.text, format, MOST_ROWS, this.events.token()).catch((error: unknown) => this.showProblem(error));
        say(`Downloading ${label}`);
      }),
    );
    openPopover(anchor, "Export the rows of this SELECT", [element("div", "menu", ...items)]);
  }

  // Open the history. A chosen statement gets a new tab, unless a tab has it already or this tab is empty.
  private openHistory(anchor: HTMLElement): void {
    const item = ({ text, at, rows }: Statement): HTMLElement => {
      const made = button("menu-item", "", () => {
        closePopover();
        this.openText({ text, live: false, chart: null });
        this.show();
        this.editor?.focus();
      });
      const told = `${timeText(new Date(at))}, ${rows === null ? "failed" : count(rows, "row")}`;
      made.append(element("code", "", lineOf(text)), element("small", "quiet", told));
      made.title = text;
      return element("li", "", made);
    };
    const run = statements();
    const list = element("ul", "statements", ...run.map(item));
    list.setAttribute("aria-label", "Statements, newest first");
    const forget = button("button small", "Forget all", () => {
      forgetStatements();
      closePopover();
    });
    const none = element("p", "quiet small", "No statement has been run in this browser yet.");
    openPopover(anchor, "History of statements", run.length ? [list, element("div", "actions", forget)] : [none]);
  }

  private showProblem(error: unknown): void {
    const problem = byId("sql-problem");
    const text = problemText(error);
    // Errors of DuckDB have many lines; show them in one.
    setText(problem, text.replace(/\s*\n\s*/g, " "));
    problem.hidden = !text;
  }
}
