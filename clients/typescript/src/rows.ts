// Rows as frozen objects by column name, each with its id.

import type { ColumnInfo } from "./messages.js";

/** The key of a row's id. It is a symbol, so that it is not a column and not in JSON; `{...row}` copies it. */
export const ROW_ID: unique symbol = Symbol("turnout.rowId");

/** A row of any table. */
export type AnyRow = Record<string, unknown>;

/** Return the id of a row of a window or a mirror; it stays the same while the row's cells change. */
export function rowId(row: object): string {
  const id = (row as { [ROW_ID]?: string })[ROW_ID];
  if (id === undefined) throw new TypeError("rowId: this is not a row of a window or a mirror");
  return id;
}

/** A factory that creates rows from the lists of a message. */
export class RowMaker<Row> {
  private readonly names: string[];

  constructor(columns: readonly ColumnInfo[]) {
    this.names = columns.map((column) => column.name);
  }

  make(id: string, cells: readonly unknown[]): Row {
    const row: Record<PropertyKey, unknown> = {};
    for (let index = 0; index < this.names.length; index++) define(row, this.names[index]!, cells[index]);
    row[ROW_ID] = id;
    return Object.freeze(row) as Row;
  }

  /** Return the same object if no cell has changed, so that a view can compare rows by `===`. */
  keep(known: Row | undefined, id: string, cells: readonly unknown[]): Row {
    if (known === undefined) return this.make(id, cells);
    const row = known as AnyRow;
    const same = this.names.every((name, index) => Object.is(row[name], cells[index]));
    return same ? known : this.make(id, cells);
  }
}

function define(row: Record<PropertyKey, unknown>, name: string, value: unknown): void {
  // Assigning to `__proto__` would set the prototype instead of the column.
  if (name === "__proto__") Object.defineProperty(row, name, { value, enumerable: true });
  else row[name] = value;
}

export function sameColumns(some: readonly ColumnInfo[], others: readonly ColumnInfo[]): boolean {
  return (
    some.length === others.length &&
    some.every(({ name, type }, index) => name === others[index]?.name && type === others[index].type)
  );
}
