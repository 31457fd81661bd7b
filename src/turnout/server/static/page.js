// The page: asks for tables, status and rows once a second, and hands them to the parts. Text goes in by textContent.

import { getJson } from "./api.js";
import { byId, element, fit, setText, textOf } from "./dom.js";
import { choose, readRows, showRows, startGrid, view } from "./grid.js";
import { isBusy, showControl, startSwap } from "./swap.js";
import { showTimeline } from "./timeline.js";

const POLL_MS = 1000;
const BUSY_POLL_MS = 250;
const BOOKKEEPING = ["bad_records", "join_quality", "orchestrator_status", "orchestrator_logs", "control_raw", "swaps"];
// What the header shows of the status: every `...Topic`, then these.
const STATUS_LABELS = { joinType: "join", generation: "generation", state: "state", lag: "lag" };

// The latest request wins: an answer for an older view is dropped.
let asked = 0;
let timer = 0;
let lastSeen = null;
let versionShown = null;

startGrid(poll);
startSwap(poll);
byId("side-toggle").addEventListener("click", toggleSide);
poll();

async function poll() {
  clearTimeout(timer);
  const mine = ++asked;
  let building = false;
  try {
    const [{ tables }, status] = await Promise.all([getJson("/api/tables"), getJson("/api/status")]);
    if (mine !== asked) return;
    building = Boolean(status.progress);
    showTabs(tables);
    showControl(status);
    const [rows] = await Promise.all([view.table ? readRows() : null, showTimeline(tables)]);
    if (mine !== asked) return;
    showConnection(true);
    showStatus(status, rows);
    if (rows) showRows(rows);
  } catch (error) {
    if (mine !== asked) return;
    showConnection(false, error);
  }
  if (mine === asked) timer = setTimeout(poll, building || isBusy() ? BUSY_POLL_MS : POLL_MS);
}

function showConnection(live, error) {
  const badge = byId("connection");
  if (live) lastSeen = new Date();
  badge.className = live ? "badge live" : "badge gone";
  const since = lastSeen ? `data of ${lastSeen.toLocaleTimeString()}` : "no data yet";
  setText(badge, live ? "live" : `server gone, ${since}; trying again`);
  badge.title = live || !error ? "" : error.message;
  document.body.classList.toggle("stale", !live);
}

function showStatus(status, rows) {
  const fields = Object.entries(status).filter(([name]) => name.endsWith("Topic"));
  const shown = fields.map(([name, value]) => [name.replace(/Topic$/, ""), value]);
  for (const [name, label] of Object.entries(STATUS_LABELS)) {
    if (name in status) shown.push([label, name === "state" ? status.state?.replaceAll("_", " ") : status[name]]);
  }
  if (rows) versionShown = rows.version;
  shown.push(["version", versionShown]);
  const list = byId("status");
  fit(list, shown.length, () => element("div", "", element("dt"), element("dd")));
  shown.forEach(([label, value], i) => {
    setText(list.children[i].children[0], label);
    setText(list.children[i].children[1], value == null ? "-" : textOf(value));
  });
  const trouble = status.ready === false ? status.reason : "";
  setText(byId("trouble"), trouble);
  byId("trouble").hidden = !trouble;
}

function showTabs(found) {
  // What people come for first: the joined view, its sources, then how things went.
  const place = (table) => (table.name === "final_ui" ? -2 : BOOKKEEPING.indexOf(table.name));
  const tables = found.toSorted((a, b) => place(a) - place(b));
  const names = tables.map((table) => table.name);
  if (!view.table && names.length) view.table = names.includes("final_ui") ? "final_ui" : names[0];
  const tabs = byId("tabs");
  fit(tabs, tables.length, makeTab);
  tables.forEach((table, i) => {
    const tab = tabs.children[i];
    tab.dataset.name = table.name;
    setText(tab.children[0], table.name);
    setText(tab.children[1], table.rows.toLocaleString());
  });
  markChosen();
}

function makeTab() {
  const tab = element("button", "", element("span"), element("small"));
  tab.type = "button";
  tab.setAttribute("role", "tab");
  tab.setAttribute("aria-controls", "panel");
  tab.addEventListener("click", () => chooseTab(tab));
  tab.addEventListener("keydown", moveAmongTabs);
  return tab;
}

function chooseTab(tab) {
  choose(tab.dataset.name);
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
  chooseTab(next);
}

function toggleSide() {
  const open = document.body.classList.toggle("side-open");
  byId("side-toggle").setAttribute("aria-expanded", String(open));
  setText(byId("side-toggle"), open ? "Tables" : "Swap and history");
}
