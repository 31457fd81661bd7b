// Asking for other topics or another join. What is shown follows by itself; here is only what became of the question.

import { useEffect, useMemo, useRef, useState } from "react";
import type { Candidate, ControlMessage, ControlOptions, Outcome, Progress, TurnoutError } from "@turnout/client";
import { asTurnoutError, type SwapState } from "@turnout/client/frameworks";
import { useTurnout } from "./provider.js";
import { useConnection, useStatus } from "./status.js";

/** The calls are the same functions in each rendering. All answer with the outcome, and throw a TurnoutError. */
export interface SwapCalls {
  /** Move to other topics or another join. */
  swap(message: ControlMessage, options?: ControlOptions): Promise<Outcome>;
  /** Go back to the plan before. */
  rollback(message?: Pick<ControlMessage, "requestId" | "expectedGeneration" | "dryRun">, options?: ControlOptions): Promise<Outcome>;
  /** Publish the candidate; `expectedGeneration` is the candidate's. */
  publish(message?: Pick<ControlMessage, "requestId" | "expectedGeneration" | "force">, options?: ControlOptions): Promise<Outcome>;
  /** Remove the candidate; `expectedGeneration` is the candidate's. */
  discard(message?: Pick<ControlMessage, "requestId" | "expectedGeneration">, options?: ControlOptions): Promise<Outcome>;
  /** End the build under way. */
  cancel(message?: Pick<ControlMessage, "requestId" | "expectedGeneration">, options?: ControlOptions): Promise<Outcome>;
}

export interface Swapping extends SwapCalls {
  /** What became of the last swap or rollback of this component. */
  readonly state: SwapState;
  /** What is built now, whoever asked for it; null when nothing is. */
  readonly progress: Progress | null;
  /** The generation that waits to be published; null without one. */
  readonly candidate: Candidate | null;
  /** Whether the server takes swaps from this client. */
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
