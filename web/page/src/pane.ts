// The table view: one live window that follows scrolling. Another query opens another window; the previous rows stay
// visible until its first answer. `rows.ts` decides when rows can be shown.

import { rowId, TurnoutError, type TurnoutClient, type WindowInfo, type WindowSubscription } from "@turnout/client";
import { emptyView, type View } from "./address";
import type { Chosen } from "./chart";
import { ChartPane } from "./chart-pane";
import { byId, say, setText } from "./dom";
import { openColumns, openFilter, showChips } from "./filters";
import { count, number } from "./format";
import { Grid } from "./grid";
import { problemText } from "./problem";
import { showQuality } from "./quality";
import { RowPanel } from "./row";
import { canShow, clamp, shouldMove, spanFor, type Column, type Rows, type Span, type Viewport } from "./rows";
import { exampleOf, isJournal } from "./tables";
import { ANY_TEXT, describe, nextSort, sortText, whereOf, type Filter, type SortKey } from "./where";

// The minimum time between two moves of the window while scrolling; the last position is always requested.
const MOVE_MS = 60;
const TYPING_MS = 350;
const BUSY_MS = 250;
const NEWEST_FIRST: SortKey[] = [{ column: "ts", descending: true }];
const PANEL_TABLE = "join_quality";
const ROW = "_row";

// One query to the server, with the last requested span of rows.
interface Query {
  serial: number;
  table: string;
  where: string;
  filters: readonly Filter[];
  span: Span;
  sub: WindowSubscription | null;
  movedAt: number;
  timer: number;
}

export interface PaneEvents {
  onView(view: View): void;
  onRows(rows: Rows): void;
}

export class Pane {
  view: View = emptyView("");
  private readonly client: TurnoutClient;
  private readonly events: PaneEvents;
  private readonly grid: Grid;
  private readonly row: RowPanel;
  private readonly chart: ChartPane;
  private readonly where = byId<HTMLInputElement>("where");
  private readonly search = byId<HTMLInputElement>("search");
  // The subscription to a row that was opened by its address, anywhere in the table.
  private alone: WindowSubscription | null = null;
  private shown: Rows | null = null;
  private current: Query | null = null;
  private pending: Query | null = null;
  private serial = 0;
  private typing = 0;
  private busy = 0;
  private asPanel = true;
  private away = false;
  private trouble = "";
  // The last query was refused: the visible rows are those of `current`.
  private isWrong = false;

  constructor(client: TurnoutClient, events: PaneEvents) {
    this.client = client;
    this.events = events;
    this.row = new RowPanel(byId("row"), {
      onClose: () => {
        this.setRow("");
        this.grid.focus();
      },
      onOpen: (id) => this.setRow(id),
      address: () => location.href,
      why: (table, row) => client.why(table, { row }),
    });
    this.grid = new Grid(byId("grid"), {
      onScroll: () => this.onScroll(),
      onSort: (column, add) => this.change({ sort: nextSort(this.sort, column, add), sorted: true }),
      onFilter: (column, anchor) => this.openFilter(column, anchor),
      onOpen: (index) => this.shown && this.row.show(this.shown, index),
      orderOf: (column) => this.orderOf(column),
      isFiltered: (column) => this.view.filters.some((filter) => filter.column === column),
    });
    this.chart = new ChartPane(client, (chart) => this.setChart(chart));
    this.listen();
  }

  private listen(): void {
    for (const box of [this.where, this.search]) {
      box.addEventListener("input", () => {
        clearTimeout(this.typing);
        this.typing = window.setTimeout(() => this.applyWhere(), TYPING_MS);
      });
      box.addEventListener("keydown", (event) => {
        if (event.key === "Escape" && !box.value) this.grid.focus();
        if (event.key === "ArrowDown") this.grid.focus();
        // Enter does not submit a form that has two text fields.
        if (event.key === "Enter") this.applyWhere();
      });
    }
    byId("filter").addEventListener("submit", (event) => {
      event.preventDefault();
      this.applyWhere();
    });
    byId("columns").addEventListener("click", () => this.openColumns());
    byId("as-panel").addEventListener("click", () => {
      this.asPanel = !this.asPanel;
      this.showPanel();
    });
  }

  // Open a view. The previous rows stay until the first new rows arrive, unless they are of another table.
  open(view: View): void {
    const other = view.table !== (this.current?.table ?? this.view.table);
    if (view.row !== this.view.row) this.row.close();
    if (other) this.clearRows();
    this.view = view;
    this.showBoxes();
    setText(byId("table-name"), view.table);
    this.ask();
    if (view.row && (other || !this.row.isOpen)) this.openAlone(view.row);
    if (other) this.showEmpty();
  }

  private openAlone(id: string): void {
    const { table } = this.view;
    this.alone?.close();
    this.alone = this.client.window(
      { table, where: [{ column: ROW, op: "=", value: id }], limit: 1 },
      {
        onRows: (rows, info) => this.row.showAlone(id, rowsOf(0, rows, info)),
        onError: (error) => this.showProblem(error),
      },
    );
  }

  private setRow(row: string): void {
    if (row !== this.view.row || !row) {
      this.alone?.close();
      this.alone = null;
    }
    if (row === this.view.row) return;
    this.view = { ...this.view, row };
    this.events.onView(this.view);
  }

  // Show the condition and the search text. The search text is a filter, so links, charts and downloads use it, too.
  private showBoxes(): void {
    this.where.value = this.view.where;
    this.search.value = this.view.filters.find(({ column }) => column === ANY_TEXT)?.values[0] ?? "";
  }

  // Set whether the server is away.
  setAway(away: boolean): void {
    this.away = away;
    this.showEmpty();
  }

  // Set the reason why the server is not ready, which is shown in an empty table.
  setTrouble(trouble: string): void {
    this.trouble = trouble;
    this.showEmpty();
  }

  private clearRows(): void {
    this.end(this.current);
    this.current = this.shown = null;
    this.grid.clear();
    this.chart.clear();
    this.showProblem(null);
    this.showPanel();
    for (const place of ["total", "range", "place"]) setText(byId(place), "");
  }

  // Set the view without opening it; nothing is requested yet.
  prepare(view: View): void {
    this.view = view;
  }

  change(part: Partial<View>): void {
    this.view = { ...this.view, ...part };
    this.events.onView(this.view);
    this.grid.updateHeaders();
    this.ask();
  }

  clear(): void {
    this.setHidden([]);
    this.change({ where: "", filters: [], sort: [], sorted: false });
    this.showBoxes();
    say("Filters and sort are cleared");
  }

  showProblemOf(error: unknown): void {
    this.showProblem(error instanceof TurnoutError ? error : new TurnoutError({ code: "failed", message: String(error), hint: "" }));
  }

  toggleChart(): void {
    this.chart.toggle();
  }

  focusRows(): void {
    this.grid.focus();
  }

  focusSearch(): void {
    this.search.focus();
    this.search.select();
  }

  focusFilter(): void {
    this.where.focus();
    this.where.select();
  }

  openColumns(): void {
    if (this.shown) openColumns(byId("columns"), this.shown.columns, this.view.hidden, (hidden) => this.setHidden(hidden));
  }

  // The current query, in the format of the server.
  get asked(): { table: string; where: ReturnType<typeof whereOf>; sort: string[] } {
    return {
      table: this.view.table,
      where: whereOf(this.view.where, this.view.filters),
      sort: sortText(this.sort),
    };
  }

  private get sort(): SortKey[] {
    if (this.view.sorted) return this.view.sort;
    return isJournal(this.view.table) ? NEWEST_FIRST : [];
  }

  private ask(): void {
    this.end(this.pending);
    const span = spanFor({ first: 0, last: this.grid.capacity - 1 });
    const { table, where, filters } = this.view;
    const query: Query = { serial: ++this.serial, table, where, filters, span, sub: null, movedAt: -Infinity, timer: 0 };
    this.isWrong = false;
    this.pending = query;
    this.setBusy(true);
    this.showChips();
    this.showChart();
    query.sub = this.client.window(
      { ...this.asked, ...span },
      {
        onRows: (rows, info) => this.arrived(query, rows, info),
        onError: (error) => this.failed(query, error),
      },
    );
  }

  private arrived(query: Query, found: readonly Record<string, unknown>[], info: WindowInfo): void {
    if (query !== this.pending && query !== this.current) return;
    const rows = rowsOf(query.serial, found, info);
    const viewport = query === this.current ? this.grid.viewport : { first: 0, last: this.grid.capacity - 1 };
    if (!canShow(this.shown, rows, viewport)) return this.move(query, spanFor(clamp(viewport, rows.total)));
    if (query === this.pending) {
      this.end(this.current);
      this.current = query;
      this.pending = null;
      this.setBusy(false);
      this.showProblem(null);
    }
    this.show(rows);
  }

  private show(rows: Rows): void {
    this.shown = rows;
    this.grid.show(rows, this.view.hidden);
    this.row.follow(rows);
    this.chart.setColumns(rows.table, rows.columns);
    this.where.placeholder = exampleOf(rows.table, rows.columns);
    if (rows.table === PANEL_TABLE) showQuality(byId("panel"), rows);
    this.showPanel();
    this.showFoot();
    this.showChips();
    this.events.onRows(rows);
    this.onScroll();
  }

  // Handle an error, mostly because of a wrong `where`. The previous rows stay.
  private failed(query: Query, error: TurnoutError): void {
    if (this.client.connection.state === "refused") return;
    if (query !== this.pending && query !== this.current) return;
    if (query === this.pending) this.pending = null;
    else this.current = null;
    this.setBusy(false);
    this.isWrong = true;
    this.showProblem(error);
    this.showChips();
  }

  private end(query: Query | null): void {
    if (!query) return;
    clearTimeout(query.timer);
    query.sub?.close();
  }

  private onScroll(): void {
    const query = this.current;
    if (!query || !this.shown) return;
    this.showFoot();
    const viewport: Viewport = clamp(this.grid.viewport, this.shown.total);
    if (shouldMove(query.span, viewport, this.shown.total)) this.move(query, spanFor(viewport));
  }

  private move(query: Query, span: Span): void {
    if (span.offset === query.span.offset && span.limit === query.span.limit) return;
    query.span = span;
    clearTimeout(query.timer);
    const wait = query.movedAt + MOVE_MS - performance.now();
    const go = (): void => {
      query.movedAt = performance.now();
      query.sub?.move(span);
    };
    if (wait <= 0) go();
    else query.timer = window.setTimeout(go, wait);
  }

  private applyWhere(): void {
    clearTimeout(this.typing);
    const where = this.where.value.trim();
    const text = this.search.value.trim();
    const others = this.view.filters.filter(({ column }) => column !== ANY_TEXT);
    const filters = text ? [...others, { column: ANY_TEXT, op: "icontains", values: [text] }] : others;
    if (where !== this.view.where || !isSame(filters, this.view.filters)) this.change({ where, filters });
  }

  private openFilter(column: Column, anchor: HTMLElement): void {
    const others = this.view.filters.filter((filter) => filter.column !== column.name);
    const now = this.view.filters.find((filter) => filter.column === column.name);
    openFilter(anchor, column, now, (filter) => this.change({ filters: filter ? [...others, filter] : others }));
  }

  private setHidden(hidden: string[]): void {
    this.view = { ...this.view, hidden };
    this.grid.setHidden(hidden);
    this.events.onView(this.view);
    this.showChips();
  }

  private setChart(chart: Chosen): void {
    this.view = { ...this.view, chart };
    this.events.onView(this.view);
    this.showChart();
  }

  // Show the chart with the same filter as the rows.
  private showChart(): void {
    const { table, where } = this.asked;
    this.chart.show(this.view.chart, { table, where });
  }

  private orderOf(column: string): { place: number; of: number; descending: boolean } | null {
    const place = this.sort.findIndex((key) => key.column === column);
    const key = this.sort[place];
    return key ? { place: place + 1, of: this.sort.length, descending: key.descending } : null;
  }

  private showChips(): void {
    const inForce = this.isWrong ? this.current : null;
    showChips({
      ...this.view,
      isWrong: (part) => inForce !== null && (typeof part === "string" ? part !== inForce.where : !inForce.filters.some((filter) => isSame(filter, part))),
      typeOf: (column) => this.typeOf(column),
      onWhere: () => {
        this.change({ where: "" });
        this.showBoxes();
      },
      onFilter: (gone: Filter) => {
        this.change({ filters: this.view.filters.filter((filter) => filter !== gone) });
        this.showBoxes();
      },
      onSort: () => this.change({ sort: [], sorted: false }),
      onHidden: () => this.setHidden([]),
      onAll: () => this.clear(),
    });
  }

  private showPanel(): void {
    const can = this.shown?.table === PANEL_TABLE;
    const panel = can && this.asPanel;
    const toggle = byId("as-panel");
    toggle.hidden = !can;
    toggle.setAttribute("aria-pressed", String(panel));
    byId("panel").hidden = !panel;
    byId("grid").inert = panel;
    // The panel shows all views, so it needs no filter.
    byId("filter").hidden = panel;
  }

  private showFoot(): void {
    const rows = this.shown;
    if (!rows) return;
    const { first, last } = this.grid.visible;
    setText(byId("total"), count(rows.total, "row"));
    const shown = rows.total ? `Rows ${number(first + 1)}–${number(Math.min(rows.total, last + 1))} of ${number(rows.total)}` : "";
    setText(byId("range"), shown);
    setText(byId("place"), `generation ${rows.generation}, version ${number(rows.version)}`);
    this.showEmpty();
  }

  // Show the reason why there are no rows.
  private showEmpty(): void {
    const { shown: rows } = this;
    const empty = byId("empty");
    empty.hidden = rows ? rows.total > 0 || (rows.table === PANEL_TABLE && this.asPanel) : !this.away;
    const filtered = this.view.where || this.view.filters.length;
    const why = this.trouble ? `No rows yet: ${this.trouble}.` : emptyText(this.view.table);
    const here = filtered ? "No row matches the filters." : why;
    setText(empty.firstElementChild!, rows ? here : `The rows of ${this.view.table} appear here when the server answers again.`);
  }

  // Show the busy state only after a delay, because most answers arrive at once.
  private setBusy(busy: boolean): void {
    clearTimeout(this.busy);
    const main = byId("main");
    if (busy) this.busy = window.setTimeout(() => main.setAttribute("aria-busy", "true"), BUSY_MS);
    else main.removeAttribute("aria-busy");
  }

  // Describe the filter of the visible rows if it is not the requested one.
  private inForceText(): string {
    const { current } = this;
    if (!this.isWrong || !current) return "";
    const parts = [current.where, ...current.filters.map((filter) => describe(filter, this.typeOf(filter.column)))].filter(Boolean);
    return parts.length ? `The rows below are those of: ${parts.join(", ")}` : "The rows below are not filtered";
  }

  private typeOf(column: string): string {
    return this.shown?.columns.find(({ name }) => name === column)?.type ?? "string";
  }

  private showProblem(error: TurnoutError | null): void {
    const problem = byId("problem");
    setText(problem, error ? [problemText(error), this.inForceText()].filter(Boolean).join(". ") : "");
    problem.hidden = !error;
    this.where.setAttribute("aria-invalid", String(error?.code === "bad_where"));
  }
}

const isSame = (one: unknown, other: unknown): boolean => JSON.stringify(one) === JSON.stringify(other);

function rowsOf(query: number, found: readonly Record<string, unknown>[], info: WindowInfo): Rows {
  const { table, generation, version, total, offset, columns } = info;
  const rows = found.map((row) => columns.map(({ name }) => row[name]));
  return { query, table, generation, version, total, offset, columns, ids: found.map(rowId), rows };
}

function emptyText(table: string): string {
  if (table === "bad_records") return "No bad records: every record could be read.";
  if (table === "control_raw") return "No control messages yet.";
  if (table === "swaps") return "No swaps yet.";
  return "No rows yet. They appear here as records arrive.";
}
