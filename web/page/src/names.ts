// Column names for the parameters `sort`, `by` and `values`: plain words unchanged, all others quoted.

export function quoted(name: string): string {
  return /^[A-Za-z0-9_]+$/.test(name) ? name : `"${name.replace(/["\\]/g, "\\$&")}"`;
}

export function unquoted(text: string): string {
  return /^".*"$/s.test(text) ? text.slice(1, -1).replace(/\\(.)/gs, "$1") : text;
}
