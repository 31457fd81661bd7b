// Keyboard shortcuts of the page, and the help that lists them.

import { button, byId, element } from "./dom";

export interface Keys {
  toSearch(): void;
  toFilter(): void;
  toRows(): void;
  toTables(): void;
  toSwap(): void;
  otherTable(step: number): void;
  clear(): void;
  columns(): void;
  chart(): void;
  views(): void;
  toSql(): void;
  toReview(): void;
}

const LISTED: [string, string][] = [
  ["f", "search all text columns"],
  ["/", "filter rows"],
  ["g", "go to the rows"],
  ["t", "go to the tables"],
  ["s", "go to the swap form"],
  ["[  ]", "previous table, next table"],
  ["c", "choose columns"],
  ["h", "open or close the chart"],
  ["v", "saved views"],
  ["q", "open SQL; Ctrl+Enter runs it, Ctrl+Space completes a word"],
  ["r", "review the candidate"],
  ["x", "clear filters and sort"],
  ["?", "this help"],
  ["Tab", "leave the rows"],
  ["↑ ↓ ← →", "move among cells; Ctrl goes to the edge, Page Up/Down, Home and End jump"],
  ["Enter", "on a cell: the whole row; on a column: sort (Shift: add to the sort)"],
  ["F", "on a column: filter it"],
  ["Ctrl+C", "copy the cell"],
  ["Alt+← →", "on a column: change its width"],
  ["Esc", "close a dialog, a menu or the row"],
];

export function startKeys(keys: Keys): void {
  fillHelp();
  byId("help-open").addEventListener("click", openHelp);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const act = actionOf(event.key, keys);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function actionOf(key: string, keys: Keys): (() => void) | undefined {
  const actions: Record<string, () => void> = {
    f: keys.toSearch,
    "/": keys.toFilter,
    "?": openHelp,
    "[": () => keys.otherTable(-1),
    "]": () => keys.otherTable(1),
    g: keys.toRows,
    t: keys.toTables,
    s: keys.toSwap,
    c: keys.columns,
    h: keys.chart,
    v: keys.views,
    q: keys.toSql,
    r: keys.toReview,
    x: keys.clear,
  };
  return Object.hasOwn(actions, key) ? actions[key] : undefined;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input:not([type=radio], [type=checkbox]), textarea, select, [contenteditable], [popover]") !== null;
}

function openHelp(): void {
  byId<HTMLDialogElement>("help").showModal();
}

function fillHelp(): void {
  const dialog = byId<HTMLDialogElement>("help");
  const title = element("h2", "", "Keys");
  title.id = "help-title";
  const close = button("button icon plain", "✕", () => dialog.close());
  close.setAttribute("aria-label", "Close");
  const list = element("dl", "keys");
  for (const [key, what] of LISTED) list.append(element("dt", "", element("kbd", "", key)), element("dd", "", what));
  const where = element("p", "quiet");
  where.append(
    "The filter takes terms such as ",
    element("code", "", "age >= 30, name contains an, email is null"),
    "; each column also has its own filter.",
  );
  dialog.append(element("div", "heading", title, close), list, where);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}
