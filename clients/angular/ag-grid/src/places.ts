// The rows of one message at their places in the grid. A place has the row of that message or a row that waits, never
// one of an earlier message: no frame mixes two moments.

import type { GridApi, IRowNode } from "ag-grid-community";
import { type LiveStep, rowId, type WindowInfo } from "@turnout/angular";

const WAITING = Symbol("turnout.waiting");

/** A row whose cells are all empty, for a place whose row has not come yet. */
function waitingRow<Row>(place: number): Row {
  return Object.freeze({ [WAITING]: place }) as Row;
}

function isWaiting(row: object): row is { [WAITING]: number } {
  return WAITING in row;
}

/** The id of a row in the grid: selection and focus go by it. */
export function gridId(row: object): string {
  return isWaiting(row) ? `waiting ${row[WAITING]}` : rowId(row);
}

export class Places<Row extends object> {
  shown: LiveStep<Row, WindowInfo> | null = null;

  get total(): number {
    return this.shown?.info.total ?? 0;
  }

  /** The rows of a block of the grid's cache; also of places that the table has not yet, which the grid does not show. */
  block(start: number, end: number): Row[] {
    return Array.from({ length: end - start }, (_, index) => this.at(start + index) ?? waitingRow<Row>(start + index));
  }

  /** Everything in one step: a frame shows the rows before, or these. */
  show(step: LiveStep<Row, WindowInfo>, api: GridApi<Row>): void {
    const generation = this.shown?.info.generation;
    this.shown = step;
    if (api.getDisplayedRowCount() !== step.info.total) api.setRowCount(step.info.total, true);
    api.forEachNode((node) => this.put(node, generation === step.info.generation));
  }

  private at(place: number): Row | undefined {
    return this.shown?.rows[place - this.shown.info.offset];
  }

  private put(node: IRowNode<Row>, sameGeneration: boolean): void {
    const before = node.data;
    // A place without a row is of a block that the grid is about to ask for.
    if (before === undefined || node.rowIndex === null) return;
    const row = this.at(node.rowIndex);
    if (row === before || (row === undefined && isWaiting(before))) return;
    const now = row ?? waitingRow<Row>(node.rowIndex);
    // The same row with other cells flashes. After a swap everything is new, and so nothing in particular.
    if (sameGeneration && gridId(before) === gridId(now)) node.updateData(now);
    else replace(node, now);
  }
}

interface PlaceNode<Row> {
  setDataAndId(row: Row, id: string): void;
}

/** Another row at this place: its id too, so that a selection stays with its row. AG Grid's types leave this method out. */
function replace<Row extends object>(node: IRowNode<Row>, row: Row): void {
  const known: Partial<PlaceNode<Row>> = node as IRowNode<Row> & Partial<PlaceNode<Row>>;
  if (known.setDataAndId) known.setDataAndId(row, gridId(row));
  else node.setData(row);
}
