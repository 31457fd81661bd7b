"""The publisher: switches the published generation and writes the outcomes of messages, in one transaction each.

It knows the published plan and the previous one. It builds and decides nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb

from turnout.errors import TurnoutError
from turnout.logs import about
from turnout.plan.control import Outcome
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import Decision, SwapState, Verdict
from turnout.store.ledger import Ledger, SwapRecord
from turnout.swap.control_queue import Answer, ControlQueue, QueuedMessage
from turnout.swap.generations import Generation
from turnout.swap.health import Say
from turnout.swap.lifecycle import Lifecycle


@dataclass(slots=True)
class Publisher:
    """Publishes generations, on the orchestrator's thread."""

    _ledger: Ledger
    _queue: ControlQueue
    _lifecycle: Lifecycle
    _say: Say
    plan: Plan
    previous: Plan | None = None

    @property
    def number(self) -> int:
        """The published generation's; 0 where there is none."""
        return self._lifecycle.live.number if self._lifecycle.live else 0

    def set_state(self, state: SwapState) -> None:
        self._ledger.set_status(state=state.value)

    def publish(
        self, generation: Generation, messages: Sequence[QueuedMessage], decision: Decision, outcome: Outcome
    ) -> None:
        """Switch all names, the status row, the history and the outcomes in one transaction."""
        old, old_plan = self._lifecycle.live, self.plan
        carrier = messages[decision.carrier] if decision.carrier is not None else None
        started = time.monotonic()

        def switch(cursor: duckdb.DuckDBPyConnection) -> None:
            generation.tables.publish(cursor)
            self._ledger.set_previous(cursor, old_plan.to_json() if old else None)
            self._ledger.set_status(
                cursor,
                **self._ledger.plan_values(decision.plan),
                lastApplied=_now(),
                generation=generation.number,
                state=SwapState.LIVE.value,
                requestId=carrier.request_id if carrier else None,
            )
            swap = self._swap(
                decision.plan,
                carrier,
                generation=generation.number,
                source_offsets=generation.offsets.to_json(),
                build_seconds=round(generation.build_seconds, 4),
                catch_up_seconds=round(generation.catch_up_seconds, 4),
                publish_seconds=round(time.monotonic() - started, 6),
                outcome=outcome.value,
            )
            self._ledger.add_swap(cursor, swap)

        answer = Answer(outcome, f"generation {generation.number}: {decision.plan.describe()}", generation.number)
        self._queue.settle(messages, self._answers(decision, answer), switch)
        self.plan, self.previous = decision.plan, old_plan if old else None
        self._lifecycle.replace(old, generation)
        before = f"generation {old.number} ({old_plan.describe()})" if old else "nothing"
        with about(generation=generation.number):
            self._say("INFO", f"swapped {before} -> generation {generation.number} ({decision.plan.describe()})")

    def fail(self, messages: Sequence[QueuedMessage], decision: Decision, error: TurnoutError) -> None:
        """Record that a swap failed; the published generation stays."""
        self.set_state(SwapState.LIVE)
        number = self.number
        self._say("ERROR", f"the swap to {decision.plan.describe()} failed: {error}; generation {number} goes on")
        failed = {"generation": number, "outcome": Outcome.FAILED.value, "detail": str(error)}
        swap = self._swap(decision.plan, messages[decision.carrier or 0], **failed)
        answers = self._answers(decision, Answer(Outcome.FAILED, str(error), number, error))
        self._queue.settle(messages, answers, lambda cursor: self._ledger.add_swap(cursor, swap))

    def unchanged(self, messages: Sequence[QueuedMessage], decision: Decision) -> None:
        """Write the outcomes of messages that need no build."""
        verdicts = list(zip(messages, decision.verdicts, strict=True))
        unchanged = [message for message, verdict in verdicts if verdict.outcome is Outcome.UNCHANGED]
        if unchanged:
            self._say("INFO", f"no change: {self.plan.describe()}")

        def refresh(cursor: duckdb.DuckDBPyConnection) -> None:
            for message in unchanged:
                self._ledger.set_status(cursor, lastApplied=_now(), requestId=message.request_id)

        self._queue.settle(messages, [self._answer(verdict) for verdict in decision.verdicts], refresh)

    def _answers(self, decision: Decision, built: Answer) -> list[Answer]:
        """An answer for each message: `built` for those whose outcome the build decides."""
        return [built if verdict.outcome is None else self._answer(verdict) for verdict in decision.verdicts]

    def _answer(self, verdict: Verdict) -> Answer:
        assert verdict.outcome is not None
        return Answer(verdict.outcome, verdict.reason, self.number, verdict.error)

    def _swap(self, plan: Plan, carrier: QueuedMessage | None, **result: Any) -> SwapRecord:
        """The row of the history."""
        return SwapRecord(
            before=self.plan.describe() if self._lifecycle.live else "",
            after=plan.describe(),
            requester=carrier.record.requester if carrier else "configuration",
            request_id=carrier.request_id if carrier else None,
            control_offset=carrier.record.offset if carrier else None,
            **result,
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
