// One window of the chosen table: where, sort, pages and cells. Which table is chosen is kept here and in the address.

import { ApiError, getJson } from "./api.js";
import { byId, count, element, fit, setText, textOf } from "./dom.js";

const PAGE_ROWS = 100;
const NUMERIC = /^(int|float|double|decimal)/;

export const view = { table: "", where: "", sort: "", offset: 0 };
let onChange = () => {};
let columnsShown = "";
let windowShown = "";
let typing = 0;

// `changed` is called when somebody wants to see something else.
export function startGrid(changed) {
  onChange = changed;
  readHash();
  byId("where").value = view.where;
  byId("where").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(applyWhere, 350);
  });
  byId("tools").addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    applyWhere();
  });
  byId("first").addEventListener("click", () => turnTo(0));
  byId("previous").addEventListener("click", () => turnTo(view.offset - PAGE_ROWS));
  byId("next").addEventListener("click", () => turnTo(view.offset + PAGE_ROWS));
  byId("last").addEventListener("click", () => turnTo(Number(byId("last").dataset.offset)));
  window.addEventListener("hashchange", () => {
    readHash();
    byId("where").value = view.where;
    onChange();
  });
}

export function choose(table) {
  if (table === view.table) return;
  Object.assign(view, { table, where: "", sort: "", offset: 0 });
  byId("where").value = "";
  showProblem(null);
  changed();
}

// A refused where or a vanished table is said beside the box; it is no lost connection.
export async function readRows() {
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
    if (!(error instanceof ApiError) || error.status >= 500) throw error;
    showProblem(error);
    return null;
  }
}

export function showRows(found) {
  showHead(found.columns);
  const key = JSON.stringify([found.generation, view.table, view.where, view.sort, view.offset]);
  // Cells flash when the data changes, not when somebody looks elsewhere or all of it is of another generation.
  const flash = key === windowShown;
  windowShown = key;
  const body = byId("body");
  const before = body.children.length;
  fit(body, found.rows.length, () => document.createElement("tr"));
  const changed = found.rows.flatMap((row, i) => {
    const cells = showRow(body.children[i], row, found.columns);
    return flash && i < before ? cells : [];
  });
  flashCells(changed);
  byId("empty").hidden = found.rows.length > 0;
  setText(byId("empty"), view.where ? "No row matches" : "No rows yet");
  showPaging(found);
}

// Gives the cells that have changed.
function showRow(line, row, columns) {
  fit(line, columns.length, () => document.createElement("td"));
  return columns.flatMap((column, i) => {
    const cell = line.children[i];
    const value = row[column.name];
    const isNull = value === null;
    const text = isNull ? "null" : textOf(value, column.type);
    if (cell.textContent === text && cell.classList.contains("null") === isNull) return [];
    setText(cell, text);
    cell.title = text.length > 40 ? text : "";
    cell.classList.toggle("null", isNull);
    cell.classList.toggle("number", NUMERIC.test(column.type));
    return [cell];
  });
}

function flashCells(cells) {
  for (const cell of cells) cell.classList.remove("changed");
  void byId("body").offsetWidth; // restarts the animations; once for all, because it lays the page out
  for (const cell of cells) cell.classList.add("changed");
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
  const order = element("span", "order");
  order.setAttribute("aria-hidden", "true");
  const button = element("button", "", element("span", "", column.name), element("small", "", column.type), order);
  button.type = "button";
  button.addEventListener("click", () => sortBy(column.name));
  const cell = element("th", NUMERIC.test(column.type) ? "number" : "", button);
  cell.scope = "col";
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
  setText(byId("count"), count(total, "row"));
  setText(byId("range"), rows.length ? `${(view.offset + 1).toLocaleString()}–${end.toLocaleString()}` : "0");
  byId("first").disabled = byId("previous").disabled = view.offset === 0;
  byId("next").disabled = byId("last").disabled = end >= total;
  byId("last").dataset.offset = lastOffset(total);
  byId("download").href = rowsAddress({ format: "csv" });
}

function showProblem(error) {
  const problem = byId("problem");
  setText(problem, error ? [error.message, error.hint].filter(Boolean).join("; ") : "");
  problem.hidden = !error;
  byId("where").setAttribute("aria-invalid", String(Boolean(error)));
}

function applyWhere() {
  const where = byId("where").value.trim();
  if (where === view.where) return;
  Object.assign(view, { where, offset: 0 });
  changed();
}

function turnTo(offset) {
  view.offset = Math.max(0, offset);
  document.querySelector(".scroll").scrollTop = 0;
  changed();
}

function changed() {
  const state = new URLSearchParams(Object.entries(view).filter(([, value]) => value));
  history.replaceState(null, "", `#${state}`);
  onChange();
}

function readHash() {
  const state = new URLSearchParams(location.hash.slice(1));
  view.table = state.get("table") ?? "";
  view.where = state.get("where") ?? "";
  view.sort = state.get("sort") ?? "";
  view.offset = Math.max(0, Number.parseInt(state.get("offset") ?? "0", 10) || 0);
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
