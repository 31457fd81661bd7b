"""What is published: the plan of it and the plan before, and every change of that, each in one transaction.

It builds and decides nothing. Messages get their outcomes here, together with what these outcomes say has happened.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import duckdb

from turnout.errors import TurnoutError
from turnout.logs import about
from turnout.plan.control import Outcome
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import Batch, SwapState, Verdict
from turnout.store.ledger import Ledger, Swap
from turnout.swap.builder import BuildTimes
from turnout.swap.control_queue import Answer, Desk, Ticket
from turnout.swap.generations import Generation, Say
from turnout.swap.lifecycle import Keeper


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a swap ended, for its row in the history."""

    outcome: Outcome
    number: int
    times: BuildTimes = field(default_factory=BuildTimes)
    publish_seconds: float = 0.0
    source_offsets: str = "{}"
    detail: str = ""


class Publisher:
    """Switches what is shown, and gives messages their outcomes; on the orchestrator's thread."""

    def __init__(self, ledger: Ledger, desk: Desk, keeper: Keeper, say: Say, plan: Plan) -> None:
        self._ledger = ledger
        self._desk = desk
        self._keeper = keeper
        self._say = say
        self.plan = plan
        self.previous: Plan | None = None

    @property
    def number(self) -> int:
        """The published generation's; 0 where there is none."""
        return self._keeper.live.number if self._keeper.live else 0

    def state_is(self, state: SwapState) -> None:
        self._ledger.set_status(state=state.value)

    def publish(
        self, generation: Generation, times: BuildTimes, tickets: Sequence[Ticket], batch: Batch, outcome: Outcome
    ) -> None:
        """Switch all names, the status row, the history and the outcomes in one transaction."""
        old, old_plan = self._keeper.live, self.plan
        carrier = tickets[batch.carrier] if batch.carrier is not None else None
        started = time.monotonic()

        def switch(cursor: duckdb.DuckDBPyConnection) -> None:
            generation.tables.publish(cursor)
            self._ledger.set_previous(cursor, old_plan.to_json() if old else None)
            self._ledger.set_status(
                cursor,
                **self._ledger.plan_values(batch.plan),
                lastApplied=_now(),
                generation=generation.number,
                state=SwapState.LIVE.value,
                requestId=carrier.request_id if carrier else None,
            )
            seconds = time.monotonic() - started
            ending = _Ending(outcome, generation.number, times, seconds, generation.offsets.to_json())
            self._ledger.add_swap(cursor, self._history(batch.plan, carrier, ending))

        answer = Answer(outcome, f"generation {generation.number}: {batch.plan.describe()}", generation.number)
        self._desk.settle(tickets, self._answers(batch, answer), switch)
        self.plan, self.previous = batch.plan, old_plan if old else None
        self._keeper.replace(old, generation)
        before = f"generation {old.number} ({old_plan.describe()})" if old else "nothing"
        with about(generation=generation.number):
            self._say("INFO", f"swapped {before} -> generation {generation.number} ({batch.plan.describe()})")

    def fail(self, tickets: Sequence[Ticket], batch: Batch, error: TurnoutError) -> None:
        """What was asked for was not built: what is published goes on."""
        self.state_is(SwapState.LIVE)
        number = self.number
        self._say("ERROR", f"the swap to {batch.plan.describe()} failed: {error}; generation {number} goes on")
        carrier = tickets[batch.carrier or 0]

        def remember(cursor: duckdb.DuckDBPyConnection) -> None:
            ending = _Ending(Outcome.FAILED, number, detail=str(error))
            self._ledger.add_swap(cursor, self._history(batch.plan, carrier, ending))

        answers = self._answers(batch, Answer(Outcome.FAILED, str(error), number, error))
        self._desk.settle(tickets, answers, remember)

    def unchanged(self, tickets: Sequence[Ticket], batch: Batch) -> None:
        """Nothing is to be built: all verdicts are known."""
        if any(verdict.outcome is Outcome.UNCHANGED for verdict in batch.verdicts):
            self._say("INFO", f"no change: {self.plan.describe()}")

        def refresh(cursor: duckdb.DuckDBPyConnection) -> None:
            for ticket, verdict in zip(tickets, batch.verdicts, strict=True):
                if verdict.outcome is Outcome.UNCHANGED:
                    self._ledger.set_status(cursor, lastApplied=_now(), requestId=ticket.request_id)

        self._desk.settle(tickets, [self._answer(verdict) for verdict in batch.verdicts], refresh)

    def _answers(self, batch: Batch, built: Answer) -> list[Answer]:
        """An answer for each message: `built` for those whose outcome the build decides."""
        return [built if verdict.outcome is None else self._answer(verdict) for verdict in batch.verdicts]

    def _answer(self, verdict: Verdict) -> Answer:
        assert verdict.outcome is not None
        return Answer(verdict.outcome, verdict.reason, self.number, verdict.error)

    def _history(self, plan: Plan, carrier: Ticket | None, ending: _Ending) -> Swap:
        return Swap(
            generation=ending.number,
            before=self.plan.describe() if self._keeper.live else "",
            after=plan.describe(),
            requester=carrier.requester if carrier else "configuration",
            request_id=carrier.request_id if carrier else None,
            control_offset=carrier.control_offset if carrier else None,
            source_offsets=ending.source_offsets,
            build_seconds=round(ending.times.build, 4),
            catch_up_seconds=round(ending.times.catch_up, 4),
            publish_seconds=round(ending.publish_seconds, 6),
            outcome=ending.outcome.value,
            detail=ending.detail,
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
