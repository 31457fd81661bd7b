// The page, put together: one client, the parts that show what it tells, and the address. Nothing here can change a row.

import { connect, type ConnectionState, type Status, type TableInfo } from "@turnout/client";
import { emptyView, fromHash, toHash, type Place, type SqlText, type View } from "./address";
import { Bell } from "./bell";
import { zoneName } from "./clock";
import { ConnectionSign } from "./connection";
import { startDividers } from "./divider";
import { byId, say } from "./dom";
import { downloadCsv } from "./download";
import { isEmbedded, showWholeAddress, startEmbedded } from "./embed";
import { ExampleDialog } from "./example";
import { startKeys } from "./keys";
import { showPerson, startLogin } from "./login";
import { Pane } from "./pane";
import { startPopover } from "./popover";
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
let sqlShown = false;
let tables: readonly TableInfo[] = [];

const client = connect({ client: "page", ...(token === null ? {} : { token }) });
const header = new Header();
const sign = new ConnectionSign(client, onAway);
const swap = new SwapForm(client);
const example = new ExampleDialog(client);
const list = new TableList(openTable, () => openSql(null));
const pane = new Pane(client, { onView: () => showAddress(), onRows });
const sql = new SqlPane(client, { onText: () => showAddress(), token: () => token });
const saved = new SavedMenu(client, {
  make: (name) => (sqlShown ? toSavedSql(name, sql.sql) : toSaved(name, pane.view, columnsOf(pane.view.table))),
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

// What works on the table that is looked at, and on nothing else.
const onTable = (act: () => void) => () => {
  if (!sqlShown) act();
};
if (!isEmbedded) startKeys({
  toSearch: onTable(() => pane.focusSearch()),
  toFilter: onTable(() => pane.focusFilter()),
  toRows: () => (sqlShown ? sql.focusRows() : pane.focusRows()),
  toTables: () => byId("tables").querySelector<HTMLElement>("[aria-current]")?.focus(),
  toSwap: () => {
    setSide(true);
    byId("swap").querySelector<HTMLElement>("input, select")?.focus();
  },
  otherTable: (step) => {
    const next = list.neighbour(pane.view.table, step);
    if (next) openTable(next);
  },
  clear: onTable(() => pane.clear()),
  columns: onTable(() => pane.openColumns()),
  chart: onTable(() => pane.toggleChart()),
  views: onTable(() => saved.open()),
  toSql: () => {
    if (!sqlShown) openSql(null);
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
  if (!place.sql) return open(place.view);
  pane.prepare(place.view);
  openSql(place.sql);
}

// `byUser`: somebody chose it, so that Back leads to what was looked at before.
function open(view: View, byUser = false): void {
  showTab(false);
  pane.open(view);
  list.choose(view.table);
  showAddress(byUser);
}

function openSql(given: SqlText | null, byUser = given === null): void {
  showTab(true);
  sql.open(given, pane.view.table);
  list.choose(null);
  showAddress(byUser);
}

function showTab(asSql: boolean): void {
  if (sqlShown && !asSql) sql.leave();
  sqlShown = asSql;
  byId("table-view").hidden = asSql;
  byId("sql-view").hidden = !asSql;
  byId("main").setAttribute("aria-labelledby", asSql ? "sql-title" : "table-name");
}

// Another table keeps a chart open: which one fits it is found anew.
function openTable(table: string): void {
  open({ ...emptyView(table), chart: pane.view.chart && "auto" }, true);
}

function columnsOf(table: string): string[] {
  return tables.find(({ name }) => name === table)?.columns.map(({ name }) => name) ?? [];
}

function placeNow(): Place {
  return { view: pane.view, sql: sqlShown ? sql.sql : null };
}

function showAddress(byUser = false): void {
  const hash = toHash(placeNow());
  if (location.hash !== hash) history[byUser ? "pushState" : "replaceState"](null, "", hash);
  sign.showTab(nameNow());
  if (isEmbedded) showWholeAddress(placeNow());
}

function nameNow(): string {
  return sqlShown ? "SQL" : pane.view.table;
}

function onConnection(state: ConnectionState): void {
  sign.show(state);
  if (state.state === "live") {
    prompt.accepted();
    void showPerson(client);
    swap.setRole(state.role);
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

// What the server would have to do cannot be asked for, and what it said last is not true any more.
function onAway(away: boolean): void {
  header.setAway(away);
  swap.setAway(away);
  pane.setAway(away);
}

function onStatus(status: Status): void {
  header.show(status);
  bell.setAlerts(status.alerts ?? []);
  swap.show(status);
  pane.setTrouble(status.ready === false ? (status.reason ?? "") : "");
  example.show(status);
  sign.showTab(nameNow(), status);
  // Counts of another generation are other counts.
  if (generation !== null && generation !== status.generation) void readTables();
  generation = status.generation;
}

function onHistory(rows: readonly Record<string, unknown>[], columns: readonly { name: string; type: string }[]): void {
  const entries = showTimeline({ columns, rows: rows.map((row) => columns.map(({ name }) => row[name])) });
  swap.setPrevious(previousOf(entries));
}

function onRows(rows: Rows): void {
  if (pane.view.where === "" && pane.view.filters.length === 0) list.setCount(rows.table, rows.total);
}

// Names and counts of all tables; while nobody looks, nobody asks.
async function readTables(): Promise<void> {
  clearTimeout(tablesTimer);
  if (document.hidden || client.connection.state !== "live") return;
  try {
    tables = await client.tables();
    list.show([...tables]);
    sql.setTables(tables);
    const first = list.first;
    if (!pane.view.table && first) {
      if (sqlShown) pane.prepare(emptyView(first));
      else open(emptyView(first));
    }
    list.choose(sqlShown ? null : pane.view.table);
  } catch (error) {
    console.warn("the list of tables could not be read:", String(error));
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
