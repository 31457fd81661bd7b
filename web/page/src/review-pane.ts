// The review of a candidate: a live view of what publishing it would change, and the buttons Publish and Discard.
// review.ts computes numbers and texts, review-rows.ts shows the rows side by side.

import { TurnoutError, type Candidate, type Difference, type DifferenceSubscription, type Status, type TableInfo, type TurnoutClient } from "@turnout/client";
import { button, byId, element, fit, say, setText } from "./dom";
import { count, number } from "./format";
import { codeLinks, problemText } from "./problem";
import { compareQuality, type Quality } from "./quality";
import { askedFor, badText, emptyReview, endOf, figuresOf, madeBy, mostChanged, signed, timeLeft, type BadGroup, type Review } from "./review";
import { ReviewRows } from "./review-rows";
import { exampleOf, grouped } from "./tables";
import { brokenGuards, publishedOf, type Entry } from "./timeline";
import { sortText } from "./where";

const TICK_MS = 1000;
const NONE_MS = 1500;
const FIRST_ROWS = 100;
const MOST_ROWS = 1000;
const TYPING_MS = 350;
const COLUMNS_NAMED = 3;
const MOST_REASONS = 50;

const FIGURES = ["now", "candidate", "added", "removed", "changed", "changed columns"];

export interface ReviewEvents {
  onReview(): void;
  onTable(table: string): void;
  onForm(): void;
}

export class ReviewPane {
  review: Review = emptyReview();
  private readonly client: TurnoutClient;
  private readonly events: ReviewEvents;
  private readonly rows: ReviewRows;
  private readonly where = byId<HTMLInputElement>("review-where");
  private readonly found = new Map<string, Difference | TurnoutError>();
  private subs: { close(): void }[] = [];
  // The subscription to the rows of the chosen table; `subs` has those to the numbers of all tables.
  private chosen: DifferenceSubscription | null = null;
  private tables: string[] = [];
  private listed = "";
  private entries: readonly Entry[] = [];
  private status: Status | null = null;
  // The reviewed candidate. It is kept when it is published or removed, so that the page can report its end.
  private candidate: Candidate | null = null;
  // The generation that was published when the review was opened; the candidate is compared with it.
  private beside = 0;
  private isOpen = false;
  private openedAt = 0;
  private isViewer = true;
  private away = false;
  private busy = false;
  private limit = FIRST_ROWS;
  private typing = 0;

  constructor(client: TurnoutClient, events: ReviewEvents) {
    this.client = client;
    this.events = events;
    this.rows = new ReviewRows({
      onSort: (sort) => this.change({ sort }),
      onChange: (change) => this.change({ change }),
    });
    this.where.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = window.setTimeout(() => this.applyWhere(), TYPING_MS);
    });
    this.where.addEventListener("keydown", (event) => event.key === "Enter" && this.applyWhere());
    byId("review-more").addEventListener("click", () => {
      this.limit = MOST_ROWS;
      this.askRows();
    });
    byId("review-publish").addEventListener("click", () => void this.decide("publish"));
    byId("review-discard").addEventListener("click", () => void this.decide("discard"));
    setInterval(() => this.isOpen && (this.candidate ? this.showTime() : this.showStanding()), TICK_MS);
  }

  open(review: Review): void {
    const wasOpen = this.isOpen;
    this.isOpen = true;
    this.review = review;
    this.where.value = review.where;
    if (!wasOpen) {
      this.openedAt = performance.now();
      this.candidate = null;
      showSaid(null);
      this.follow();
      byId("review-title").focus();
    } else this.askRows();
  }

  leave(): void {
    this.isOpen = false;
    this.candidate = null;
    this.end();
  }

  setTables(tables: readonly TableInfo[]): void {
    const names = grouped(tables).data.map(({ name }) => name);
    if (names.join("\n") === this.listed) return;
    this.listed = names.join("\n");
    this.tables = names;
    if (this.isOpen && this.isCurrent) this.ask();
  }

  setHistory(entries: readonly Entry[]): void {
    this.entries = entries;
    if (this.isOpen) this.showStanding();
  }

  setStatus(status: Status): void {
    this.status = status;
    if (this.isOpen) this.follow();
  }

  setRole(role: "viewer" | "operator"): void {
    this.isViewer = role === "viewer";
    this.showButtons();
  }

  setAway(away: boolean): void {
    this.away = away;
    this.showButtons();
  }

  focusRows(): void {
    byId("review-scroll").focus();
  }

  private get generations(): { from: number; to: number } {
    return { from: this.beside, to: this.candidate?.generation ?? 0 };
  }

  private get isCurrent(): boolean {
    return this.candidate !== null && this.status?.candidate?.generation === this.candidate.generation;
  }

  // Follow the status: the candidate may have been replaced or removed.
  private follow(): void {
    const { status } = this;
    if (!status) return;
    const now = status.candidate ?? null;
    const before = this.candidate;
    if (now && now.generation !== before?.generation) {
      if (before) {
        const text = `Generation ${before.generation} was replaced. This is generation ${now.generation}.`;
        showSaid("waiting", text);
        say(text);
      }
      if (!before) showSaid(null);
      this.candidate = now;
      this.beside = status.generation;
      this.ask();
    }
    this.showStanding();
  }

  // Show the comparison, or the reason why there is none.
  private showStanding(): void {
    const { candidate, status } = this;
    byId("review-body").hidden = !candidate;
    byId("review-view").classList.toggle("old", candidate !== null && !this.isCurrent);
    setText(byId("review-title"), candidate ? `Review of generation ${candidate.generation}` : "Review");
    this.showButtons();
    this.showTime();
    if (!status) return;
    // A candidate that was just built appears in the next status.
    if (!candidate) return performance.now() < this.openedAt + NONE_MS ? undefined : this.showNone();
    if (this.isCurrent) return this.showAsked(candidate);
    this.end();
    const { kind, text } = endOf(candidate, status, this.entries);
    showSaid(kind === "published" ? "applied" : "unchanged", text, this.wayOn());
  }

  private showNone(): void {
    const form = button("button", "Open the swap form", () => this.events.onForm());
    showSaid("unchanged", "There is no candidate now.", element("p", "", "Review in the swap form builds one."), form);
  }

  private wayOn(): HTMLElement {
    const table = this.review.table || this.tables[0] || "";
    return button("button", `Look at ${table}`, () => this.events.onTable(table));
  }

  private showAsked(candidate: Candidate): void {
    showLines("review-asked", askedFor(candidate, this.entries, publishedOf(this.entries)));
    const broken = brokenGuards(madeBy(candidate, this.entries));
    showLines("review-guards", broken);
    byId("review-guards").hidden = broken.length === 0;
  }

  private showTime(): void {
    const { candidate, status } = this;
    if (!this.isOpen || !candidate || !status) return;
    const beside = `beside generation ${this.beside}`;
    setText(byId("review-note"), this.isCurrent ? `${beside}, ${timeLeft(candidate, Date.now())}` : "");
  }

  // aria-disabled instead of `disabled`, so that the pressed button keeps the focus.
  private showButtons(): void {
    const off = String(this.busy || this.away);
    for (const id of ["review-publish", "review-discard"]) {
      byId(id).setAttribute("aria-disabled", off);
      byId(id).hidden = this.isViewer || !this.isCurrent;
    }
    byId("review-viewer").hidden = !this.isViewer || !this.isCurrent;
  }

  // Decide on the visible candidate; the server refuses it if the candidate was replaced meanwhile.
  private async decide(action: "publish" | "discard", force = false): Promise<void> {
    const { candidate } = this;
    if (!candidate || this.busy || this.away || this.isViewer) return;
    this.busy = true;
    this.showButtons();
    showSaid("waiting", action === "publish" ? "Publishing" : "Discarding");
    try {
      await this.client[action]({ expectedGeneration: candidate.generation, ...(force ? { force } : {}) });
      showSaid(null);
    } catch (error) {
      const known = error instanceof TurnoutError ? error : null;
      const isGuard = known?.code === "guard_broken";
      const anyway = isGuard ? [button("button", "Publish anyway", () => void this.decide("publish", true))] : [];
      const said = element("p", "", problemText(error));
      showSaid("bad", `It was not ${action === "publish" ? "published" : "discarded"}`, said, ...codeLinks(known), ...anyway);
    }
    this.busy = false;
    this.follow();
  }

  // -- the differences

  private ask(): void {
    this.end();
    if (!this.tables.length) return; // setTables() calls again
    this.found.clear();
    this.rows.clear();
    this.limit = FIRST_ROWS;
    if (!this.tables.includes(this.review.table)) this.review = { ...this.review, table: this.tables[0] ?? "" };
    this.subs = this.tables.map((table) =>
      this.client.liveDifference(
        { ...this.generations, table, limit: 0 },
        { onRows: (rows, info) => this.showFound(table, { ...info, rows: [...rows] }), onError: (error) => this.showFound(table, error) },
      ),
    );
    this.askQuality();
    this.askBad();
    this.showFigures();
    this.askRows();
    this.events.onReview();
  }

  private end(): void {
    for (const sub of [...this.subs, this.chosen]) sub?.close();
    this.subs = [];
    this.chosen = null;
  }

  private showFound(table: string, found: Difference | TurnoutError): void {
    // The generation was just removed: keep the last numbers until the next status.
    if (found instanceof TurnoutError && this.found.has(table)) return;
    // A table that belongs to no generation cannot differ.
    if (found instanceof TurnoutError && found.code === "unknown_table") this.tables = this.tables.filter((name) => name !== table);
    this.found.set(table, found);
    this.showFigures();
    this.showSinks();
  }

  private showFigures(): void {
    const lines = fit(byId<HTMLTableElement>("review-tables").tBodies[0]!, this.tables.length, () => this.figureLine());
    this.tables.forEach((table, i) => this.showLine(lines[i] as HTMLTableRowElement, table));
  }

  private figureLine(): HTMLElement {
    const choose = button("", "", () => this.change({ table: choose.dataset["table"] ?? "" }));
    const head = element("th", "", choose);
    head.scope = "row";
    const cells = FIGURES.map(() => element("td"));
    cells.forEach((cell, i) => (cell.dataset["label"] = FIGURES[i]));
    return element("tr", "", head, ...cells);
  }

  private showLine(line: HTMLTableRowElement, table: string): void {
    const [head, ...cells] = [...line.cells];
    const choose = head!.firstElementChild as HTMLElement;
    choose.dataset["table"] = table;
    setText(choose, table);
    choose.setAttribute("aria-pressed", String(table === this.review.table));
    const found = this.found.get(table);
    line.classList.toggle("chosen", table === this.review.table);
    line.classList.toggle("same", found !== undefined && !(found instanceof TurnoutError) && found.total === 0);
    if (!found || found instanceof TurnoutError) {
      const texts = ["", "", "", "", "", found ? problemText(found) : "comparing"];
      return cells.forEach((cell, i) => setText(cell, texts[i] ?? ""));
    }
    const { before, after, added, removed, changed } = figuresOf(found);
    const texts = [number(before), number(after), signed(added), signed(-removed), number(changed), columnsText(found)];
    cells.forEach((cell, i) => setText(cell, texts[i] ?? ""));
  }

  private showSinks(): void {
    const found = [...this.found.values()].flatMap((one) => (one instanceof TurnoutError ? [] : one.sinks));
    byId("review-sinks-card").hidden = found.length === 0;
    showLines("review-sinks", found.map(({ sink, records }) => `${sink}: ${count(records, "record")}`));
  }

  private askQuality(): void {
    const sides: [Quality[], Quality[]] = [[], []];
    const names = ["join_quality", `join_quality@${this.candidate?.generation}`];
    names.forEach((table, i) => {
      const onRows = (rows: readonly Quality[]): void => {
        sides[i] = [...rows];
        compareQuality(byId("review-quality"), ...sides);
      };
      this.subs.push(this.client.window<Quality>({ table, limit: 100 }, { onRows, onError: () => undefined }));
    });
  }

  private askBad(): void {
    const asked = { table: `bad_records@${this.candidate?.generation}`, by: ["topic", "reason"], sort: "-count", limit: MOST_REASONS };
    showLines("review-bad", []);
    const onRows = (groups: readonly BadGroup[]): void => showLines("review-bad", badText(groups));
    this.subs.push(this.client.liveSummary<BadGroup>(asked, { onRows, onError: () => undefined }));
  }

  // -- the rows of one table

  private change(part: Partial<Review>): void {
    if (part.table !== undefined && part.table !== this.review.table) {
      part = { where: "", change: null, sort: [], ...part };
      this.limit = FIRST_ROWS;
      this.rows.clear();
      this.where.value = "";
    }
    this.review = { ...this.review, ...part };
    this.showFigures();
    this.askRows();
    this.events.onReview();
  }

  private applyWhere(): void {
    clearTimeout(this.typing);
    const where = this.where.value.trim();
    if (where !== this.review.where) this.change({ where });
  }

  private askRows(): void {
    const { table, where, sort, change } = this.review;
    setText(byId("review-rows-title"), `Rows of ${table}`);
    if (!table || !this.isCurrent) return;
    const rows = { where: where ? [where] : [], sort: sortText(sort), limit: this.limit };
    const asked = { ...this.generations, table, ...rows, ...(change && { change }) };
    if (this.chosen) return this.chosen.move(asked);
    this.chosen = this.client.liveDifference(asked, {
      onRows: (rows, info) => this.showRows({ ...info, rows: [...rows] }),
      onError: (error) => error.code !== "unknown_generation" && this.showProblem(error),
    });
  }

  private showRows(found: Difference): void {
    if (found.table !== this.review.table) return;
    this.showProblem(null);
    this.where.placeholder = exampleOf(found.table, found.columns);
    this.rows.show(found, this.review);
    byId("review-more").hidden = found.rows.length >= found.total || found.rows.length >= MOST_ROWS;
  }

  private showProblem(error: TurnoutError | null): void {
    setText(byId("review-problem"), error ? problemText(error) : "");
    byId("review-problem").hidden = !error;
    this.where.setAttribute("aria-invalid", String(error?.code === "bad_where"));
  }
}

// List the columns that change most, then new and removed columns.
function columnsText(found: Difference): string {
  if (found.missing) return found.missing === "from" ? "a new table" : "the table is removed";
  const changed = mostChanged(found);
  const named = changed.slice(0, COLUMNS_NAMED).map(({ name, changed: rows }) => `${name} ${number(rows)}`);
  const rest = changed.length > COLUMNS_NAMED ? [`${changed.length - COLUMNS_NAMED} more`] : [];
  const { from, to } = found.columnsOnlyIn;
  const gone = from.map((name) => `${name} is removed`);
  const come = to.map((name) => `${name} is new`);
  return [...named, ...rest, ...gone, ...come].join(", ") || "none";
}

function showLines(id: string, lines: readonly string[]): void {
  const items = fit(byId(id), lines.length, () => element("li"));
  lines.forEach((text, i) => setText(items[i]!, text));
}

function showSaid(kind: string | null, title = "", ...content: Node[]): void {
  const box = byId("review-said");
  const key = JSON.stringify([kind, title, ...content.map((node) => node.textContent)]);
  if (box.dataset["said"] === key) return;
  box.dataset["said"] = key;
  box.className = kind ? "outcome" : "";
  box.dataset["kind"] = kind ?? "";
  box.replaceChildren(...(kind ? [element("strong", "", title), ...content] : []));
}
