import { useStatus, useSwap } from "@turnout/react";

/** Moves the tables to another join, or back. What is shown follows by itself. */
export function SwapForm() {
  const { swap, rollback, state, progress, allowed } = useSwap();
  const joins = useStatus((status) => status?.joins) ?? [];
  const join = useStatus((status) => status?.joinType);
  const ready = allowed && state.state !== "running";
  // A refusal is thrown too; here the state shows it.
  const quietly = (asked: Promise<unknown>) => void asked.catch(() => undefined);
  return (
    <form action={(form) => quietly(swap({ joinType: String(form.get("join")) }))}>
      <label>
        Join{" "}
        <select name="join" key={join} defaultValue={join}>
          {joins.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <button type="submit" disabled={!ready}>
        Swap
      </button>
      <button type="button" disabled={!ready} onClick={() => quietly(rollback())}>
        Roll back
      </button>
      <span className="outcome">
        {state.state === "running" && (progress?.percent == null ? "swapping" : `swapping: ${progress.percent} %`)}
        {state.state === "failed" && `${state.error.message}: ${state.error.hint}`}
        {state.state === "done" && state.outcome.outcome}
      </span>
    </form>
  );
}
