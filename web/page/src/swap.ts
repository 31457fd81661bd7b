// The swap form: the requested plan, the progress of the build, and the outcome. The status lists the sources, so the
// page contains no names of sources.

import { TurnoutError, type TurnoutClient as Client, type ControlMessage, type Outcome, type Status } from "@turnout/client";
import { localMoments } from "./clock";
import { byId, element, fit, setText } from "./dom";
import { codeLinks, hintOf } from "./problem";
import { showProgress } from "./progress";
import { reportOf } from "./report";
import { topicFields } from "./status";
import type { Previous } from "./timeline";

const TOPICS_AGE_MS = 10_000;
const TITLES: Record<string, string> = {
  applied: "Applied",
  unchanged: "No change",
  superseded: "Superseded by a later request",
  rolled_back: "Rolled back",
  cancelled: "Cancelled",
  candidate: "Built for review",
};
const VIEWER = "You can read, but not change anything. Swaps need the role operator.";

type Control = HTMLInputElement | HTMLSelectElement;

export class SwapForm {
  private readonly client: Client;
  private readonly form = byId<HTMLFormElement>("swap");
  private readonly start = byId<HTMLSelectElement>("start");
  private readonly moment = byId<HTMLInputElement>("moment");
  private readonly join = byId<HTMLSelectElement>("join");
  private status: Status | null = null;
  private busy = false;
  private away = false;
  private isViewer = true;
  private previous: Previous = { plan: null, generation: null };
  private topicsAt = -Infinity;
  private readonly onCandidate: () => void;

  constructor(client: Client, onCandidate: () => void) {
    this.client = client;
    this.onCandidate = onCandidate;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const message = this.message();
      void this.send("swap", () => client.control(message));
    });
    byId("dry-run").addEventListener("click", () => {
      if (this.form.reportValidity()) void this.dryRun();
    });
    byId("review-ask").addEventListener("click", () => {
      if (this.form.reportValidity()) void this.askReview();
    });
    // Roll back only the visible generation; the server refuses it if somebody else has swapped meanwhile.
    byId("rollback").addEventListener("click", () => {
      const expectedGeneration = this.status?.generation;
      void this.send("rollback", () => client.rollback(expectedGeneration === undefined ? {} : { expectedGeneration }));
    });
    byId("cancel").addEventListener("click", () => void this.cancel());
    byId("reset").addEventListener("click", () => this.reset());
    this.form.addEventListener("input", () => this.showEdited());
    this.form.addEventListener("focusin", () => void this.loadTopics());
  }

  // Disable the form for a viewer, and show the reason.
  setRole(role: "viewer" | "operator"): void {
    const viewer = role === "viewer";
    this.isViewer = viewer;
    byId("cancel").hidden = viewer;
    byId<HTMLFieldSetElement>("swap-fields").disabled = viewer;
    setText(byId("viewer"), viewer ? VIEWER : "");
    byId("viewer").hidden = !viewer;
  }

  show(status: Status): void {
    this.status = status;
    const sources = topicFields(status);
    const fields = byId("topics");
    const names = [...fields.children].map((field) => (field as HTMLElement).dataset["name"]);
    if (names.join("\n") !== sources.join("\n")) fields.replaceChildren(...sources.map(topicField));
    for (const input of fields.querySelectorAll("input")) follow(input, String(status[input.name] ?? ""));
    this.showJoins(status);
    this.showEdited();
    this.showPrevious();
    showProgress(status.progress ?? null);
    if (!status.progress) this.setCancelling(false);
  }

  // Cancel the build. The page that requested the build shows its outcome.
  private async cancel(): Promise<void> {
    const isOff = byId("cancel").getAttribute("aria-disabled") === "true";
    if (this.isViewer || this.away || isOff) return;
    this.setCancelling(true);
    try {
      const answer = await this.client.cancel();
      if (!this.busy) this.showAnswer(answer);
    } catch (error) {
      this.setCancelling(false);
      showFailure("cancel", error);
    }
  }

  private setCancelling(value: boolean): void {
    const button = byId("cancel");
    button.setAttribute("aria-disabled", String(value || this.away));
    setText(button, value ? "Cancelling" : "Cancel");
  }

  // Set the plan that a rollback would publish; the server reports an error if it is gone.
  setPrevious(previous: Previous): void {
    this.previous = previous;
    this.showPrevious();
  }

  // Updated with each status, because a lingering generation ends some seconds after a swap.
  private showPrevious(): void {
    const { plan, generation } = this.previous;
    const runs = generation !== null && this.status?.lingering?.includes(generation);
    const where = generation === null ? "" : `generation ${generation}: `;
    const how = runs ? ` (instant: generation ${generation} is still running)` : " (built again; unchanged sources keep their rows)";
    setText(byId("rollback-to"), plan ? `Back to ${where}${localMoments(plan)}${how}` : "There is no previous plan to roll back to.");
  }

  private showJoins(status: Status): void {
    const now = String(status.joinType ?? "");
    const known = status.joins ?? [];
    // Views can have different joins; then the list also has that mixed value, which is kept unless another is chosen.
    const wanted = known.includes(now) ? known : [now, ...known];
    if ([...this.join.options].map((option) => option.value).join("|") !== wanted.join("|")) {
      const chosen = this.join.value;
      this.join.replaceChildren(...wanted.map((join) => new Option(join, join)));
      this.join.value = wanted.includes(chosen) ? chosen : now;
    }
    follow(this.join, now);
  }

  private controls(): Control[] {
    return [...byId("topics").querySelectorAll("input"), this.join];
  }

  private showEdited(): void {
    for (const control of this.controls()) {
      const edited = isEdited(control);
      control.closest(".field")?.classList.toggle("edited", edited);
      // The tooltip has the full name, which may be too long for the field.
      control.title = edited ? `now: ${control.dataset["now"] ?? ""}` : control.value;
    }
    const timed = this.start.value === "time";
    byId("moment-field").hidden = !timed;
    this.moment.required = timed;
    byId("reset").hidden = !this.controls().some(isEdited) && !this.start.value;
  }

  // Return a message with the edited fields only; all others keep their current value.
  private message(): ControlMessage {
    const asked: Record<string, unknown> = {};
    for (const control of this.controls()) if (isEdited(control)) asked[control.name] = control.value.trim();
    if (this.start.value === "time") asked["start"] = { timestamp: new Date(this.moment.value).toISOString() };
    else if (this.start.value) asked["start"] = this.start.value;
    return asked as ControlMessage;
  }

  private reset(): void {
    if (this.busy) return;
    for (const control of this.controls()) control.value = control.dataset["now"] ?? "";
    this.start.value = "";
    this.showEdited();
    showOutcome(null);
    this.controls()[0]?.focus();
  }

  private dryRun(): Promise<unknown> {
    const message = { ...this.message(), dryRun: true };
    return this.send("dry run", () => this.client.control(message));
  }

  // Build a candidate, and open its review, unless the user has opened another view meanwhile.
  private async askReview(): Promise<void> {
    const { hash } = location;
    const message = { ...this.message(), publish: false };
    const answer = await this.send("review", () => this.client.control(message));
    if (answer?.outcome === "candidate" && location.hash === hash) this.onCandidate();
  }

  private async send(deed: string, ask: () => Promise<Outcome>): Promise<Outcome | null> {
    if (this.busy || this.away) return null;
    this.setBusy(true);
    showOutcome("waiting", `Waiting for the outcome of the ${deed}`);
    let answer: Outcome | null = null;
    try {
      answer = await ask();
      this.showAnswer(answer);
      if (deed !== "dry run") this.start.value = "";
      this.showEdited();
    } catch (error) {
      showFailure(deed, error);
    }
    this.setBusy(false);
    return answer;
  }

  private setBusy(value: boolean): void {
    this.busy = value;
    this.showButtons();
  }

  // Keep the typed text, but disable the buttons.
  setAway(away: boolean): void {
    this.away = away;
    this.showButtons();
    byId("swap-away").hidden = !away;
  }

  // aria-disabled instead of `disabled`, so that the pressed button keeps the focus.
  private showButtons(): void {
    const off = String(this.busy || this.away);
    for (const button of this.form.querySelectorAll("button")) button.setAttribute("aria-disabled", off);
    byId("cancel").setAttribute("aria-disabled", String(this.away));
  }

  private showAnswer(answer: Outcome): void {
    if (answer.report && this.status) {
      const title = answer.report.changes ? "Dry run: this would work" : "Dry run: nothing would change";
      showOutcome("unchanged", title, reportOf(answer.report, this.status));
    } else if (answer.outcome === null) {
      showOutcome("waiting", "Accepted", element("p", "", "Its outcome will be in the table control_raw."));
    } else {
      showOutcome(answer.outcome, TITLES[answer.outcome] ?? answer.outcome, element("p", "", answer.detail ?? ""));
    }
  }

  // Load the topic names for completion; without them any name can still be typed.
  private async loadTopics(): Promise<void> {
    if (performance.now() - this.topicsAt < TOPICS_AGE_MS) return;
    this.topicsAt = performance.now();
    try {
      const topics = await this.client.topics();
      const options = fit(byId("topic-names"), topics.length, () => element("option")) as HTMLOptionElement[];
      options.forEach((option, i) => (option.value = topics[i] ?? ""));
    } catch (error) {
      console.warn("cannot load the topics for completion:", String(error));
    }
  }
}

function topicField(name: string): HTMLElement {
  const input = element("input");
  Object.assign(input, { name, type: "text", spellcheck: false, autocapitalize: "off" });
  input.setAttribute("list", "topic-names");
  input.dataset["now"] = "";
  const field = element("label", "field", element("span", "", `${name.replace(/Topic$/, "")} topic`), input);
  field.dataset["name"] = name;
  return field;
}

// Update a field; an unedited field shows the published value.
function follow(control: Control, now: string): void {
  if (control instanceof HTMLInputElement) control.placeholder = now;
  if (control.value === control.dataset["now"]) control.value = now;
  control.dataset["now"] = now;
}

function isEdited(control: Control): boolean {
  const text = control.value.trim();
  return text !== "" && text !== control.dataset["now"];
}

function showFailure(deed: string, error: unknown): void {
  const known = error instanceof TurnoutError ? error : null;
  const refused = known?.status != null && known.status < 500;
  const parts = [element("p", "", known?.message ?? String(error))];
  if (known?.hint) parts.push(element("p", "hint", hintOf(known)));
  showOutcome("bad", refused ? `The ${deed} was refused` : `The ${deed} failed`, ...parts, ...codeLinks(known));
}

function showOutcome(kind: string | null, title = "", ...content: Node[]): void {
  const box = byId("outcome");
  box.className = kind ? "outcome" : "";
  box.dataset["kind"] = kind ?? "";
  box.replaceChildren(...(kind ? [element("strong", "", title), ...content] : []));
}
