// The swap form: what is asked for, the progress of the build, and the outcome. A field for each source comes from the
// status row, so the page knows no source by name.

import { ApiError, getJson, postJson } from "./api.js";
import { byId, count, element, fit, setText } from "./dom.js";
import { reportOf } from "./report.js";

const JOINS = ["left", "natural", "inner", "right", "full", "semi", "anti"];
const TOPICS_AGE_MS = 10000;
const TITLES = {
  applied: "Applied",
  unchanged: "No change",
  superseded: "Superseded by a later request",
  rolled_back: "Rolled back",
};

let status = {};
let busy = false;
let settled = () => {};
let topicsAt = -Infinity;

export const isBusy = () => busy;

// `done` is called after each outcome, so that the tables are read again at once.
export function startSwap(done) {
  settled = done;
  const form = byId("swap");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send("swap", "/api/control", message());
  });
  byId("dry-run").addEventListener("click", () => {
    if (form.reportValidity()) send("dry run", "/api/control", { ...message(), dryRun: true });
  });
  // Only from what is seen: when somebody else has swapped since, it is refused.
  byId("rollback").addEventListener("click", () =>
    send("rollback", "/api/rollback", { expectedGeneration: status.generation }),
  );
  byId("reset").addEventListener("click", reset);
  form.addEventListener("input", showEdited);
  form.addEventListener("focusin", loadTopics);
}

export function showControl(found) {
  status = found;
  const sources = Object.keys(status).filter((name) => name.endsWith("Topic"));
  const fields = byId("topics");
  if ([...fields.children].map((field) => field.dataset.name).join() !== sources.join()) {
    fields.replaceChildren(...sources.map(topicField));
  }
  for (const field of fields.children) follow(field.querySelector("input"), status[field.dataset.name] ?? "");
  showJoins(status.joinType ?? "");
  showEdited();
  showProgress(status.progress);
  const lingering = status.lingering?.length ? `; generation ${status.lingering.at(-1)} is still there` : "";
  byId("rollback").title = `Back to the plan before${lingering}`;
}

function topicField(name) {
  const input = element("input");
  Object.assign(input, { name, type: "text", spellcheck: false, autocapitalize: "off" });
  input.setAttribute("list", "topic-names");
  input.dataset.now = "";
  const field = element("label", "field", element("span", "", `${name.replace(/Topic$/, "")} topic`), input);
  field.dataset.name = name;
  return field;
}

// A field that nobody has edited shows what is published.
function follow(control, now) {
  if (control.tagName === "INPUT") control.placeholder = now;
  if (control.value === control.dataset.now) control.value = now;
  control.dataset.now = now;
}

function showJoins(now) {
  const select = byId("join");
  // Views can differ in their joins; that is shown as it is, and kept unless another is chosen.
  const wanted = JOINS.includes(now) ? JOINS : [now, ...JOINS];
  if ([...select.options].map((option) => option.value).join("|") !== wanted.join("|")) {
    const chosen = select.value;
    select.replaceChildren(...wanted.map((join) => new Option(join, join)));
    select.value = wanted.includes(chosen) ? chosen : now;
  }
  follow(select, now);
}

function controls() {
  return [...byId("topics").querySelectorAll("input"), byId("join")];
}

function showEdited() {
  for (const control of controls()) {
    const edited = isEdited(control);
    control.closest(".field").classList.toggle("edited", edited);
    control.title = edited ? `now: ${control.dataset.now}` : "";
  }
  byId("moment-field").hidden = byId("start").value !== "time";
  byId("moment").required = byId("start").value === "time";
  byId("reset").hidden = !controls().some(isEdited) && !byId("start").value;
}

function isEdited(control) {
  const text = control.value.trim();
  return text !== "" && text !== control.dataset.now;
}

// Only what was edited: the rest stays as it is when the message is applied.
function message() {
  const asked = {};
  for (const control of controls()) if (isEdited(control)) asked[control.name] = control.value.trim();
  const start = byId("start").value;
  if (start === "time") asked.start = { timestamp: new Date(byId("moment").value).toISOString() };
  else if (start) asked.start = start;
  return asked;
}

function reset() {
  if (busy) return;
  for (const control of controls()) control.value = control.dataset.now;
  byId("start").value = "";
  showEdited();
  showOutcome(null);
}

async function send(deed, address, asked) {
  if (busy) return;
  setBusy(true);
  showOutcome("waiting", `Waiting for the outcome of the ${deed}`);
  try {
    showAnswer(await postJson(address, asked), asked);
  } catch (error) {
    showFailure(deed, error);
  }
  setBusy(false);
  settled();
}

function setBusy(value) {
  busy = value;
  // Not `disabled`: the button that was pressed keeps the focus.
  for (const button of byId("swap").querySelectorAll("button")) button.setAttribute("aria-disabled", String(value));
}

function showAnswer(answer, asked) {
  if (answer.report) {
    const title = answer.report.changes ? "Dry run: this would work" : "Dry run: nothing would change";
    showOutcome("unchanged", title, reportOf(answer.report, status));
  } else if (answer.outcome === null) {
    showOutcome("waiting", "Taken", element("p", "", "Its outcome will be in the table control_raw."));
  } else {
    showOutcome(answer.outcome, TITLES[answer.outcome] ?? answer.outcome, element("p", "", answer.detail));
  }
  if (!asked.dryRun) byId("start").value = "";
}

function showFailure(deed, error) {
  const refused = error instanceof ApiError && error.status < 500;
  const title = refused ? `The ${deed} was refused` : `The ${deed} failed`;
  const parts = [element("p", "", error.message)];
  if (error.hint) parts.push(element("p", "hint", error.hint));
  showOutcome("bad", title, ...parts);
}

function showOutcome(kind, title = "", ...content) {
  const box = byId("outcome");
  box.className = kind ? `outcome ${kind}` : "";
  box.replaceChildren(...(kind ? [element("strong", "", title), ...content] : []));
}

function showProgress(progress) {
  byId("building").hidden = !progress;
  if (!progress) return;
  const bar = byId("progress");
  // Without a value the bar says only that something goes on.
  if (typeof progress.percent === "number") bar.value = progress.percent;
  else bar.removeAttribute("value");
  const state = progress.state.replaceAll("_", " ");
  const left = progress.lag > 0 ? `, ${count(progress.lag, "record")} to go` : "";
  setText(byId("progress-text"), `Generation ${progress.generation}: ${state}${left}`);
  setText(byId("progress-plan"), progress.plan);
}

// Names to complete from; without them any name can be typed.
async function loadTopics() {
  if (performance.now() - topicsAt < TOPICS_AGE_MS) return;
  topicsAt = performance.now();
  try {
    const { topics } = await getJson("/api/topics");
    const list = byId("topic-names");
    fit(list, topics.length, () => element("option"));
    topics.forEach((topic, i) => (list.children[i].value = topic));
  } catch (error) {
    console.warn("no topics to complete from:", error.message);
  }
}
