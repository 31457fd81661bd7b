// Conversion of table columns to grid columns. Pure.

import type { ColDef } from "ag-grid-community";
import type { ColumnInfo } from "@turnout/angular";

const TEXT = ["contains", "equals", "notEqual", "startsWith", "endsWith", "blank", "notBlank"];
const EXACT = ["equals", "notEqual", "blank", "notBlank"];
const NUMBER = ["equals", "notEqual", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual", "inRange", "blank", "notBlank"];
const DATE = ["equals", "lessThan", "greaterThan", "inRange", "blank", "notBlank"];

/** Return a grid column for each table column, with the filters that the server supports for its type. */
export function columnDefs(columns: readonly ColumnInfo[]): ColDef[] {
  return columns.map(({ name, type }) => ({
    field: name,
    headerName: name,
    ...(isNumeric(type) ? { type: "rightAligned" } : {}),
    ...filterOf(type),
  }));
}

function filterOf(type: string): Pick<ColDef, "filter" | "filterParams"> {
  if (isNumeric(type)) return filter("agNumberColumnFilter", NUMBER);
  if (type === "date" || type === "timestamp") return filter("agDateColumnFilter", DATE);
  return filter("agTextColumnFilter", type === "boolean" ? EXACT : TEXT);
}

function filter(name: string, filterOptions: string[]): Pick<ColDef, "filter" | "filterParams"> {
  // A second condition could be joined by OR, which the server does not support.
  return { filter: name, filterParams: { filterOptions, maxNumConditions: 1 } };
}

function isNumeric(type: string): boolean {
  return /^(int32|int64|float|double|decimal)/.test(type);
}
