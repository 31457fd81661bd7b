// Requests of swaps, and their outcomes. Tables and status follow a swap automatically.

import { useEffect, useMemo, useRef, useState } from "react";
import type { Candidate, ControlMessage, ControlOptions, Outcome, Progress, TurnoutError } from "@turnout/client";
import { asTurnoutError, type SwapState } from "@turnout/client/frameworks";
import { useTurnout } from "./provider.js";
import { useConnection, useStatus } from "./status.js";

/** The calls, which are the same functions in each rendering. All return the outcome, and throw TurnoutError. */
export interface SwapCalls {
  /** Change topics or joins. */
  swap(message: ControlMessage, options?: ControlOptions): Promise<Outcome>;
  /** Go back to the previous plan. */
  rollback(message?: Pick<ControlMessage, "requestId" | "expectedGeneration" | "dryRun">, options?: ControlOptions): Promise<Outcome>;
  /** Publish the candidate; `expectedGeneration` is its generation. */
  publish(message?: Pick<ControlMessage, "requestId" | "expectedGeneration" | "force">, options?: ControlOptions): Promise<Outcome>;
  /** Remove the candidate; `expectedGeneration` is its generation. */
  discard(message?: Pick<ControlMessage, "requestId" | "expectedGeneration">, options?: ControlOptions): Promise<Outcome>;
  /** End the current build. */
  cancel(message?: Pick<ControlMessage, "requestId" | "expectedGeneration">, options?: ControlOptions): Promise<Outcome>;
}

export interface Swapping extends SwapCalls {
  /** The state of the last swap or rollback of this component. */
  readonly state: SwapState;
  /** The progress of the current build, whoever requested it; null if there is none. */
  readonly progress: Progress | null;
  /** The candidate that waits for review; null if there is none. */
  readonly candidate: Candidate | null;
  /** Whether this client may request swaps. */
  readonly allowed: boolean;
}

export function useSwap(): Swapping {
  const client = useTurnout();
  const connection = useConnection();
  const progress = useStatus((status) => status?.progress ?? null);
  const candidate = useStatus((status) => status?.candidate ?? null);
  const [state, setState] = useState<SwapState>({ state: "idle" });
  const mounted = useRef<AbortController | null>(null);
  useEffect(() => {
    const controller = (mounted.current = new AbortController());
    return () => controller.abort();
  }, []);

  const calls = useMemo((): SwapCalls => {
    let asked = 0;
    const awaited = ({ signal, ...options }: ControlOptions = {}): ControlOptions => {
      const signals = [mounted.current?.signal, signal].filter((one) => one !== undefined);
      return { ...options, signal: AbortSignal.any(signals) };
    };
    const ask = async (call: () => Promise<Outcome>): Promise<Outcome> => {
      const number = ++asked;
      const become = (next: SwapState): void => {
        if (number === asked) setState(next);
      };
      become({ state: "running" });
      try {
        const outcome = await call().catch(asTurnoutError);
        become({ state: "done", outcome });
        return outcome;
      } catch (error) {
        become({ state: "failed", error: error as TurnoutError });
        throw error;
      }
    };
    return {
      swap: (message, options) => ask(() => client.control(message, awaited(options))),
      rollback: (message, options) => ask(() => client.rollback(message, awaited(options))),
      publish: (message, options) => ask(() => client.publish(message, awaited(options))),
      discard: (message, options) => ask(() => client.discard(message, awaited(options))),
      cancel: (message, options) => client.cancel(message, awaited(options)).catch(asTurnoutError),
    };
  }, [client]);
  const allowed = connection.state === "live" && connection.role === "operator";
  return useMemo(
    () => ({ ...calls, state, progress, candidate, allowed }),
    [calls, state, progress, candidate, allowed],
  );
}
