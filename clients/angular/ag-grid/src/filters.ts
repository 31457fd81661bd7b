// The order and the filters of a grid, as the server takes them. Pure.

import type { SortModelItem } from "ag-grid-community";
import { type Term, TurnoutError } from "@turnout/angular";

/** The part of AG Grid's filter models that is used; its own type of them says nothing. */
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

/** What a column is on the server. */
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

/** All terms of all columns. Throws a TurnoutError for a filter that the server does not have. */
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

  // AG Grid has a time of day with every date.
  function valueOf(given: unknown): unknown {
    return condition.filterType === "date" ? String(given).slice(0, 10) : given;
  }
}

/** A day of UTC is all its moments. */
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
  const hint = `take one of ${Object.keys(OPERATORS).join(", ")}, inRange, blank, notBlank; conditions are joined by AND`;
  return new TurnoutError({ code: "bad_filter", message: `the server has no filter '${kind}' (column ${column})`, hint });
}
