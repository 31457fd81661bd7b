"""The publisher: switches the published generation and writes the outcomes of messages, in one transaction each.

It knows the published plan and the previous one, and puts the settings of a generation in force with it. It builds and
decides nothing.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import duckdb

from turnout.config import Settings
from turnout.config.changes import SettingChange, as_json, compare
from turnout.config.configuration import Configuration, Proposed, file_text
from turnout.config.tables import first_plan
from turnout.errors import TurnoutError
from turnout.logs import Say, about
from turnout.plan.control import Action, ControlMessage, Outcome
from turnout.plan.guards import BrokenGuard
from turnout.plan.plan import Plan
from turnout.plan.swap_rules import Decision, Standing, SwapState, Verdict
from turnout.plan.times import now_milliseconds, now_text
from turnout.store import config_history
from turnout.store.config_history import ConfigEntry
from turnout.store.ledger import CandidateRecord, Ledger, SwapRecord
from turnout.swap.applies import described
from turnout.swap.control_queue import ControlQueue, QueuedMessage, Reply
from turnout.swap.generations import Generation
from turnout.swap.lifecycle import Lifecycle

GUARD_BROKEN = "guard_broken"
DISCARDED = "discarded"
"""The outcome of a candidate that was given up, in the history."""


@dataclass(frozen=True, slots=True)
class SwapRequest:
    """Messages that are decided together, what they ask for, and the file that one of them brings, if it does."""

    messages: Sequence[QueuedMessage]
    decision: Decision
    apply: Proposed | None = None

    @property
    def plan(self) -> Plan:
        return self.decision.plan

    @property
    def verdicts(self) -> dict[QueuedMessage, Verdict]:
        return dict(zip(self.messages, self.decision.verdicts, strict=True))

    @property
    def asker(self) -> QueuedMessage | None:
        """The message that asks for the swap; None where the file does, or a broken guard."""
        return None if self.decision.asker is None else self.messages[self.decision.asker]

    @property
    def report(self) -> dict[str, Any] | None:
        """What the answer of an apply reports."""
        return self.apply.report if self.apply else None


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
        self.plan = first_plan(self._configuration.settings)

    @property
    def number(self) -> int:
        """The published generation's; 0 where there is none."""
        return self._lifecycle.live.number if self._lifecycle.live else 0

    @property
    def standing(self) -> Standing:
        """What the next messages are decided by."""
        candidate = self._lifecycle.candidate
        found = (candidate.plan, candidate.number) if candidate else ()
        return Standing(self.plan, self.number, self.previous, *found)

    def set_state(self, state: SwapState) -> None:
        self._ledger.set_status(state=state.value)

    def publish(self, generation: Generation, request: SwapRequest, outcome: Outcome, why: str = "") -> None:
        """Switch all names, the status row, the history, the settings and the outcomes in one transaction.

        `why` is given where no message asks for it, but broken guards do.
        """
        old, old_plan, candidate = self._lifecycle.live, self.plan, self._lifecycle.candidate
        plan, asker = request.plan, request.asker
        settings = request.apply.settings if request.apply else self._configuration.of(plan)
        changes = compare(self._configuration.settings, settings)
        started = time.monotonic()
        text = f"generation {generation.number}: {plan.describe()}"
        answers = self._answers(request, Reply(outcome, text, generation.number, report=request.report))

        def take_over() -> None:
            self.plan, self.previous = plan, old_plan if old else None
            self._lifecycle.replace(old, generation)
            self._configuration.adopt(settings)

        with self._queue.settling(answers, take_over) as cursor:
            generation.tables.publish(cursor)
            self._ledger.make_status(cursor, plan.topics)
            self._ledger.set_previous(cursor, old_plan if old else None)
            self._ledger.set_status(
                cursor,
                **self._ledger.plan_values(plan),
                lastApplied=now_text(),
                generation=generation.number,
                state=SwapState.LIVE.value,
                requestId=asker.request_id if asker else None,
            )
            result = _result(generation, outcome, why, described(changes))
            result["publish_seconds"] = round(time.monotonic() - started, 6)
            swap = self._swap(plan, asker, "guards" if why else "configuration", **result)
            if candidate is not None and candidate is not generation:
                self._add_discarded(cursor, candidate, f"replaced by generation {generation.number}", asker)
            self._ledger.set_candidate(cursor, None)
            self._ledger.add_swap(cursor, swap)
            if changes:
                self._keep(cursor, settings, changes, swap)
        generation.forget_build()
        before = f"generation {old.number} ({old_plan.describe()})" if old else "nothing"
        with about(generation=generation.number):
            self._say("INFO", f"swapped {before} -> generation {generation.number} ({plan.describe()})")
            if changes:
                self._say("INFO", f"the configuration has changed: {described(changes)}")

    def keep_candidate(self, generation: Generation, request: SwapRequest, broken: Sequence[BrokenGuard] = ()) -> None:
        """Make a generation that has caught up the candidate; the published one stays. `broken` guards are told."""
        asker, old, apply = request.asker, self._lifecycle.candidate, request.apply
        config = file_text(apply.settings) if apply else None
        candidacy = CandidateRecord(generation.number, now_milliseconds(), config)
        why = f"it breaks guards: {'; '.join(map(str, broken))}" if broken else ""
        text = "; ".join(filter(None, (f"generation {generation.number}: {request.plan.describe()}", why)))
        answers = self._answers(request, Reply(Outcome.CANDIDATE, text, generation.number, report=request.report))
        changed = described(apply.changes) if apply else ""
        swap = self._swap(request.plan, asker, **_result(generation, Outcome.CANDIDATE, why, changed))
        with self._queue.settling(answers, partial(self._lifecycle.make_candidate, generation, candidacy)) as cursor:
            if old is not None:
                self._add_discarded(cursor, old, f"replaced by generation {generation.number}", asker)
            self._ledger.set_candidate(cursor, candidacy)
            self._ledger.set_status(cursor, state=SwapState.LIVE.value)
            self._ledger.add_swap(cursor, swap)
        with about(generation=generation.number):
            level = "WARNING" if broken else "INFO"
            self._say(level, f"candidate made: {text}; generation {self.number} stays published")

    def discard(self, why: str, message: QueuedMessage | None = None) -> None:
        """Give up the candidate: a message asks for it, or its time is over."""
        candidate = self._lifecycle.candidate
        assert candidate is not None
        text = f"discarded generation {candidate.number}: {candidate.plan.describe()}"
        answers = {message: Reply(Outcome.APPLIED, text, self.number)} if message else {}
        with self._queue.settling(answers, self._lifecycle.let_candidate_go) as cursor:
            self._add_discarded(cursor, candidate, why, message)
            self._ledger.set_candidate(cursor, None)
        with about(generation=candidate.number):
            self._say("INFO", f"{text}: {why}; generation {self.number} stays published")

    def expire_candidate(self) -> None:
        """Discard a candidate whose time is over, unless a message to publish it waits."""
        candidate, seconds = self._lifecycle.candidate, self._lifecycle.settings.candidate_seconds
        if candidate is None or candidate.candidacy is None:
            return
        if now_milliseconds() < candidate.candidacy.since_ms + 1000 * seconds:
            return
        waiting = (message.parsed for message in self._queue.waiting())
        if not any(isinstance(one, ControlMessage) and one.action is Action.PUBLISH for one in waiting):
            self.discard(f"it expired (swap.candidate_seconds: {seconds:g})")

    def _add_discarded(
        self, cursor: duckdb.DuckDBPyConnection, candidate: Generation, why: str, asker: QueuedMessage | None
    ) -> None:
        swap = self._swap(
            candidate.plan, asker, by="turnout", generation=candidate.number, outcome=DISCARDED, detail=why
        )
        self._ledger.add_swap(cursor, swap)

    def adopt(self, message: QueuedMessage, apply: Proposed) -> None:
        """Put settings in force that need no generation; the published one stays."""
        number, text = self.number, described(apply.changes)
        swap = self._swap(self.plan, message, generation=number, outcome=Outcome.APPLIED.value, detail=text)
        answer = Reply(Outcome.APPLIED, text, number, report=apply.report)
        candidate = self._lifecycle.candidate
        if candidate is not None and candidate.candidacy is not None and candidate.candidacy.config is not None:
            self.discard("another file was applied")  # the candidate's would take this one back
        with self._queue.settling({message: answer}, partial(self._configuration.adopt, apply.settings)) as cursor:
            self._ledger.add_swap(cursor, swap)
            self._ledger.set_status(cursor, lastApplied=now_text(), requestId=message.request_id)
            self._keep(cursor, apply.settings, apply.changes, swap)
        self._say("INFO", f"the configuration has changed, without a new generation: {text}")

    def _keep(
        self,
        cursor: duckdb.DuckDBPyConnection,
        settings: Settings,
        changes: Sequence[SettingChange],
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
            changes=[SettingChange.model_validate(one) for one in self._ledger.hide(as_json(changes))],
            document=text,
            on_disk=self._configuration.on_disk() or (last.on_disk if last else text),
        )
        config_history.add(cursor, entry)

    def fail(self, request: SwapRequest, error: TurnoutError) -> None:
        """Record that a swap failed, or was rejected by a guard; the published generation stays."""
        plan, number = request.plan.describe(), self.number
        outcome = Outcome.REJECTED if error.code == GUARD_BROKEN else Outcome.FAILED
        said = "was rejected" if outcome is Outcome.REJECTED else "failed"
        self._say("ERROR", f"the swap to {plan} {said}: {error}; generation {number} stays published")
        self._end_swap(request, Reply(outcome, str(error), number, error, request.report))

    def cancel(self, request: SwapRequest, ended_by: Mapping[QueuedMessage, Verdict]) -> None:
        """Record that a swap was cancelled, with the outcomes of the messages that ended it."""
        plan, number = request.plan.describe(), self.number
        by = next(message for message, verdict in ended_by.items() if verdict.outcome is not Outcome.REJECTED)
        text = f"cancelled by {by.record.requester}"
        self._say("INFO", f"the swap to {plan} was {text}; generation {number} stays published")
        self._end_swap(request, Reply(Outcome.CANCELLED, text, number, report=request.report), ended_by)

    def _end_swap(
        self, request: SwapRequest, answer: Reply, ended_by: Mapping[QueuedMessage, Verdict] = MappingProxyType({})
    ) -> None:
        """Write the outcomes of a swap that published nothing, and its row of the history."""
        self.set_state(SwapState.LIVE)
        result: dict[str, Any] = {"generation": self.number, "outcome": answer.outcome.value, "detail": answer.detail}
        swap = self._swap(request.plan, request.asker, **result)
        answers = self._answers(request, answer) | self._decided(ended_by)
        with self._queue.settling(answers) as cursor:
            self._ledger.add_swap(cursor, swap)

    def unchanged(self, verdicts: Mapping[QueuedMessage, Verdict]) -> None:
        """Write the outcomes of messages that need no build."""
        unchanged = [message for message, verdict in verdicts.items() if verdict.outcome is Outcome.UNCHANGED]
        if unchanged:
            self._say("INFO", f"no change: {self.plan.describe()}")
        with self._queue.settling(self._decided(verdicts)) as cursor:
            for message in unchanged:
                self._ledger.set_status(cursor, lastApplied=now_text(), requestId=message.request_id)

    def _answers(self, request: SwapRequest, built: Reply) -> dict[QueuedMessage, Reply]:
        """An answer for each message: `built` for those whose outcome the build decides."""
        return dict.fromkeys(request.messages, built) | self._decided(request.verdicts)

    def _decided(self, verdicts: Mapping[QueuedMessage, Verdict]) -> dict[QueuedMessage, Reply]:
        """The answers of messages whose outcomes are decided."""
        return {
            message: Reply(verdict.outcome, verdict.reason, self.number, verdict.error, verdict.report)
            for message, verdict in verdicts.items()
            if verdict.outcome is not None
        }

    def _swap(self, plan: Plan, asker: QueuedMessage | None, by: str = "configuration", **result: Any) -> SwapRecord:
        """The row of the history; `by` is who asked where no message did."""
        return SwapRecord(
            before=self.plan.describe() if self._lifecycle.live else "",
            after=plan.describe(),
            requester=asker.record.requester if asker else by,
            request_id=asker.request_id if asker else None,
            control_offset=asker.record.offset if asker else None,
            **result,
        )


def _result(generation: Generation, outcome: Outcome, *details: str) -> dict[str, Any]:
    """The fields of the history that a build decides."""
    return {
        "generation": generation.number,
        "source_offsets": generation.offsets.to_json(),
        "build_seconds": round(generation.build_seconds, 4),
        "catch_up_seconds": round(generation.catch_up_seconds, 4),
        "outcome": outcome.value,
        "detail": "; ".join(filter(None, details)),
        "sources": json.dumps(generation.origins),
    }
