// Conversion of a grid's order and filters to parameters of the server. Pure.

import type { SortModelItem } from "ag-grid-community";
import { type Term, TurnoutError } from "@turnout/angular";

/** The used part of AG Grid's filter models; its own type has no fields. */
interface Condition {
  readonly filterType?: string;
  readonly type?: string | null;
  readonly filter?: unknown;
  readonly filterTo?: unknown;
  readonly dateFrom?: string | null;
  readonly dateTo?: string | null;
  readonly operator?: string;
  readonly conditions?: readonly Condition[];
}

/** A column on the server. */
export interface Target {
  readonly column: string;
  readonly type: string;
}

const OPERATORS: Readonly<Record<string, string>> = {
  contains: "icontains",
  startsWith: "starts with",
  endsWith: "ends with",
  equals: "=",
  notEqual: "!=",
  lessThan: "<",
  lessThanOrEqual: "<=",
  greaterThan: ">",
  greaterThanOrEqual: ">=",
};
const DAY_MS = 86_400_000;

export function sortOf(model: readonly SortModelItem[], columnOf: (id: string) => string): string[] {
  return model.map(({ colId, sort }) => (sort === "desc" ? "-" : "") + columnOf(colId));
}

/** Return the terms of all columns. Throw TurnoutError for a filter that the server does not support. */
export function termsOf(model: Readonly<Record<string, unknown>>, targetOf: (id: string) => Target): Term[] {
  return Object.entries(model).flatMap(([id, condition]) => columnTerms(targetOf(id), condition as Condition));
}

function columnTerms(target: Target, condition: Condition): Term[] {
  if (condition.conditions === undefined) return termsOfOne(target, condition);
  if (condition.operator !== "AND") throw unknown(target.column, "OR");
  return condition.conditions.flatMap((one) => termsOfOne(target, one));
}

function termsOfOne(target: Target, condition: Condition): Term[] {
  const { column } = target;
  const kind = condition.type ?? "";
  if (kind === "blank") return [{ column, op: "is null" }];
  if (kind === "notBlank") return [{ column, op: "is not null" }];
  const from = valueOf(condition.filterType === "date" ? condition.dateFrom : condition.filter);
  const to = valueOf(condition.filterType === "date" ? condition.dateTo : condition.filterTo);
  if (condition.filterType === "date" && target.type === "timestamp") return days(column, kind, String(from), String(to));
  if (kind === "inRange") {
    return [
      { column, op: ">=", value: from },
      { column, op: "<=", value: to },
    ];
  }
  const op = OPERATORS[kind];
  if (op === undefined) throw unknown(column, kind);
  return [{ column, op, value: from }];

  // AG Grid adds a time of day to every date.
  function valueOf(given: unknown): unknown {
    return condition.filterType === "date" ? String(given).slice(0, 10) : given;
  }
}

/** Convert a condition on days to timestamps; a day lasts from midnight to midnight UTC. */
function days(column: string, kind: string, from: string, to: string): Term[] {
  const since = { column, op: ">=", value: from };
  const before = { column, op: "<", value: from };
  const after = (day: string): string => new Date(Date.parse(day) + DAY_MS).toISOString().slice(0, 10);
  switch (kind) {
    case "equals":
      return [since, { column, op: "<", value: after(from) }];
    case "lessThan":
      return [before];
    case "greaterThan":
      return [{ column, op: ">=", value: after(from) }];
    case "inRange":
      return [since, { column, op: "<", value: after(to) }];
    default:
      throw unknown(column, kind);
  }
}

function unknown(column: string, kind: string): TurnoutError {
  const hint = `use one of ${Object.keys(OPERATORS).join(", ")}, inRange, blank, notBlank; conditions are joined by AND`;
  return new TurnoutError({ code: "bad_filter", message: `the server has no filter '${kind}' (column ${column})`, hint });
}
