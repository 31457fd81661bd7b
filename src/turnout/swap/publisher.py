"""The publisher: switches the published generation and writes the outcomes of messages, in one transaction each.

It knows the published plan and the previous one, and puts the settings of a generation in force with it. It builds and
decides nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import duckdb

from turnout.config import Settings
from turnout.config.changes import Change, compare
from turnout.config.configuration import Configuration, file_text
from turnout.errors import TurnoutError
from turnout.logs import about
from turnout.plan.control import Outcome
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import Decision, SwapState, Verdict
from turnout.store import config_history
from turnout.store.config_history import ConfigEntry, as_json
from turnout.store.ledger import Ledger, SwapRecord
from turnout.swap.applies import Apply, described
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
    _configuration: Configuration
    plan: Plan = field(init=False)
    previous: Plan | None = None

    def __post_init__(self) -> None:
        self.plan = self._configuration.first_plan()

    @property
    def number(self) -> int:
        """The published generation's; 0 where there is none."""
        return self._lifecycle.live.number if self._lifecycle.live else 0

    def set_state(self, state: SwapState) -> None:
        self._ledger.set_status(state=state.value)

    def publish(
        self,
        generation: Generation,
        messages: Sequence[QueuedMessage],
        decision: Decision,
        outcome: Outcome,
        apply: Apply | None = None,
    ) -> None:
        """Switch all names, the status row, the history, the settings and the outcomes in one transaction."""
        old, old_plan = self._lifecycle.live, self.plan
        settings = apply.settings if apply else self._configuration.of(decision.plan)
        changes = compare(self._configuration.settings, settings)
        carrier = messages[decision.carrier] if decision.carrier is not None else None
        started = time.monotonic()

        def switch(cursor: duckdb.DuckDBPyConnection) -> None:
            generation.tables.publish(cursor)
            self._ledger.make_status(cursor, decision.plan.topics)
            self._ledger.set_previous(cursor, old_plan if old else None)
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
                detail=described(changes),
            )
            self._ledger.add_swap(cursor, swap)
            if changes:
                self._keep(cursor, settings, changes, swap)

        text = f"generation {generation.number}: {decision.plan.describe()}"
        answer = Answer(outcome, text, generation.number, report=_report(apply))

        def take_over() -> None:
            self.plan, self.previous = decision.plan, old_plan if old else None
            self._lifecycle.replace(old, generation)
            self._configuration.adopt(settings)

        self._queue.settle(messages, self._answers(decision, answer), switch, take_over)
        before = f"generation {old.number} ({old_plan.describe()})" if old else "nothing"
        with about(generation=generation.number):
            self._say("INFO", f"swapped {before} -> generation {generation.number} ({decision.plan.describe()})")
            if changes:
                self._say("INFO", f"the configuration has changed: {described(changes)}")

    def adopt(self, message: QueuedMessage, apply: Apply) -> None:
        """Put settings in force that need no generation; the published one stays."""
        number, text = self.number, described(apply.changes)
        result = {"generation": number, "outcome": Outcome.APPLIED.value, "detail": text}
        swap = self._swap(self.plan, message, **result)

        def keep(cursor: duckdb.DuckDBPyConnection) -> None:
            self._ledger.add_swap(cursor, swap)
            self._ledger.set_status(cursor, lastApplied=_now(), requestId=message.request_id)
            self._keep(cursor, apply.settings, apply.changes, swap)

        answer = Answer(Outcome.APPLIED, text, number, report=_report(apply))
        self._queue.settle([message], [answer], keep, lambda: self._configuration.adopt(apply.settings))
        self._say("INFO", f"the configuration has changed, without a new generation: {text}")

    def _keep(
        self,
        cursor: duckdb.DuckDBPyConnection,
        settings: Settings,
        changes: Sequence[Change],
        swap: SwapRecord,
    ) -> None:
        text, last = file_text(settings), config_history.newest(self._ledger.database)
        if not text:
            return  # of settings that came from no file nothing can be kept
        entry = ConfigEntry(
            generation=swap.generation,
            requester=swap.requester,
            request_id=swap.request_id,
            outcome=swap.outcome,
            changes=self._ledger.hide(as_json(changes)),
            document=text,
            on_disk=self._configuration.on_disk() or (last.on_disk if last else text),
        )
        config_history.add(cursor, entry)

    def fail(
        self, messages: Sequence[QueuedMessage], decision: Decision, error: TurnoutError, apply: Apply | None = None
    ) -> None:
        """Record that a swap failed; the published generation stays."""
        self.set_state(SwapState.LIVE)
        number = self.number
        self._say("ERROR", f"the swap to {decision.plan.describe()} failed: {error}; generation {number} goes on")
        failed = {"generation": number, "outcome": Outcome.FAILED.value, "detail": str(error)}
        swap = self._swap(decision.plan, messages[decision.carrier or 0], **failed)
        answers = self._answers(decision, Answer(Outcome.FAILED, str(error), number, error, _report(apply)))
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
        report = verdict.error.report if verdict.error else None
        return Answer(verdict.outcome, verdict.reason, self.number, verdict.error, report)

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


def _report(apply: Apply | None) -> dict[str, Any] | None:
    return None if apply is None else {"changes": as_json(apply.changes)}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
