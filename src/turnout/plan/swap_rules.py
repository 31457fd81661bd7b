"""The rules of a swap, as pure decisions: the states of a generation, which retire, which message is built.

Nothing here builds, publishes or closes anything, or looks at a clock: the orchestrator does,
and asks here first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from turnout.plan.control import (
    Action,
    ControlMessage,
    ControlRejected,
    Outcome,
    check_expected,
    resolve,
)
from turnout.plan.plan import Plan


class SwapState(StrEnum):
    """The states of one generation. `rolled_back` is none: it is the outcome of a message."""

    VALIDATING = "validating"
    BUILDING = "building"
    CATCHING_UP = "catching_up"
    PUBLISHING = "publishing"
    LIVE = "live"
    LINGERING = "lingering"
    RETIRED = "retired"
    REJECTED = "rejected"
    FAILED = "failed"


TRANSITIONS: Mapping[SwapState, frozenset[SwapState]] = {
    SwapState.VALIDATING: frozenset({SwapState.BUILDING, SwapState.REJECTED, SwapState.FAILED}),
    SwapState.BUILDING: frozenset({SwapState.CATCHING_UP, SwapState.FAILED}),
    SwapState.CATCHING_UP: frozenset({SwapState.PUBLISHING, SwapState.FAILED}),
    SwapState.PUBLISHING: frozenset({SwapState.LIVE, SwapState.FAILED}),
    SwapState.LIVE: frozenset({SwapState.LINGERING}),
    # Going live again is a rollback inside the linger time; the generation it replaces lingers in turn.
    SwapState.LINGERING: frozenset({SwapState.LIVE, SwapState.RETIRED}),
    SwapState.RETIRED: frozenset(),
    SwapState.REJECTED: frozenset(),
    SwapState.FAILED: frozenset(),
}
"""Every move that a generation can make; a state without moves is final."""


class IllegalMove(Exception):  # noqa: N818 - it reads as the sentence it says
    """A move that the table does not have: a fault of the program, not of a message."""

    def __init__(self, current: SwapState, to: SwapState) -> None:
        self.current = current
        self.to = to
        super().__init__(current, to)

    def __str__(self) -> str:
        allowed = ", ".join(sorted(TRANSITIONS[self.current]))
        rest = f"it can become {allowed}" if allowed else "that state is final"
        return f"a generation that is {self.current} cannot become {self.to}: {rest}"


def advance(current: SwapState, to: SwapState) -> SwapState:
    """`to`, where the table allows the move."""
    if to not in TRANSITIONS[current]:
        raise IllegalMove(current, to)
    return to


@dataclass(frozen=True, slots=True)
class Lingering:
    """A generation that is no longer published; `since` is in seconds, on the same clock as `now` below."""

    generation: int
    since: float


def to_retire(
    lingering: Sequence[Lingering], now: float, linger_seconds: float, max_linger_generations: int
) -> tuple[int, ...]:
    """The generations to close, oldest first: those whose time is over, and those that are too many."""
    by_age = sorted(lingering, key=lambda one: (one.since, one.generation))
    too_many = max(0, len(by_age) - max_linger_generations)
    return tuple(
        one.generation for place, one in enumerate(by_age) if place < too_many or now - one.since >= linger_seconds
    )


Queued: TypeAlias = ControlMessage | ControlRejected
"""A message that waits: parsed, or the rejection that parsing (or an early validation) ended in."""


REPLAYED = "a later message was combined with it when the control topic was read from its start"


class Work(StrEnum):
    """What is left to do for the message that carries a batch."""

    NONE = "none"
    BUILD = "build"
    DRY_RUN = "dry_run"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one message comes to; `outcome` is None for the carrier only, whose outcome the work decides."""

    outcome: Outcome | None
    reason: str = ""
    error: ControlRejected | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A verdict for each of the first `len(verdicts)` messages of the queue; the others wait.

    `plan` is what the work aims at; for a rollback it is the current plan: the history has the previous.
    """

    verdicts: tuple[Verdict, ...]
    plan: Plan
    work: Work = Work.NONE
    carrier: int | None = None


def plan_batch(queue: Sequence[Queued], current: Plan, generation: int) -> Batch:
    """Decide the next messages of a queue, in order, so that at most one thing is built.

    Dry runs and rollbacks are decided alone, after everything before them. A message with an expected
    generation waits for a change before it: only then is it known which generation it meets.
    Where the carrier turns out to be invalid before its build began, put its rejection in its place and ask
    again: the messages it would have superseded are then decided without it.
    """
    if not queue:
        return Batch((), current)
    first = queue[0]
    if isinstance(first, ControlMessage) and _stands_alone(first):
        return _alone(first, current, generation)
    steps = _gather(queue, current, generation)
    return _judge(steps, current)


@dataclass(frozen=True, slots=True)
class _Step:
    """One gathered message: its rejection, or the plan up to and with it, and whether it asks for one."""

    plan: Plan
    asks: bool = False
    error: ControlRejected | None = None


def _stands_alone(message: ControlMessage) -> bool:
    return message.dry_run or message.action is Action.ROLLBACK


def _alone(message: ControlMessage, current: Plan, generation: int) -> Batch:
    try:
        check_expected(message, generation)
    except ControlRejected as error:
        return Batch((_rejection(error),), current)
    rollback = message.action is Action.ROLLBACK
    plan = current if rollback else resolve(message, current).plan
    # A dry run of a rollback is a dry run: nothing may move.
    work = Work.DRY_RUN if message.dry_run else Work.ROLLBACK
    return Batch((Verdict(None),), plan, work, carrier=0)


def _gather(queue: Sequence[Queued], current: Plan, generation: int) -> list[_Step]:
    """The messages from the front whose results can be combined."""
    steps: list[_Step] = []
    plan = current
    for queued in queue:
        if isinstance(queued, ControlRejected):
            steps.append(_Step(plan, error=queued))
            continue
        if _stands_alone(queued) or (queued.expected_generation is not None and plan != current):
            break
        try:
            check_expected(queued, generation)
        except ControlRejected as error:
            steps.append(_Step(plan, error=error))
            continue
        step = resolve(queued, plan)
        # One that repeats a change that waits asks for it too: should the build fail, it was not "unchanged".
        steps.append(_Step(step.plan, asks=step.changed or resolve(queued, current).changed))
        plan = step.plan
    return steps


def _judge(steps: Sequence[_Step], current: Plan) -> Batch:
    plan = steps[-1].plan
    last = max((place for place, step in enumerate(steps) if step.asks), default=None)
    builds = plan != current

    def verdict(place: int, step: _Step) -> Verdict:
        if step.error is not None:
            return _rejection(step.error)
        if place == last and builds:
            return Verdict(None)
        if step.asks and place != last:
            return Verdict(Outcome.SUPERSEDED, "a later message was combined with it")
        return Verdict(Outcome.UNCHANGED, "no change")

    verdicts = tuple(verdict(place, step) for place, step in enumerate(steps))
    return Batch(verdicts, plan, Work.BUILD, last) if builds else Batch(verdicts, plan)


def _rejection(error: ControlRejected) -> Verdict:
    return Verdict(Outcome.REJECTED, str(error), error)


def replay(queue: Sequence[Queued], initial: Plan) -> Batch:
    """What a control topic read from its start gives, where nothing is built yet: one plan, built once.

    Each message is applied in turn, a rollback takes back the change before it, and nothing is expected of a
    generation that is not known. The last message that had a part in the plan carries its build.
    """
    plans = [initial]
    verdicts: list[Verdict] = []
    last: int | None = None
    for place, queued in enumerate(queue):
        verdict = Verdict(Outcome.UNCHANGED, "no change")
        if isinstance(queued, ControlRejected):
            verdict = _rejection(queued)
        elif queued.dry_run:
            verdict = Verdict(Outcome.UNCHANGED, "a dry run changes nothing")
        elif queued.action is Action.ROLLBACK:
            if len(plans) > 1:
                plans.pop()
                verdict, last = Verdict(Outcome.SUPERSEDED, REPLAYED), place
        elif (plan := resolve(queued, plans[-1]).plan) != plans[-1]:
            plans.append(plan)
            verdict, last = Verdict(Outcome.SUPERSEDED, REPLAYED), place
        verdicts.append(verdict)
    if last is not None:
        verdicts[last] = Verdict(None)
    return Batch(tuple(verdicts), plans[-1], Work.BUILD, last)
