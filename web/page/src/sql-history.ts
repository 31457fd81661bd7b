// The statements that were run in this browser, newest first, kept in its local storage.

const KEY = "turnout.sql.history";
export const MOST_STATEMENTS = 100;

export interface Statement {
  text: string;
  // Milliseconds since 1970.
  at: number;
  // The number of rows; null if the statement failed.
  rows: number | null;
}

// Add a statement at the top; an earlier run of the same text is removed.
export function withStatement(statements: readonly Statement[], run: Statement): Statement[] {
  const text = run.text.trim();
  const others = statements.filter((one) => one.text !== text);
  return [{ ...run, text }, ...others].slice(0, MOST_STATEMENTS);
}

// Return the statement in one line, for a list.
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
    // The browser refuses storage, so nothing is remembered.
  }
}

export function forgetStatements(): void {
  try {
    localStorage.removeItem(KEY);
  } catch {
    // The browser refuses storage, so there is nothing to remove.
  }
}
