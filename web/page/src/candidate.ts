// The line that announces a candidate to all viewers, with a link to its review.

import type { Candidate, Status } from "@turnout/client";
import { byId, setText } from "./dom";
import { askedFor, timeLeft } from "./review";
import { publishedOf, type Entry } from "./timeline";

const TICK_MS = 1000;

export class CandidateSign {
  private candidate: Candidate | null = null;
  private entries: readonly Entry[] = [];

  constructor() {
    setInterval(() => this.draw(), TICK_MS);
  }

  show(status: Status): void {
    this.candidate = status.candidate ?? null;
    this.draw();
  }

  setHistory(entries: readonly Entry[]): void {
    this.entries = entries;
    this.draw();
  }

  private draw(): void {
    const { candidate, entries } = this;
    byId("candidate").hidden = !candidate;
    if (!candidate) return;
    const asked = askedFor(candidate, entries, publishedOf(entries)).join(", ");
    setText(byId("candidate-text"), `Generation ${candidate.generation} waits for review (${asked}), ${timeLeft(candidate, Date.now())}.`);
  }
}
