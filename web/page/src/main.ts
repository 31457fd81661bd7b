// The entry point of the page, which connects the client, the parts of the page and the address. It changes no rows.

import { connect, type ConnectionState, type Status, type TableInfo } from "@turnout/client";
import { emptyView, fromHash, toHash, type Place, type SqlText, type View } from "./address";
import { Bell } from "./bell";
import { zoneName } from "./clock";
import { ConnectionSign } from "./connection";
import { startDividers } from "./divider";
import { CandidateSign } from "./candidate";
import { byId, say } from "./dom";
import { downloadCsv } from "./download";
import { isEmbedded, showWholeAddress, startEmbedded } from "./embed";
import { ExampleDialog } from "./example";
import { startKeys } from "./keys";
import { showPerson, startLogin } from "./login";
import { Pane } from "./pane";
import { startPopover } from "./popover";
import { emptyReview, type Review } from "./review";
import { ReviewPane } from "./review-pane";
import type { Rows } from "./rows";
import { fromSaved, fromSavedSql, toSaved, toSavedSql } from "./saved";
import { SavedMenu } from "./saved-menu";
import { SqlPane } from "./sql-pane";
import { Header } from "./status";
import { SwapForm } from "./swap";
import { TableList } from "./tables";
import { startTheme } from "./theme";
import { HISTORY_SHOWN, previousOf, showTimeline } from "./timeline";
import { storedToken, TokenPrompt } from "./token";
import "uplot/dist/uPlot.min.css";
import "./grid.css";
import "./chart.css";
import "./ask.css";
import "./example.css";
import "./review.css";
import "./why.css";
import "./page.css";

const TABLES_MS = 2000;

startTheme();
startPopover();
startDividers();
startLogin();
if (isEmbedded) startEmbedded();

let token = storedToken();
let generation: number | null = null;
let tablesTimer = 0;
type Tab = "table" | "sql" | "review";
let tab: Tab = "table";
let tables: readonly TableInfo[] = [];

const client = connect({ client: "page", ...(token === null ? {} : { token }) });
const header = new Header();
const sign = new ConnectionSign(client, onAway);
const candidate = new CandidateSign();
const swap = new SwapForm(client, () => openReview(emptyReview(pane.view.table), true));
const example = new ExampleDialog(client);
const list = new TableList(openTable, () => openSql(null));
const pane = new Pane(client, { onView: () => showAddress(), onRows });
const sql = new SqlPane(client, { onText: () => showAddress(), token: () => token });
const review = new ReviewPane(client, {
  onReview: () => showAddress(),
  onTable: openTable,
  onForm: () => toSwap(),
});
const saved = new SavedMenu(client, {
  make: (name) => (tab === "sql" ? toSavedSql(name, sql.sql) : toSaved(name, pane.view, columnsOf(pane.view.table))),
  onOpen: (view) => {
    const statement = fromSavedSql(view);
    if (statement) openSql(statement, true);
    else open(fromSaved(view, columnsOf(view.table)), true);
  },
});
const bell = new Bell(client, (table, where) => open({ ...emptyView(table), where }, true));
const prompt = new TokenPrompt(token, (given) => {
  token = given;
  client.reconnect({ token: given });
});

// Wrap an action that works only in the table view.
const onTable = (act: () => void) => () => {
  if (tab === "table") act();
};
if (!isEmbedded) startKeys({
  toSearch: onTable(() => pane.focusSearch()),
  toFilter: onTable(() => pane.focusFilter()),
  toRows: () => ({ table: pane, sql, review })[tab].focusRows(),
  toTables: () => byId("tables").querySelector<HTMLElement>("[aria-current]")?.focus(),
  toSwap,
  toReview: () => openReview(emptyReview(pane.view.table), true),
  otherTable: (step) => {
    const next = list.neighbour(pane.view.table, step);
    if (next) openTable(next);
  },
  clear: onTable(() => pane.clear()),
  columns: onTable(() => pane.openColumns()),
  chart: onTable(() => pane.toggleChart()),
  views: onTable(() => saved.open()),
  toSql: () => {
    if (tab !== "sql") openSql(null);
    sql.focus();
  },
});
startLayout();
for (const place of document.querySelectorAll(".zone")) place.textContent = zoneName();

client.onConnection(onConnection);
client.onStatus(onStatus);
client.window(
  { table: "swaps", sort: "-ts", limit: HISTORY_SHOWN },
  { onRows: (rows, info) => onHistory(rows, info.columns), onError: () => undefined },
);
const linked = fromHash(location.hash);
if (linked) openPlace(linked);
window.addEventListener("hashchange", () => {
  const place = fromHash(location.hash);
  if (place && toHash(place) !== toHash(placeNow())) openPlace(place);
});
document.addEventListener("visibilitychange", () => void readTables());

function openPlace(place: Place): void {
  if (!place.sql && !place.review) return open(place.view);
  pane.prepare(place.view);
  if (place.review) openReview(place.review);
  else openSql(place.sql);
}

function toSwap(): void {
  setSide(true);
  byId("swap").querySelector<HTMLElement>("input, select")?.focus();
}

// Open a table; `byUser` adds an entry to the browser's history.
function open(view: View, byUser = false): void {
  showTab("table");
  pane.open(view);
  list.choose(view.table);
  showAddress(byUser);
}

function openSql(given: SqlText | null, byUser = given === null): void {
  showTab("sql");
  sql.open(given, pane.view.table);
  list.choose(null);
  showAddress(byUser);
}

function openReview(given: Review, byUser = false): void {
  showTab("review");
  review.open(given);
  list.choose("");
  showAddress(byUser);
}

function showTab(next: Tab): void {
  if (tab === "sql" && next !== tab) sql.leave();
  if (tab === "review" && next !== tab) review.leave();
  tab = next;
  for (const name of ["table", "sql", "review"]) byId(`${name}-view`).hidden = name !== tab;
  byId("main").setAttribute("aria-labelledby", tab === "table" ? "table-name" : `${tab}-title`);
  document.body.classList.toggle("reviewing", tab === "review");
}

// Open another table; an open chart becomes the default chart of that table.
function openTable(table: string): void {
  open({ ...emptyView(table), chart: pane.view.chart && "auto" }, true);
}

function columnsOf(table: string): string[] {
  return tables.find(({ name }) => name === table)?.columns.map(({ name }) => name) ?? [];
}

function placeNow(): Place {
  return { view: pane.view, sql: tab === "sql" ? sql.sql : null, review: tab === "review" ? review.review : null };
}

function showAddress(byUser = false): void {
  const hash = toHash(placeNow());
  if (location.hash !== hash) history[byUser ? "pushState" : "replaceState"](null, "", hash);
  sign.showTab(nameNow());
  if (isEmbedded) showWholeAddress(placeNow());
}

function nameNow(): string {
  return tab === "sql" ? "SQL" : tab === "review" ? "Review" : pane.view.table;
}

function onConnection(state: ConnectionState): void {
  sign.show(state);
  if (state.state === "live") {
    prompt.accepted();
    void showPerson(client);
    swap.setRole(state.role);
    review.setRole(state.role);
    sql.setAllowed(state.sql);
    sql.setBack();
    list.setSql(state.sql);
    void readTables();
  } else if (state.state === "refused" && state.error.status === 401) {
    prompt.ask();
  } else if (state.state === "away") {
    prompt.wait(state.reason);
  }
}

// Disable actions while the server is away, and mark its last state as old.
function onAway(away: boolean): void {
  header.setAway(away);
  swap.setAway(away);
  review.setAway(away);
  pane.setAway(away);
}

function onStatus(status: Status): void {
  header.show(status);
  bell.setAlerts(status.alerts ?? []);
  swap.show(status);
  candidate.show(status);
  review.setStatus(status);
  pane.setTrouble(status.ready === false ? (status.reason ?? "") : "");
  example.show(status);
  sign.showTab(nameNow(), status);
  // Another generation has other row counts.
  if (generation !== null && generation !== status.generation) void readTables();
  generation = status.generation;
}

function onHistory(rows: readonly Record<string, unknown>[], columns: readonly { name: string; type: string }[]): void {
  const entries = showTimeline({ columns, rows: rows.map((row) => columns.map(({ name }) => row[name])) });
  swap.setPrevious(previousOf(entries));
  candidate.setHistory(entries);
  review.setHistory(entries);
}

function onRows(rows: Rows): void {
  if (pane.view.where === "" && pane.view.filters.length === 0) list.setCount(rows.table, rows.total);
}

// Read the names and row counts of all tables, unless the browser tab is hidden.
async function readTables(): Promise<void> {
  clearTimeout(tablesTimer);
  if (document.hidden || client.connection.state !== "live") return;
  try {
    tables = await client.tables();
    list.show([...tables]);
    sql.setTables(tables);
    review.setTables(tables);
    const first = list.first;
    if (!pane.view.table && first) {
      if (tab === "table") open(emptyView(first));
      else pane.prepare(emptyView(first));
    }
    if (tab !== "review") list.choose(tab === "sql" ? null : pane.view.table);
  } catch (error) {
    console.warn("cannot read the list of tables:", String(error));
  }
  clearTimeout(tablesTimer);
  tablesTimer = window.setTimeout(() => void readTables(), TABLES_MS);
}

function startLayout(): void {
  const wide = matchMedia("(min-width: 1181px)");
  setSide(wide.matches);
  wide.addEventListener("change", () => setSide(wide.matches));
  byId("side-toggle").addEventListener("click", () => setSide(!document.body.classList.contains("side-open")));
  byId("side-close").addEventListener("click", () => {
    setSide(false);
    byId("side-toggle").focus();
  });
  byId("stats-toggle").addEventListener("click", () => {
    const open = document.body.classList.toggle("stats-open");
    byId("stats-toggle").setAttribute("aria-expanded", String(open));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !wide.matches && byId("side").contains(document.activeElement)) byId("side-close").click();
  });
  byId("download").addEventListener("click", () => {
    const { table, where, sort } = pane.asked;
    downloadCsv({ table, where, sort }, token).catch((error: unknown) => pane.showProblemOf(error));
    say(`Downloading ${table}`);
  });
}

function setSide(open: boolean): void {
  document.body.classList.toggle("side-open", open);
  byId("side-toggle").setAttribute("aria-expanded", String(open));
}
