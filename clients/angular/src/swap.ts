// Requests of swaps, and their outcomes. Tables and status follow a swap automatically.

import { computed, DestroyRef, inject, Injectable, type Signal, signal } from "@angular/core";
import {
  type Candidate,
  type ControlMessage,
  type ControlOptions,
  type Outcome,
  type Progress,
  type Swap,
  type TurnoutError,
} from "@turnout/client";
import { asTurnoutError, type SwapState } from "@turnout/client/frameworks";
import { Turnout } from "./turnout";

@Injectable()
export class TurnoutSwap {
  private readonly turnout = inject(Turnout);
  private readonly stateNow = signal<SwapState>({ state: "idle" });
  private readonly topicsNow = signal<readonly string[]>([]);
  private readonly ended = new AbortController();
  private asked = 0;

  readonly state = this.stateNow.asReadonly();
  /** The progress of the current build, whoever requested it; null if there is none. */
  readonly progress: Signal<Progress | null> = computed(() => this.turnout.status()?.progress ?? null);
  /** The candidate that waits for review; null if there is none. */
  readonly candidate: Signal<Candidate | null> = computed(() => this.turnout.status()?.candidate ?? null);
  /** Whether this client may request swaps. */
  readonly allowed: Signal<boolean> = computed(() => {
    const connection = this.turnout.connection();
    return connection.state === "live" && connection.role === "operator";
  });
  /** The names of the topics, as of the last `loadTopics`. */
  readonly topics = this.topicsNow.asReadonly();

  constructor() {
    inject(DestroyRef).onDestroy(() => this.ended.abort());
  }

  /** Change topics or joins, and return the outcome. Throw TurnoutError after a refusal or a failure. */
  swap(message: ControlMessage, options: ControlOptions = {}): Promise<Outcome> {
    return this.ask((wait) => this.turnout.client.control(message, wait), options);
  }

  /** Go back to the previous plan. */
  rollback(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration" | "dryRun"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.ask((wait) => this.turnout.client.rollback(message, wait), options);
  }

  /** Publish the candidate; `expectedGeneration` is its generation. */
  publish(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration" | "force"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.ask((wait) => this.turnout.client.publish(message, wait), options);
  }

  /** Remove the candidate; `expectedGeneration` is its generation. */
  discard(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.ask((wait) => this.turnout.client.discard(message, wait), options);
  }

  async loadTopics(): Promise<readonly string[]> {
    const topics = await this.turnout.client.topics().catch(asTurnoutError);
    this.topicsNow.set(topics);
    return topics;
  }

  /** Return the history of swaps, oldest first. */
  history(): Promise<Swap[]> {
    return this.turnout.client.swaps().catch(asTurnoutError);
  }

  private async ask(call: (options: ControlOptions) => Promise<Outcome>, options: ControlOptions): Promise<Outcome> {
    const number = ++this.asked;
    const become = (state: SwapState): void => {
      if (number === this.asked) this.stateNow.set(state);
    };
    become({ state: "running" });
    const signals = [this.ended.signal, ...(options.signal ? [options.signal] : [])];
    try {
      const outcome = await call({ ...options, signal: AbortSignal.any(signals) }).catch(asTurnoutError);
      become({ state: "done", outcome });
      return outcome;
    } catch (error) {
      become({ state: "failed", error: error as TurnoutError });
      throw error;
    }
  }
}
