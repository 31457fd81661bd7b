// The rows of one message at their positions in the grid. A position has a row of this message or an empty row, never a
// row of an earlier message, so that no frame mixes two versions.

import type { GridApi, IRowNode } from "ag-grid-community";
import { type LiveStep, rowId, type WindowInfo } from "@turnout/angular";

const WAITING = Symbol("turnout.waiting");

/** Return an empty row for a position whose row is not loaded yet. */
function waitingRow<Row>(place: number): Row {
  return Object.freeze({ [WAITING]: place }) as Row;
}

function isWaiting(row: object): row is { [WAITING]: number } {
  return WAITING in row;
}

/** Return the id of a row in the grid, which selection and focus use. */
export function gridId(row: object): string {
  return isWaiting(row) ? `waiting ${row[WAITING]}` : rowId(row);
}

export class Places<Row extends object> {
  shown: LiveStep<Row, WindowInfo> | null = null;

  get total(): number {
    return this.shown?.info.total ?? 0;
  }

  /** Return a block of the grid's cache; positions beyond the end of the table get empty rows, which are not shown. */
  block(start: number, end: number): Row[] {
    return Array.from({ length: end - start }, (_, index) => this.at(start + index) ?? waitingRow<Row>(start + index));
  }

  /** Show new rows in one step, so that no frame mixes old and new rows. */
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
    // A position without data belongs to a block that the grid will request.
    if (before === undefined || node.rowIndex === null) return;
    const row = this.at(node.rowIndex);
    if (row === before || (row === undefined && isWaiting(before))) return;
    const now = row ?? waitingRow<Row>(node.rowIndex);
    // Changed cells of the same row flash. After a swap nothing flashes, because every row is new.
    if (sameGeneration && gridId(before) === gridId(now)) node.updateData(now);
    else replace(node, now);
  }
}

interface PlaceNode<Row> {
  setDataAndId(row: Row, id: string): void;
}

/** Replace the row and its id, so that a selection stays with its row. AG Grid's types omit `setDataAndId`. */
function replace<Row extends object>(node: IRowNode<Row>, row: Row): void {
  const known: Partial<PlaceNode<Row>> = node as IRowNode<Row> & Partial<PlaceNode<Row>>;
  if (known.setDataAndId) known.setDataAndId(row, gridId(row));
  else node.setData(row);
}
