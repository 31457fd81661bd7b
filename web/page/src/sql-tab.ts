// One tab of the SQL view: a text, its current run, and the rows of the last run. The rows stay until the next answer
// arrives. This module does not use the document.

import { TurnoutError, type SqlInfo, type SqlSubscription, type TurnoutClient } from "@turnout/client";
import type { Rows } from "./rows";
import type { SqlChart } from "./sql-chart";
import { keepStatement } from "./sql-history";
import { sqlRows } from "./sql-rows";
import type { KeptTab } from "./sql-tabs";
import type { SortKey } from "./where";

export const FIRST_ROWS = 1000;
export const MOST_ROWS = 10_000;

interface Run {
  serial: number;
  text: string;
  startedAt: number;
  took: number | null;
  sub: SqlSubscription | null;
}

interface Answered {
  run: Run;
  found: readonly Record<string, unknown>[];
  info: SqlInfo;
}

let serial = 0;

export class SqlTab implements KeptTab {
  text: string;
  live: boolean;
  chart: SqlChart | null;
  sort: SortKey[] = [];
  limit = FIRST_ROWS;
  // Whether nothing was typed or run, so that another text may replace this one.
  isUntouched = true;
  // The error of the last run, or null; after an error the rows are those of an earlier run.
  problem: unknown = null;
  answered: Answered | null = null;
  private readonly client: TurnoutClient;
  private readonly onChange: (tab: SqlTab, isFirst: boolean) => void;
  private current: Run | null = null;
  private pending: Run | null = null;
  // Whether the tab was left before its answer arrived.
  private isInterrupted = false;
  private failedText: string | null = null;

  constructor(client: TurnoutClient, { text, live, chart }: KeptTab, onChange: (tab: SqlTab, isFirst: boolean) => void) {
    this.client = client;
    this.text = text;
    this.live = live;
    this.chart = chart;
    this.onChange = onChange;
  }

  get isRunning(): boolean {
    return this.pending !== null;
  }

  get isOld(): boolean {
    return this.problem !== null && this.answered !== null;
  }

  // The position of the error, if the text is still the one that was run.
  get wrongPlace(): TurnoutError["position"] {
    const isSame = this.failedText === this.text;
    return isSame && this.problem instanceof TurnoutError ? this.problem.position : null;
  }

  get rows(): Rows | null {
    if (!this.answered) return null;
    const { run, found, info } = this.answered;
    return sqlRows(run.serial, found, info, this.sort);
  }

  run(limit = FIRST_ROWS): void {
    this.pending?.sub?.close();
    this.limit = limit;
    this.isUntouched = this.isInterrupted = false;
    const run: Run = { serial: ++serial, text: this.text, startedAt: performance.now(), took: null, sub: null };
    this.pending = run;
    run.sub = this.client.liveSql(
      { sql: run.text, limit, live: this.live },
      { onRows: (rows, info) => this.arrived(run, rows, info), onError: (error) => this.failed(run, error) },
    );
    this.onChange(this, false);
  }

  stop(): void {
    this.pending?.sub?.close();
    this.pending = null;
    this.onChange(this, false);
  }

  // Stop requesting data while the tab is hidden; its rows are kept.
  rest(): void {
    this.isInterrupted ||= this.pending !== null;
    this.pending?.sub?.close();
    this.current?.sub?.close();
    this.pending = this.current = null;
  }

  wake(): void {
    const isLive = this.live && this.answered && !this.problem;
    if (this.isInterrupted || isLive) this.run(this.limit);
  }

  private arrived(run: Run, found: readonly Record<string, unknown>[], info: SqlInfo): void {
    if (run !== this.pending && run !== this.current) return;
    const isFirst = run === this.pending;
    if (isFirst) {
      this.current?.sub?.close();
      this.current = run;
      this.pending = null;
      run.took = (performance.now() - run.startedAt) / 1000;
      // Keep the chosen order if the columns are the same.
      if (JSON.stringify(info.columns) !== JSON.stringify(this.answered?.info.columns)) this.sort = [];
      keepStatement({ text: run.text, at: Date.now(), rows: found.length });
    }
    if (!info.options.live) run.sub?.close();
    this.answered = { run, found, info };
    this.problem = null;
    this.onChange(this, isFirst);
  }

  private failed(run: Run, error: TurnoutError): void {
    if (this.client.connection.state === "refused") return;
    if (run !== this.pending && run !== this.current) return;
    if (run === this.pending) keepStatement({ text: run.text, at: Date.now(), rows: null });
    // The rows of the previous run stay, but must no longer change.
    this.rest();
    this.isInterrupted = false;
    this.problem = error;
    this.failedText = run.text;
    this.onChange(this, false);
  }
}
