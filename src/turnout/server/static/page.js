// The page: status, tabs and one window of the chosen table, polled once a second. Text goes in by textContent only.

const POLL_MS = 1000;
const PAGE_ROWS = 100;
const NUMERIC = /^(int|float|double|decimal)/;
const BOOKKEEPING = ["bad_records", "join_quality", "orchestrator_status", "orchestrator_logs", "control_raw", "swaps"];
// What the header shows of the status: every `...Topic`, then these.
const STATUS_LABELS = { joinType: "join", generation: "generation", state: "state", lag: "lag" };

const byId = (id) => document.getElementById(id);
const view = { table: "", where: "", sort: "", offset: 0 };
// The latest request wins: an answer for an older view is dropped.
let asked = 0;
let timer = 0;
let columnsShown = "";
let lastSeen = null;
let windowShown = "";
let versionShown = null;

readHash();
byId("where").value = view.where;
poll();

async function poll() {
  clearTimeout(timer);
  const mine = ++asked;
  try {
    const [tables, status] = await Promise.all([getJson("/api/tables"), getJson("/api/status")]);
    if (mine !== asked) return;
    showTabs(tables.tables);
    const rows = view.table ? await rowsOrProblem() : null;
    if (mine !== asked) return;
    showConnection(true);
    if (rows) showRows(rows);
    showStatus(status, rows);
  } catch (error) {
    if (mine !== asked) return;
    showConnection(false, error);
  }
  timer = setTimeout(poll, POLL_MS);
}

async function getJson(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" }, signal: AbortSignal.timeout(10000) });
  const body = await answer.json();
  if (!answer.ok) {
    const error = new Error(body?.error?.message ?? `HTTP ${answer.status}`);
    error.shape = body?.error;
    error.status = answer.status;
    throw error;
  }
  return body;
}

// A refused where or a vanished table is said beside the box; it is no lost connection.
async function rowsOrProblem() {
  try {
    const found = await getJson(rowsAddress({ offset: view.offset, limit: PAGE_ROWS }));
    // Rows can go while somebody looks at the last page.
    if (found.rows.length === 0 && view.offset > 0) {
      view.offset = lastOffset(found.total);
      return await getJson(rowsAddress({ offset: view.offset, limit: PAGE_ROWS }));
    }
    showProblem(null);
    return found;
  } catch (error) {
    if (!error.shape || error.status >= 500) throw error;
    showProblem(error.shape);
    return null;
  }
}

function rowsAddress(more) {
  const query = new URLSearchParams(more);
  if (view.where) query.set("where", view.where);
  if (view.sort) query.set("sort", view.sort);
  return `/api/tables/${encodeURIComponent(view.table)}/rows?${query}`;
}

function lastOffset(total) {
  return Math.max(0, Math.floor((total - 1) / PAGE_ROWS) * PAGE_ROWS);
}

function showConnection(live, error) {
  const badge = byId("connection");
  if (live) lastSeen = new Date();
  badge.className = live ? "badge live" : "badge gone";
  const since = lastSeen ? `data of ${lastSeen.toLocaleTimeString()}` : "no data yet";
  setText(badge, live ? "live" : `server gone, ${since}; trying again`);
  badge.title = live || !error ? "" : error.message;
  byId("panel").classList.toggle("stale", !live);
}

function showStatus(status, rows) {
  const fields = Object.entries(status).filter(([name]) => name.endsWith("Topic"));
  const shown = fields.map(([name, value]) => [name.replace(/Topic$/, ""), value]);
  for (const [name, label] of Object.entries(STATUS_LABELS)) {
    if (name in status) shown.push([label, status[name]]);
  }
  if (rows) versionShown = rows.version;
  shown.push(["version", versionShown]);
  const list = byId("status");
  fit(list, shown.length, () => {
    const box = document.createElement("div");
    box.append(document.createElement("dt"), document.createElement("dd"));
    return box;
  });
  shown.forEach(([label, value], i) => {
    setText(list.children[i].children[0], label);
    setText(list.children[i].children[1], value === null ? "-" : textOf(value));
  });
}

function showTabs(found) {
  // What people come for first: the joined view, its sources, then how things went.
  const place = (table) => (table.name === "final_ui" ? -2 : BOOKKEEPING.indexOf(table.name));
  const tables = found.toSorted((a, b) => place(a) - place(b));
  const names = tables.map((table) => table.name);
  if (!view.table && names.length) view.table = names.includes("final_ui") ? "final_ui" : names[0];
  const tabs = byId("tabs");
  fit(tabs, tables.length, () => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "panel");
    tab.append(document.createElement("span"), document.createElement("small"));
    tab.addEventListener("click", () => choose(tab.dataset.name));
    tab.addEventListener("keydown", moveAmongTabs);
    return tab;
  });
  tables.forEach((table, i) => {
    const tab = tabs.children[i];
    tab.dataset.name = table.name;
    setText(tab.children[0], table.name);
    setText(tab.children[1], table.rows.toLocaleString());
  });
  markChosen();
}

function markChosen() {
  for (const tab of byId("tabs").children) {
    const chosen = tab.dataset.name === view.table;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
}

function moveAmongTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...byId("tabs").children];
  const next = tabs[(tabs.indexOf(event.currentTarget) + step + tabs.length) % tabs.length];
  next.focus();
  choose(next.dataset.name);
}

function choose(table) {
  if (table === view.table) return;
  Object.assign(view, { table, where: "", sort: "", offset: 0 });
  byId("where").value = "";
  showProblem(null);
  markChosen();
  changed();
}

function showRows(found) {
  showHead(found.columns);
  const key = JSON.stringify([view.table, view.where, view.sort, view.offset]);
  // Cells flash when the data changes, not when somebody looks elsewhere.
  const flash = key === windowShown;
  windowShown = key;
  const body = byId("body");
  const before = body.children.length;
  fit(body, found.rows.length, () => document.createElement("tr"));
  found.rows.forEach((row, i) => showRow(body.children[i], row, found.columns, flash && i < before));
  byId("empty").hidden = found.rows.length > 0;
  setText(byId("empty"), view.where ? "No row matches" : "No rows yet");
  showPaging(found);
}

function showRow(line, row, columns, flash) {
  fit(line, columns.length, () => document.createElement("td"));
  columns.forEach((column, i) => {
    const cell = line.children[i];
    const value = row[column.name];
    const text = value === null ? "null" : textOf(value, column.type);
    const isNull = value === null;
    if (cell.textContent === text && cell.classList.contains("null") === isNull) return;
    setText(cell, text);
    cell.title = text.length > 40 ? text : "";
    cell.classList.toggle("null", isNull);
    cell.classList.toggle("number", NUMERIC.test(column.type));
    if (flash) flashCell(cell);
  });
}

function flashCell(cell) {
  cell.classList.remove("changed");
  void cell.offsetWidth; // restarts the animation
  cell.classList.add("changed");
}

function showHead(columns) {
  const key = JSON.stringify([view.table, columns]);
  const head = byId("head");
  if (key !== columnsShown) {
    columnsShown = key;
    windowShown = "";
    head.replaceChildren(...columns.map(headCell));
    byId("body").replaceChildren();
  }
  columns.forEach((column, i) => {
    const name = sortName(column.name);
    const order = view.sort === name ? "ascending" : view.sort === `-${name}` ? "descending" : "none";
    head.children[i].setAttribute("aria-sort", order);
    setText(head.children[i].querySelector(".order"), { ascending: "▲", descending: "▼", none: "" }[order]);
  });
}

function headCell(column) {
  const cell = document.createElement("th");
  cell.scope = "col";
  cell.classList.toggle("number", NUMERIC.test(column.type));
  const button = document.createElement("button");
  button.type = "button";
  const [name, type, order] = ["span", "small", "span"].map((tag) => document.createElement(tag));
  name.textContent = column.name;
  type.textContent = column.type;
  order.className = "order";
  order.setAttribute("aria-hidden", "true");
  button.append(name, type, order);
  button.addEventListener("click", () => sortBy(column.name));
  cell.append(button);
  return cell;
}

// Up, down, then the table's own order again.
function sortBy(column) {
  const name = sortName(column);
  view.sort = view.sort === name ? `-${name}` : view.sort === `-${name}` ? "" : name;
  view.offset = 0;
  changed();
}

function sortName(column) {
  return /^\w+$/.test(column) ? column : `"${column.replace(/["\\]/g, "\\$&")}"`;
}

function showPaging({ total, rows }) {
  const end = view.offset + rows.length;
  setText(byId("count"), `${total.toLocaleString()} ${total === 1 ? "row" : "rows"}`);
  setText(byId("range"), rows.length ? `${(view.offset + 1).toLocaleString()}–${end.toLocaleString()}` : "0");
  byId("first").disabled = byId("previous").disabled = view.offset === 0;
  byId("next").disabled = byId("last").disabled = end >= total;
  byId("last").dataset.offset = lastOffset(total);
  byId("download").href = rowsAddress({ format: "csv" });
}

function showProblem(shape) {
  const problem = byId("problem");
  setText(problem, shape ? [shape.message, shape.hint].filter(Boolean).join("; ") : "");
  problem.hidden = !shape;
  byId("where").setAttribute("aria-invalid", String(Boolean(shape)));
}

function turnTo(offset) {
  view.offset = Math.max(0, offset);
  document.querySelector(".scroll").scrollTop = 0;
  changed();
}

function changed() {
  const state = new URLSearchParams(Object.entries(view).filter(([, value]) => value));
  history.replaceState(null, "", `#${state}`);
  poll();
}

function readHash() {
  const state = new URLSearchParams(location.hash.slice(1));
  view.table = state.get("table") ?? "";
  view.where = state.get("where") ?? "";
  view.sort = state.get("sort") ?? "";
  view.offset = Number.parseInt(state.get("offset") ?? "0", 10) || 0;
}

// Makes `parent` hold exactly `count` children, keeping those it has.
function fit(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make());
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function textOf(value, type) {
  if (type === "timestamp") return value.replace("T", " ").replace(/(\.\d{3})\d*Z$/, "$1 Z");
  if (typeof value === "object" && value !== null) return JSON.stringify(value);
  return String(value);
}

let typing = 0;
byId("where").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(applyWhere, 350);
});
byId("tools").addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  applyWhere();
});

function applyWhere() {
  const where = byId("where").value.trim();
  if (where === view.where) return;
  Object.assign(view, { where, offset: 0 });
  changed();
}

byId("first").addEventListener("click", () => turnTo(0));
byId("previous").addEventListener("click", () => turnTo(view.offset - PAGE_ROWS));
byId("next").addEventListener("click", () => turnTo(view.offset + PAGE_ROWS));
byId("last").addEventListener("click", () => turnTo(Number(byId("last").dataset.offset)));
window.addEventListener("hashchange", () => {
  readHash();
  byId("where").value = view.where;
  poll();
});
