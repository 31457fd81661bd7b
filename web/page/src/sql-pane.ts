// The SQL tab: an editor, and the rows of the SELECT that was run last. The rows before stay until its answer comes.

import { type TurnoutError, type SqlInfo, type SqlSubscription, type TurnoutClient } from "@turnout/client";
import type { SqlText } from "./address";
import { button, byId, element, say, setText } from "./dom";
import { downloadSql } from "./download";
import { count, number, seconds } from "./format";
import { Grid } from "./grid";
import { closePopover, openPopover } from "./popover";
import { problemText } from "./problem";
import { RowPanel } from "./row";
import type { Rows } from "./rows";
import type { SqlEditor } from "./sql-editor";
import { sqlRows } from "./sql-rows";
import { firstSql, type KnownTable } from "./sql-words";
import { nextSort, type SortKey } from "./where";

const TYPING_MS = 400;
const FIRST_ROWS = 1000;
const MOST_ROWS = 10_000;
const FORMATS: [string, string][] = [
  ["csv", "CSV"],
  ["json", "JSON"],
  ["arrow", "Arrow"],
  ["parquet", "Parquet"],
];

// One run of one text.
interface Run {
  serial: number;
  text: string;
  startedAt: number;
  took: number | null;
  sub: SqlSubscription | null;
}

interface Shown {
  run: Run;
  found: readonly Record<string, unknown>[];
  info: SqlInfo;
}

export interface SqlEvents {
  onText(): void;
  token(): string | null;
}

export class SqlPane {
  private readonly client: TurnoutClient;
  private readonly events: SqlEvents;
  private readonly live = byId<HTMLInputElement>("sql-live");
  private grid: Grid | null = null;
  private row: RowPanel | null = null;
  private editor: SqlEditor | null = null;
  private tables: readonly KnownTable[] = [];
  private text = "";
  private typing = 0;
  private limit = FIRST_ROWS;
  private sort: SortKey[] = [];
  private current: Run | null = null;
  private pending: Run | null = null;
  private shown: Shown | null = null;
  private rows: Rows | null = null;
  private serial = 0;
  // The last run failed: the rows are those of a statement before it.
  private isOld = false;
  private hasFailed = false;

  constructor(client: TurnoutClient, events: SqlEvents) {
    this.client = client;
    this.events = events;
    byId("sql-run").addEventListener("click", () => this.run());
    byId("sql-stop").addEventListener("click", () => this.stop());
    byId("sql-export").addEventListener("click", (event) => this.openExport(event.currentTarget as HTMLElement));
    byId("sql-more").addEventListener("click", () => this.run(MOST_ROWS));
    this.live.addEventListener("change", () => {
      events.onText();
      if (this.text.trim()) this.run();
    });
  }

  get sql(): SqlText {
    return { text: this.text, live: this.live.checked };
  }

  // Shown: with a text of an address, which is run, or as it was left. `table` is what was looked at before.
  open(given: SqlText | null, table: string): void {
    this.grid ??= this.makeGrid();
    if (given) {
      this.live.checked = given.live;
      if (given.text !== this.text || !this.shown) this.setText(given.text, given.text.trim() !== "");
    } else if (!this.text) {
      this.setText(firstSql(this.tables, table), false);
    }
    void this.load();
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

  // The server answers again.
  setBack(): void {
    if (this.hasFailed) void this.load();
  }

  // Who may not send SQL is told so instead of being refused with each try.
  setAllowed(allowed: boolean): void {
    byId("sql-view").classList.toggle("not-allowed", !allowed);
    byId("sql-refused").hidden = allowed;
  }

  private setText(text: string, run: boolean): void {
    this.text = text;
    if (this.editor) this.editor.text = text;
    if (run) this.run();
  }

  private async load(): Promise<void> {
    if (!this.editor) {
      const loaded = await import("./sql-editor").catch(() => null);
      this.hasFailed = !loaded;
      if (!loaded) return this.showProblem("The editor could not be loaded: it comes when the server answers again.");
      this.showProblem(null);
      const { SqlEditor } = loaded;
      this.editor ??= new SqlEditor(byId("sql-editor"), this.text, {
        onChange: (text) => this.typed(text),
        onRun: () => this.run(),
      });
      this.editor.setTables(this.tables);
    }
    if (document.activeElement === document.body || byId("tables").contains(document.activeElement)) this.editor.focus();
  }

  private typed(text: string): void {
    if (text === this.text) return;
    this.text = text;
    clearTimeout(this.typing);
    this.typing = window.setTimeout(() => this.events.onText(), TYPING_MS);
  }

  private run(limit = FIRST_ROWS): void {
    clearTimeout(this.typing);
    this.events.onText();
    this.pending?.sub?.close();
    this.limit = limit;
    const run: Run = { serial: ++this.serial, text: this.text, startedAt: performance.now(), took: null, sub: null };
    this.pending = run;
    this.showBusy();
    run.sub = this.client.liveSql(
      { sql: run.text, limit, live: this.live.checked },
      { onRows: (rows, info) => this.arrived(run, rows, info), onError: (error) => this.failed(run, error) },
    );
  }

  private stop(): void {
    this.pending?.sub?.close();
    this.pending = null;
    this.showBusy();
  }

  private arrived(run: Run, found: readonly Record<string, unknown>[], info: SqlInfo): void {
    if (run !== this.pending && run !== this.current) return;
    if (run === this.pending) {
      this.current?.sub?.close();
      this.current = run;
      this.pending = null;
      run.took = (performance.now() - run.startedAt) / 1000;
      // What has the same columns keeps the order that somebody gave it.
      if (JSON.stringify(info.columns) !== JSON.stringify(this.shown?.info.columns)) this.sort = [];
      this.showProblem(null);
      say(`${count(found.length, "row")}`);
    }
    if (!info.options.live) run.sub?.close();
    this.shown = { run, found, info };
    this.isOld = false;
    this.showBusy();
    this.showRows();
  }

  private failed(run: Run, error: TurnoutError): void {
    if (this.client.connection.state === "refused") return;
    if (run === this.pending) this.pending = null;
    else if (run === this.current) this.current = null;
    else return;
    // The rows of the statement before stay as they are: they must not move below another one.
    this.current?.sub?.close();
    this.current = null;
    this.isOld = this.shown !== null;
    this.showBusy();
    this.showProblem(error);
    this.showRows();
  }

  private showRows(): void {
    if (!this.shown || !this.grid) return;
    const { run, found, info } = this.shown;
    this.rows = sqlRows(run.serial, found, info, this.sort);
    this.grid.show(this.rows, []);
    this.row?.follow(this.rows);
    setText(byId("sql-total"), count(found.length, "row"));
    const part = info.complete ? "" : `The first ${number(found.length)} rows`;
    setText(byId("sql-range"), this.isOld ? `Rows of the statement before: ${run.text.replace(/\s+/g, " ").trim()}` : part);
    byId("sql-view").classList.toggle("old", this.isOld);
    byId("sql-more").hidden = info.complete || this.limit >= MOST_ROWS;
    const place = [`generation ${info.generation}`, run.took === null ? "" : seconds(run.took), info.options.live && !this.isOld ? "live" : ""];
    setText(byId("sql-place"), place.filter(Boolean).join(", "));
    const empty = byId("sql-empty");
    empty.hidden = found.length > 0;
    setText(empty.firstElementChild!, "No row is in this answer.");
  }

  private makeGrid(): Grid {
    this.row = new RowPanel(byId("sql-row"), () => this.grid?.focus());
    return new Grid(byId("sql-grid"), {
      onScroll: () => undefined,
      onSort: (column, add) => {
        this.sort = nextSort(this.sort, column, add);
        this.showRows();
      },
      onOpen: (index) => this.rows && this.row?.show(this.rows, index),
      orderOf: (column) => {
        const place = this.sort.findIndex((key) => key.column === column);
        const key = this.sort[place];
        return key ? { place: place + 1, of: this.sort.length, descending: key.descending } : null;
      },
      isFiltered: () => false,
    });
  }

  private openExport(anchor: HTMLElement): void {
    const items = FORMATS.map(([format, label]) =>
      button("menu-item", label, () => {
        closePopover();
        downloadSql(this.text, format, MOST_ROWS, this.events.token()).catch((error: unknown) => this.showProblem(error));
        say(`Downloading ${label}`);
      }),
    );
    openPopover(anchor, "Export the rows of this SELECT", [element("div", "menu", ...items)]);
  }

  private showBusy(): void {
    byId("sql-stop").hidden = this.pending === null;
    byId("sql-view").classList.toggle("running", this.pending !== null);
    setText(byId("sql-run"), this.pending ? "Running" : "Run");
  }

  private showProblem(error: unknown): void {
    const problem = byId("sql-problem");
    const text = problemText(error);
    // In one line: what DuckDB says has many.
    setText(problem, text.replace(/\s*\n\s*/g, " "));
    problem.hidden = !text;
  }
}
