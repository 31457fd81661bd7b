// The statements that were run in this browser, newest first. Pure but for where they are kept.

const KEY = "turnout.sql.history";
export const MOST_STATEMENTS = 100;

export interface Statement {
  text: string;
  // Milliseconds since 1970.
  at: number;
  // Null where it failed.
  rows: number | null;
}

// Run again, a statement stands at the top once, not twice.
export function withStatement(statements: readonly Statement[], run: Statement): Statement[] {
  const text = run.text.trim();
  const others = statements.filter((one) => one.text !== text);
  return [{ ...run, text }, ...others].slice(0, MOST_STATEMENTS);
}

// In one line, for a list.
export const lineOf = (text: string): string => text.replace(/\s+/g, " ").trim();

export function readStatements(found: unknown): Statement[] {
  if (!Array.isArray(found)) return [];
  return found.filter(isStatement).slice(0, MOST_STATEMENTS);
}

function isStatement(item: unknown): item is Statement {
  const { text, at, rows } = (item ?? {}) as Partial<Statement>;
  return typeof text === "string" && text !== "" && typeof at === "number" && (rows === null || typeof rows === "number");
}

export function statements(): Statement[] {
  try {
    return readStatements(JSON.parse(localStorage.getItem(KEY) ?? "[]"));
  } catch {
    return [];
  }
}

export function keepStatement(run: Statement): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(withStatement(statements(), run)));
  } catch {
    // A browser may refuse storage: then nothing is remembered.
  }
}

export function forgetStatements(): void {
  try {
    localStorage.removeItem(KEY);
  } catch {
    // Nothing was kept.
  }
}
