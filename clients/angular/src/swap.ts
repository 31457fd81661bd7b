// Asking for other topics or another join. What is shown follows by itself; here is only what became of the question.

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
  /** What is built now, whoever asked for it; null when nothing is. */
  readonly progress: Signal<Progress | null> = computed(() => this.turnout.status()?.progress ?? null);
  /** The generation that waits to be published; null without one. */
  readonly candidate: Signal<Candidate | null> = computed(() => this.turnout.status()?.candidate ?? null);
  /** Whether the server takes swaps from this client. */
  readonly allowed: Signal<boolean> = computed(() => {
    const connection = this.turnout.connection();
    return connection.state === "live" && connection.role === "operator";
  });
  /** The topics to choose from, as `loadTopics` found them last. */
  readonly topics = this.topicsNow.asReadonly();

  constructor() {
    inject(DestroyRef).onDestroy(() => this.ended.abort());
  }

  /** Move to other topics or another join. Answers with the outcome; every refusal and failure is a TurnoutError. */
  swap(message: ControlMessage, options: ControlOptions = {}): Promise<Outcome> {
    return this.ask((wait) => this.turnout.client.control(message, wait), options);
  }

  /** Go back to the plan before. */
  rollback(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration" | "dryRun"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.ask((wait) => this.turnout.client.rollback(message, wait), options);
  }

  /** Publish the candidate; `expectedGeneration` is the candidate's. */
  publish(
    message: Pick<ControlMessage, "requestId" | "expectedGeneration" | "force"> = {},
    options: ControlOptions = {},
  ): Promise<Outcome> {
    return this.ask((wait) => this.turnout.client.publish(message, wait), options);
  }

  /** Remove the candidate; `expectedGeneration` is the candidate's. */
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

  /** The history, oldest first. */
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
