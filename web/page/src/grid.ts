// AG Grid as a view of rows that it does not store: every cell reads the current rows by its position. So new rows are
// shown in one step, and no cache keeps old values. `rows.ts` decides which rows to show.

import {
  CellStyleModule,
  ColumnApiModule,
  InfiniteRowModelModule,
  ModuleRegistry,
  RenderApiModule,
  RowApiModule,
  ScrollApiModule,
  createGrid,
  createTheme,
  type CellClassParams,
  type CellKeyDownEvent,
  type ColDef,
  type GridApi,
  type GridOptions,
  type IHeaderComp,
  type IHeaderParams,
} from "ag-grid-community";
import { element, nonce } from "./dom";
import { utcText } from "./clock";
import { isNumeric } from "./column-types";
import { columnWidth, copyText, decimalsOf, numberText, valueText, type Value } from "./format";
import { inReadingOrder } from "./tables";
import { baseAround, baseAt, boundedBase, isAtEdge, placesFor } from "./places";
import { cellAt, changedCells, idAt, sameColumns, type Column, type Rows, type Viewport } from "./rows";

ModuleRegistry.registerModules([
  InfiniteRowModelModule,
  CellStyleModule,
  ColumnApiModule,
  RenderApiModule,
  RowApiModule,
  ScrollApiModule,
]);

export const ROW_HEIGHT = 30;
const HEADER_HEIGHT = 36;
// The number of rendered rows above and below the screen; small, because it determines the rows to request.
const ROW_BUFFER = 4;
// The cache of AG Grid has only this placeholder: a cell reads its value from the current rows.
const SLOT = {};
const VIEWPORT = "ag-grid-viewport";
const SETTLED_MS = 250;
const NARROWEST = 0.7;
const SQUEEZE = 0.8;
const TAGGED = new Set(["outcome", "level", "state"]);

// The colours of the page; page.css defines the rest.
const THEME = createTheme().withParams({
  accentColor: "var(--accent)",
  backgroundColor: "var(--surface)",
  foregroundColor: "var(--text)",
  borderColor: "var(--line)",
  rowBorder: "1px solid var(--line-soft)",
  headerBackgroundColor: "var(--surface)",
  headerTextColor: "var(--text)",
  headerRowBorder: "1px solid var(--line)",
  rowHoverColor: "var(--hover)",
  wrapperBorder: false,
  wrapperBorderRadius: 0,
  fontFamily: "inherit",
  fontSize: 13,
  cellHorizontalPadding: 12,
  headerColumnResizeHandleColor: "var(--line)",
});


export interface Order {
  place: number;
  of: number;
  descending: boolean;
}

export interface GridEvents {
  onScroll(): void;
  onSort(column: string, add: boolean): void;
  // Undefined: columns have no filter button.
  onFilter?(column: Column, anchor: HTMLElement): void;
  onOpen(index: number): void;
  orderOf(column: string): Order | null;
  isFiltered(column: string): boolean;
}

export class Grid {
  private shown: Rows | null = null;
  private readonly host: HTMLElement;
  private readonly events: GridEvents;
  private readonly api: GridApi;
  private readonly headers = new Set<HeaderCell>();
  private readonly still = matchMedia("(prefers-reduced-motion: reduce)");
  private serial = 0;
  private total = 0;
  // The row at position 0; AG Grid knows only positions (see places.ts).
  private base = 0;
  private scrolledTo = 0;
  private settling = 0;
  private jumped = false;
  // For each column, the largest number of decimals seen.
  private decimals: number[] = [];

  constructor(host: HTMLElement, events: GridEvents) {
    this.host = host;
    this.events = events;
    this.api = createGrid(host, this.options());
    host.addEventListener("copy", (event) => this.onCopy(event));
    host.addEventListener("mouseover", ({ target }) => this.explain(target as HTMLElement));
    // Captured, to run before AG Grid draws the positions that become visible.
    host.addEventListener("scroll", ({ target }) => this.onScrolled(target as HTMLElement), true);
  }

  private options(): GridOptions {
    return {
      theme: THEME,
      loadThemeGoogleFonts: false,
      ...(nonce() ? { styleNonce: nonce() } : {}),
      rowModelType: "infinite",
      rowHeight: ROW_HEIGHT,
      headerHeight: HEADER_HEIGHT,
      rowBuffer: ROW_BUFFER,
      cacheBlockSize: 200,
      maxBlocksInCache: 10,
      infiniteInitialRowCount: 0,
      datasource: {
        getRows: ({ startRow, endRow, successCallback }) =>
          successCallback(new Array(endRow - startRow).fill(SLOT), placesFor(this.total)),
      },
      columnDefs: [],
      defaultColDef: { sortable: false, resizable: true, suppressMovable: false, editable: false },
      suppressAnimationFrame: true,
      animateRows: false,
      // The available width must not depend on the number of rows. Scrollbars of touch screens take no width.
      alwaysShowVerticalScroll: matchMedia("(pointer: fine)").matches,
      suppressDragLeaveHidesColumns: true,
      suppressNoRowsOverlay: true,
      enableCellTextSelection: false,
      ensureDomOrder: true,
      onViewportChanged: () => {
        this.numberRows();
        this.events.onScroll();
      },
      onGridSizeChanged: () => this.events.onScroll(),
      // Tab leaves the grid; arrow keys move inside it.
      tabToNextCell: () => false,
      tabToNextHeader: () => false,
      // Shift+Tab from below enters at the cell that was left. AG Grid would scroll to the last row of the table.
      focusGridInnerElement: ({ fromBottom }) => fromBottom && this.focus(),
      onCellDoubleClicked: ({ rowIndex }) => rowIndex !== null && this.events.onOpen(this.base + rowIndex),
      onCellKeyDown: (event) => "column" in event && this.onKey(event),
    };
  }

  // Show new rows in one step, so that no frame mixes old and new rows.
  show(rows: Rows, hidden: readonly string[]): void {
    const before = this.shown;
    const another = before?.query !== rows.query;
    const columns = !before || before.table !== rows.table || !sameColumns(before.columns, rows.columns);
    this.shown = rows;
    this.host.dataset.table = rows.table;
    this.host.querySelector("[role=grid], [role=treegrid]")?.setAttribute("aria-label", `Rows of ${rows.table}`);
    const wider = this.countDecimals(rows, columns);
    if (columns) this.setColumns(rows, hidden);
    if (this.total !== rows.total) {
      const shorter = rows.total < this.total && rows.total > 0;
      const { first } = this.viewport;
      const places = placesFor(rows.total);
      const ends = shorter && first + this.capacity > rows.total;
      this.total = rows.total;
      this.base = boundedBase(ends ? rows.total : this.base, rows.total);
      this.api.setRowCount(places, true);
      // After the grid became shorter, scroll up now, not in the next frame.
      if (ends) this.api.ensureIndexVisible(places - 1, "bottom");
    }
    if (another) this.base = 0;
    if (another && rows.total > 0) this.api.ensureIndexVisible(0, "top");
    this.numberRows();
    this.api.refreshCells({ suppressFlash: true, force: columns || wider });
    this.updateHeaders();
    this.flash(before, rows);
  }

  // Remove all rows, so that rows of one table are never shown under the name of another.
  clear(): void {
    this.shown = null;
    this.total = this.base = 0;
    delete this.host.dataset["table"];
    this.api.setRowCount(0, true);
    this.api.setGridOption("columnDefs", []);
  }

  get viewport(): Viewport {
    const first = Math.max(0, this.api.getFirstDisplayedRowIndex());
    const last = this.api.getLastDisplayedRowIndex();
    return { first: this.base + first, last: this.base + Math.max(last, first + this.capacity - 1) };
  }

  // The visible rows, without the rendered rows around them.
  get visible(): Viewport {
    const first = this.api.getFirstDisplayedRowIndex();
    const last = this.api.getLastDisplayedRowIndex();
    const end = placesFor(this.total) - 1;
    return { first: this.base + (first > 0 ? first + ROW_BUFFER : 0), last: this.base + (last < end ? last - ROW_BUFFER : last) };
  }

  get capacity(): number {
    return Math.max(20, Math.ceil(this.host.clientHeight / ROW_HEIGHT)) + 2 * ROW_BUFFER;
  }

  setHidden(hidden: readonly string[]): void {
    for (const column of this.api.getColumns() ?? []) {
      const name = column.getColDef().headerName ?? "";
      this.api.setColumnsVisible([column.getColId()], !hidden.includes(name));
    }
  }

  updateHeaders(): void {
    for (const header of this.headers) header.update();
  }

  // Focus the cell that had the focus last, or the first visible one. Return whether there is a cell.
  focus(): boolean {
    const column = this.api.getAllDisplayedColumns()[0];
    if (!column || this.total === 0) return false;
    const focused = this.api.getFocusedCell();
    const row = Math.min(focused?.rowIndex ?? this.visible.first - this.base, placesFor(this.total) - 1);
    this.api.ensureIndexVisible(row);
    this.api.setFocusedCell(row, focused?.column ?? column);
    return true;
  }

  // Handle scrolling of the rows' own viewport; AG Grid has other scrollable elements.
  private onScrolled(viewport: HTMLElement): void {
    const { classList, scrollTop, scrollHeight, clientHeight } = viewport;
    const isAll = placesFor(this.total) === this.total;
    if (isAll || !classList.contains(VIEWPORT) || scrollTop === this.scrolledTo) return;
    // About the smallest distance by which the scrollbar can be dragged.
    const isJump = Math.abs(scrollTop - this.scrolledTo) > scrollHeight / clientHeight / 4;
    this.scrolledTo = scrollTop;
    const place = Math.floor(scrollTop / ROW_HEIGHT);
    if (isJump) this.jump(baseAt(scrollTop / (scrollHeight - clientHeight), this.total));
    else if (isAtEdge(place, this.base, this.total)) this.moveTo(this.base + place, scrollTop % ROW_HEIGHT);
    this.settle(viewport);
  }

  // Show other rows at the same positions.
  private jump(base: number): void {
    if (base === this.base) return;
    this.base = base;
    this.jumped = true;
    this.refresh();
  }

  // Once scrolling has stopped, since browsers scroll in many steps: have AG Grid draw the rows that are visible now,
  // and move the focus to them after a jump. AG Grid ignores a scroll of the rows within half a second of one of its bar.
  private settle(viewport: HTMLElement): void {
    clearTimeout(this.settling);
    this.settling = window.setTimeout(() => {
      const place = Math.floor(viewport.scrollTop / ROW_HEIGHT);
      if (place < this.api.getFirstDisplayedRowIndex() || place > this.api.getLastDisplayedRowIndex()) {
        viewport.dispatchEvent(new Event("scroll"));
        this.settle(viewport);
      } else if (this.jumped) {
        this.jumped = false;
        const focused = this.api.getFocusedCell();
        const { first, last } = this.visible;
        if (focused && (this.base + focused.rowIndex < first || this.base + focused.rowIndex > last)) this.setFocus(first);
      }
    }, SETTLED_MS);
  }

  // Move the visible rows to other positions, without a visible change.
  private moveTo(row: number, rest: number): void {
    const focused = this.api.getFocusedCell();
    const focusedRow = focused && this.base + focused.rowIndex;
    this.base = baseAround(row, this.total);
    this.api.ensureIndexVisible(row - this.base, "top");
    this.scrolledTo = (row - this.base) * ROW_HEIGHT + rest;
    for (const part of this.host.querySelectorAll(`.${VIEWPORT}, .ag-body-vertical-scroll-viewport`)) part.scrollTop = this.scrolledTo;
    this.refresh();
    if (focusedRow !== null) this.setFocus(focusedRow);
  }

  private setFocus(row: number): void {
    const focused = this.api.getFocusedCell();
    const place = row - this.base;
    const isHere = focused && place >= 0 && place < placesFor(this.total);
    if (isHere && this.host.contains(document.activeElement)) this.api.setFocusedCell(place, focused.column);
    else this.api.clearFocusedCell();
  }

  private refresh(): void {
    for (const cell of this.host.querySelectorAll(".ag-cell.changed")) cell.classList.remove("changed");
    this.api.refreshCells({ suppressFlash: true });
    this.numberRows();
  }

  // Set the row numbers for screen readers to numbers in the table, not positions in the grid.
  private numberRows(): void {
    if (placesFor(this.total) === this.total) return;
    this.host.querySelector("[aria-rowcount]")?.setAttribute("aria-rowcount", String(this.total + 1));
    for (const [index, line] of this.lines()) line.setAttribute("aria-rowindex", String(index + 2));
  }

  // Return the rendered rows with their numbers in the table.
  private lines(): [number, Element][] {
    const found = [...this.host.querySelectorAll(".ag-row[row-index]")];
    return found.map((line) => [this.base + Number(line.getAttribute("row-index")), line]);
  }

  private setColumns({ table, columns, rows }: Rows, hidden: readonly string[]): void {
    this.serial += 1;
    const widths = columns.map((column, i) =>
      columnWidth(column.name, column.type, rows.slice(0, 100).map((row) => this.textOf(row[i] as Value, column, i))),
    );
    // Columns that are slightly too wide are squeezed; if they are much too wide, the grid scrolls.
    const fits = widths.reduce((sum, width) => sum + width, 0) * SQUEEZE < this.host.clientWidth - 20;
    this.api.setGridOption(
      "columnDefs",
      inReadingOrder(table, columns).map((i) => {
        const column = columns[i]!;
        return this.columnDef(column, i, widths[i] ?? 120, fits, hidden.includes(column.name));
      }),
    );
  }

  // Update the decimals of each column; return whether one has changed, so that its cells must be redrawn.
  private countDecimals({ columns, rows }: Rows, anew: boolean): boolean {
    const before = anew ? [] : this.decimals;
    this.decimals = columns.map(({ type }, i) =>
      isNumeric(type) ? rows.reduce((most, row) => Math.max(most, decimalsOf(row[i] as Value)), before[i] ?? 0) : 0,
    );
    return this.decimals.some((count, i) => count !== before[i]);
  }

  private textOf(value: Value, { type }: Column, i: number): string {
    const isNumber = isNumeric(type) && value !== null && value !== undefined;
    return isNumber ? numberText(value, this.decimals[i] ?? 0) : valueText(value, type);
  }

  // Set a tooltip: the time in UTC, or the number with all digits.
  private explain(target: HTMLElement): void {
    const cell = target.closest<HTMLElement>(".ag-cell");
    const [, column] = /^t\d+c(\d+)$/.exec(cell?.getAttribute("col-id") ?? "") ?? [];
    const type = this.shown?.columns[Number(column)]?.type ?? "";
    if (!cell || (type !== "timestamp" && !isNumeric(type))) return;
    const value = cellAt(this.shown, this.base + Number(cell.closest(".ag-row")?.getAttribute("row-index")), Number(column));
    cell.title = type === "timestamp" && typeof value === "string" ? utcText(value) : copyText(value as Value);
  }

  private columnDef(column: Column, i: number, width: number, fits: boolean, hide: boolean): ColDef {
    const tagged = TAGGED.has(column.name);
    return {
      // Only letters and digits, because it is used in selectors; a column name can have any characters.
      colId: `t${this.serial}c${i}`,
      headerName: column.name,
      headerComponent: HeaderCell,
      headerComponentParams: { grid: this, events: this.events, info: column, headers: this.headers },
      width,
      minWidth: Math.round(Math.max(56, width * NARROWEST)),
      ...(fits ? { flex: width } : {}),
      hide,
      valueGetter: ({ node }) => cellAt(this.shown, node?.rowIndex == null ? -1 : this.base + node.rowIndex, i),
      valueFormatter: ({ value }) => this.textOf(value as Value, column, i),
      equals: (one: unknown, other: unknown) => Object.is(one, other),
      cellClass: (params: CellClassParams) => classesOf(params.value, column, tagged),
      suppressKeyboardEvent: ({ event }) => event.key === "Escape",
    };
  }

  private flash(before: Rows | null, after: Rows): void {
    const lines = new Map(this.lines());
    // A position that now shows another row must not keep the highlight of the previous row.
    for (const cell of this.host.querySelectorAll(".ag-cell.changed")) {
      const index = this.base + Number(cell.closest(".ag-row")?.getAttribute("row-index"));
      if (idAt(before, index) !== idAt(after, index)) cell.classList.remove("changed");
    }
    if (this.still.matches) return;
    for (const { index, column } of changedCells(before, after)) {
      const cell = lines.get(index)?.querySelector(`[col-id="t${this.serial}c${column}"]`);
      if (!cell) continue;
      cell.classList.remove("changed");
      for (const running of cell.getAnimations()) running.cancel();
      cell.classList.add("changed");
      cell.addEventListener("animationend", () => cell.classList.remove("changed"), { once: true });
    }
  }

  private onKey({ event, rowIndex }: CellKeyDownEvent): void {
    if (!(event instanceof KeyboardEvent) || rowIndex === null || event.defaultPrevented) return;
    if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) this.events.onOpen(this.base + rowIndex);
  }

  // Copy the value of the focused cell if no text is selected.
  private onCopy(event: ClipboardEvent): void {
    const cell = this.api.getFocusedCell();
    if (!cell || !event.clipboardData || !getSelection()?.isCollapsed) return;
    const column = Number(cell.column.getColId().split("c")[1]);
    event.clipboardData.setData("text/plain", copyText(cellAt(this.shown, this.base + cell.rowIndex, column) as Value));
    event.preventDefault();
    const line = this.host.querySelector(`.ag-row[row-index="${cell.rowIndex}"] [col-id="${cell.column.getColId()}"]`);
    line?.classList.add("copied");
    setTimeout(() => line?.classList.remove("copied"), 400);
  }
}

function classesOf(value: unknown, { name, type }: Column, tagged: boolean): string[] {
  if (value === undefined) return ["waiting"];
  if (value === null) return isNumeric(type) ? ["null", "number"] : ["null"];
  if (tagged && /^\w{1,20}$/.test(String(value))) return ["tag-cell", `is-${String(value).toLowerCase()}`, `of-${name}`];
  return isNumeric(type) ? ["number"] : [];
}

interface HeaderParams extends IHeaderParams {
  info: Column;
  events: GridEvents;
  headers: Set<HeaderCell>;
}

// The header of a column: name, type, order and filter. The surrounding cell has the focus: Enter sorts, F filters.
class HeaderCell implements IHeaderComp {
  private params!: HeaderParams;
  private readonly gui = element("div", "head");
  private readonly sort = element("button", "head-sort");
  private readonly order = element("span", "head-order");
  private readonly filter = element("button", "head-filter");

  init(params: IHeaderParams): void {
    this.params = params as HeaderParams;
    const { info, events, headers, eGridHeader } = this.params;
    this.order.setAttribute("aria-hidden", "true");
    this.sort.append(element("span", "head-name", info.name), this.order, element("small", "", info.type));
    this.sort.addEventListener("click", (event) => events.onSort(info.name, event.shiftKey || event.ctrlKey));
    this.filter.addEventListener("click", () => events.onFilter?.(info, this.filter));
    this.filter.hidden = !events.onFilter;
    this.filter.setAttribute("aria-label", `Filter ${info.name}`);
    this.filter.title = "Filter (F)";
    for (const made of [this.sort, this.filter]) {
      made.type = "button";
      made.tabIndex = -1;
    }
    this.gui.classList.toggle("number", isNumeric(info.type));
    this.gui.append(this.sort, this.filter);
    eGridHeader.setAttribute("aria-description", `Enter sorts, Shift+Enter adds to the sort${events.onFilter ? ", F filters" : ""}`);
    eGridHeader.addEventListener("keydown", this.onKey);
    headers.add(this);
    this.update();
  }

  getGui(): HTMLElement {
    return this.gui;
  }

  refresh(): boolean {
    return false;
  }

  destroy(): void {
    this.params.headers.delete(this);
    this.params.eGridHeader.removeEventListener("keydown", this.onKey);
  }

  update(): void {
    const { info, events, eGridHeader } = this.params;
    const order = events.orderOf(info.name);
    this.order.textContent = !order ? "" : `${order.descending ? "▼" : "▲"}${order.of > 1 ? order.place : ""}`;
    eGridHeader.setAttribute("aria-sort", !order ? "none" : order.descending ? "descending" : "ascending");
    const filtered = events.isFiltered(info.name);
    this.filter.classList.toggle("on", filtered);
    this.filter.setAttribute("aria-pressed", String(filtered));
  }

  private readonly onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { info, events } = this.params;
    if (event.key === "Enter") events.onSort(info.name, event.shiftKey);
    else if (/^f$/i.test(event.key) && events.onFilter) events.onFilter(info, this.filter);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
}
