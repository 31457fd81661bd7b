// Completion in the editor: tables after FROM and JOIN; elsewhere the columns of the tables in the text, then SQL
// keywords. Pure.

import type { Column } from "./rows";

// The keywords to highlight and complete: common ones, not all of a standard.
export const KEYWORDS =
  "select from where group by order having limit offset distinct all as on using join left right full inner outer cross " +
  "semi anti asof with recursive union intersect except and or not in is null between like ilike case when then else end " +
  "cast asc desc nulls first last over partition filter qualify exists any values true false interval exclude replace";
export const FUNCTIONS =
  "count sum avg min max median quantile_cont stddev round floor ceil abs coalesce lower upper length substr trim concat " +
  "regexp_matches date_trunc date_part strftime now row_number rank lag lead first_value list arg_max arg_min approx_count_distinct";

export interface KnownTable {
  name: string;
  columns: readonly Column[];
}

export interface Word {
  label: string;
  type: "class" | "property" | "keyword";
  detail: string;
  // The rank: a higher value comes first.
  boost: number;
  // The text to insert, if it is not the label.
  apply?: string;
}

// Quote a name unless it is a plain word.
export function sqlName(name: string): string {
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

// Return the tables that occur in a text.
export function namedTables(text: string, tables: readonly KnownTable[]): KnownTable[] {
  const words = new Set([...text.matchAll(/"((?:[^"]|"")+)"|([\p{L}_][\p{L}\p{N}_]*)/gu)].map((found) => (found[1]?.replaceAll('""', '"') ?? found[2]!).toLowerCase()));
  return tables.filter(({ name }) => words.has(name.toLowerCase()));
}

// Return the completions; `before` is the text up to the current word.
export function wordsFor(text: string, before: string, tables: readonly KnownTable[]): Word[] {
  const named = namedTables(text, tables);
  const wanted = /\b(from|join)\s+$/i.test(before) || /\bfrom\s+[^()]*,\s*$/i.test(before);
  const names = tables.map(({ name, columns }) => word(name, "class", `${columns.length} columns`, 10));
  if (wanted) return names;
  const seen = new Map<string, Word>();
  for (const { name: table, columns } of named) {
    for (const { name, type } of columns) {
      const known = seen.get(name);
      seen.set(name, word(name, "property", known ? `${known.detail}, ${table}` : `${type} · ${table}`, 20));
    }
  }
  return [...seen.values(), ...names, ...PLAIN_WORDS];
}

const PLAIN_WORDS: readonly Word[] = [...KEYWORDS.split(" "), ...FUNCTIONS.split(" ")].map((label) => {
  return { label, type: "keyword", detail: "", boost: 0 };
});

function word(name: string, type: Word["type"], detail: string, boost: number): Word {
  const apply = sqlName(name);
  return { label: name, type, detail, boost, ...(apply === name ? {} : { apply }) };
}

// Return the initial text of the editor.
export function firstSql(tables: readonly KnownTable[], table: string): string {
  const name = tables.some((one) => one.name === table) ? table : (tables[0]?.name ?? "final_ui");
  return `select *\nfrom ${sqlName(name)}\nlimit 100`;
}
