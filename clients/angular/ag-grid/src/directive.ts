// The directive that shows a table in AG Grid. The server sorts and filters, and sends the rows around the screen.

import { computed, Directive, effect, inject, input, linkedSignal, type OnInit, type Signal, signal, untracked } from "@angular/core";
import { takeUntilDestroyed } from "@angular/core/rxjs-interop";
import { type AnyRow, type LiveStep, type Term, Turnout, TurnoutError, type WindowInfo, type WindowOptions } from "@turnout/angular";
import { AgGridAngular } from "ag-grid-angular";
import {
  CellStyleModule,
  ColumnApiModule,
  DateFilterModule,
  type GridApi,
  HighlightChangesModule,
  type IDatasource,
  type IGetRowsParams,
  InfiniteRowModelModule,
  NumberFilterModule,
  RowApiModule,
  ScrollApiModule,
  TextFilterModule,
} from "ag-grid-community";
import { columnDefs } from "./columns";
import { sortOf, type Target, termsOf } from "./filters";
import { gridId, Places } from "./places";
import { clamp, covers, FIRST_SPAN, type Places as Screen, shouldMove, type Span, spanFor } from "./spans";

const MODULES = [
  InfiniteRowModelModule,
  CellStyleModule,
  ColumnApiModule,
  RowApiModule,
  ScrollApiModule,
  HighlightChangesModule,
  TextFilterModule,
  NumberFilterModule,
  DateFilterModule,
];

/** Shows a table: `<ag-grid-angular turnoutTable="final_ui" />`. All other options of the grid work as usual. */
@Directive({ selector: "ag-grid-angular[turnoutTable]", exportAs: "turnoutTable" })
export class TurnoutTable<Row extends object = AnyRow> implements OnInit {
  /** The table; null shows none. */
  readonly table = input.required<string | null>({ alias: "turnoutTable" });
  /** Conditions in addition to the filters of the columns. */
  readonly where = input<WindowOptions["where"]>(undefined, { alias: "turnoutWhere" });
  /** The columns to request; all if omitted. */
  readonly columns = input<WindowOptions["columns"]>(undefined, { alias: "turnoutColumns" });

  private readonly grid: AgGridAngular<Row> = inject(AgGridAngular);
  private readonly api = signal<GridApi<Row> | null>(null);
  private readonly places = new Places<Row>();
  private readonly sort = signal<readonly string[]>([]);
  private readonly terms = signal<readonly Term[]>([]);
  private readonly refused = signal<TurnoutError | null>(null);
  private readonly query = computed(() => this.queryNow(), { equal: isSame });
  // A changed query starts at the top.
  private readonly span = linkedSignal<WindowOptions | null, Span>({ source: this.query, computation: () => FIRST_SPAN });
  private readonly live = inject(Turnout).window<Row>(() => {
    const query = this.query();
    return query && { ...query, ...this.span() };
  });

  /** The information on the rows: `total`, `generation` and others; null before the first rows. */
  readonly info: Signal<WindowInfo | null> = this.live.info;
  /** The error in the conditions or the order, or null; after an error the rows stay. */
  readonly error: Signal<TurnoutError | null> = computed(() => this.refused() ?? this.live.error());
  /** The loaded rows: those on the screen and around it. */
  readonly rows: Signal<readonly Row[]> = this.live.rows;

  constructor() {
    this.grid.gridReady.pipe(takeUntilDestroyed()).subscribe(({ api }) => this.api.set(api));
    this.grid.viewportChanged.pipe(takeUntilDestroyed()).subscribe(() => this.follow());
    effect(() => {
      const api = this.api();
      const info = this.live.info();
      const rows = this.live.rows();
      if (api !== null) untracked(() => this.arrived(api, info && { rows, info }));
    });
  }

  ngOnInit(): void {
    const { grid } = this;
    const given = grid.gridOptions;
    const still = globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
    const datasource: IDatasource = { getRows: (block) => this.getRows(block) };
    grid.modules = [...(grid.modules ?? []), ...MODULES];
    grid.rowModelType = "infinite";
    grid.datasource = datasource;
    grid.getRowId = ({ data }) => gridId(data);
    grid.cacheBlockSize ??= given?.cacheBlockSize ?? 100;
    grid.maxBlocksInCache ??= given?.maxBlocksInCache ?? 10;
    // A column name may contain dots.
    grid.suppressFieldDotNotation ??= given?.suppressFieldDotNotation ?? true;
    grid.defaultColDef = { sortable: true, enableCellChangeFlash: !still, ...given?.defaultColDef, ...grid.defaultColDef };
  }

  private queryNow(): WindowOptions | null {
    const table = this.table();
    if (table === null) return null;
    const where = this.where() ?? [];
    return {
      table,
      columns: this.columns(),
      where: [...(typeof where === "string" ? [where] : where), ...this.terms()].filter((term) => term !== ""),
      sort: [...this.sort()],
    };
  }

  /** Return a block to the grid, which requests one at the start, while scrolling, and after a new order or filter. */
  private getRows({ startRow, endRow, sortModel, filterModel, successCallback }: IGetRowsParams): void {
    try {
      this.terms.set(termsOf(filterModel, (id) => this.targetOf(id)));
      this.sort.set(sortOf(sortModel, (id) => this.targetOf(id).column));
      this.refused.set(null);
    } catch (error) {
      if (!(error instanceof TurnoutError)) throw error;
      this.refused.set(error);
    }
    // The loaded rows stay on the screen until the answer arrives.
    successCallback(this.places.block(startRow, endRow), this.places.total);
  }

  private targetOf(id: string): Target {
    const column = this.api()?.getColumnDef(id)?.field ?? id;
    const type = this.places.shown?.info.columns.find(({ name }) => name === column)?.type;
    return { column, type: type ?? "string" };
  }

  private arrived(api: GridApi<Row>, step: LiveStep<Row, WindowInfo> | null): void {
    const before = this.places.shown?.info;
    if (step === null) {
      if (before !== undefined) this.empty(api);
      return;
    }
    const { info } = step;
    const another = before === undefined || !isSame(queryOf(before.options), queryOf(info.options));
    if (this.shouldWait(api, step, another)) return;
    if (!isSame(before?.columns, info.columns)) this.setColumns(api, info);
    this.places.show(step, api);
    if (another && info.total > 0) api.ensureIndexVisible(0, "top");
    this.follow();
  }

  /** Whether to wait: rows of another generation are shown only when they fill the screen, so that there is no gap. */
  private shouldWait(api: GridApi<Row>, { rows, info }: LiveStep<Row, WindowInfo>, another: boolean): boolean {
    const before = this.places.shown?.info;
    if (another || before === undefined || before.generation === info.generation || info.total === 0) return false;
    const screen = clamp(screenOf(api), info.total);
    if (covers(info.offset, rows.length, screen)) return false;
    const wanted = spanFor(screen);
    if (isSame(wanted, this.span())) return false;
    this.span.set(wanted);
    return true;
  }

  private setColumns(api: GridApi<Row>, { columns }: WindowInfo): void {
    const given = this.grid.columnDefs ?? this.grid.gridOptions?.columnDefs;
    if (!given) api.setGridOption("columnDefs", columnDefs(columns));
  }

  private follow(): void {
    const api = this.api();
    if (api === null || this.places.shown === null || api.isDestroyed()) return;
    const screen = clamp(screenOf(api), this.places.total);
    if (shouldMove(this.span(), screen, this.places.total)) this.span.set(spanFor(screen));
  }

  private empty(api: GridApi<Row>): void {
    this.places.shown = null;
    api.setRowCount(0, true);
  }
}

function screenOf<Row>(api: GridApi<Row>): Screen {
  const first = Math.max(0, api.getFirstDisplayedRowIndex());
  return { first, last: Math.max(first, api.getLastDisplayedRowIndex()) };
}

/** Return the options without the span. */
function queryOf({ table, columns, where, sort }: WindowOptions): WindowOptions {
  return { table, columns, where, sort };
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
