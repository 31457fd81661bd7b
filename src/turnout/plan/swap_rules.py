"""The rules of a swap, as pure functions: which generations retire, and which waiting message is built.

`swap/` asks here first, and then builds, publishes and closes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from turnout.plan.control import Action, ControlMessage, ControlRejected, Outcome, generation_conflict, resolve
from turnout.plan.plan import Plan


class SwapState(StrEnum):
    """The states of one generation, in their order. A rollback inside the linger time makes one live again."""

    VALIDATING = "validating"
    BUILDING = "building"
    CATCHING_UP = "catching_up"
    PUBLISHING = "publishing"
    LIVE = "live"
    LINGERING = "lingering"
    RETIRED = "retired"
    FAILED = "failed"


def to_retire(
    lingering: Mapping[int, float], now: float, linger_seconds: float, max_linger_generations: int
) -> tuple[int, ...]:
    """The generations to close, oldest first: those whose time is over, and those that are too many.

    `lingering` has for each when it was replaced, in seconds on the same clock as `now`.
    """
    by_age = sorted(lingering, key=lambda number: (lingering[number], number))
    too_many = max(0, len(by_age) - max_linger_generations)
    return tuple(
        number for place, number in enumerate(by_age) if place < too_many or now - lingering[number] >= linger_seconds
    )


ParsedMessage: TypeAlias = ControlMessage | ControlRejected
"""A waiting message: what it asks for, or why parsing or validation rejected it."""


REPLAYED = "a later message was combined with it when the control topic was read from its start"


class Work(StrEnum):
    """What to do for the message that carries a decision."""

    NONE = "none"
    BUILD = "build"
    DRY_RUN = "dry_run"
    ROLLBACK = "rollback"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one message; None only for the carrier, whose outcome the work decides."""

    outcome: Outcome | None
    reason: str = ""
    error: ControlRejected | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict for each of the first `len(verdicts)` messages of the queue; the others wait.

    `plan` is what the work aims at; for a rollback it is the current plan: the history has the previous.
    """

    verdicts: tuple[Verdict, ...]
    plan: Plan
    work: Work = Work.NONE
    carrier: int | None = None


def decide(queue: Sequence[ParsedMessage], current: Plan, generation: int) -> Decision:
    """Decide the next messages of a queue, in order, so that at most one thing is built.

    Dry runs, rollbacks and applies are decided alone, after everything before them. A message with an expected
    generation waits until the changes before it are built: only then is the published generation known.
    If the carrier proves invalid before its build began, put its rejection in its place and decide again: the messages
    that it would have superseded are then decided without it.
    """
    plan = current
    verdicts: list[Verdict] = []
    last: int | None = None
    for place, message in enumerate(queue):
        if isinstance(message, ControlRejected):
            verdicts.append(_rejection(message))
            continue
        alone = message.dry_run or message.action is not Action.CHANGE
        if alone and place == 0:
            return _alone(message, current, generation)
        if alone or (message.expected_generation is not None and plan != current):
            break
        if conflict := generation_conflict(message, generation):
            verdicts.append(_rejection(conflict))
            continue
        before, plan = plan, resolve(message, plan)
        # One that repeats a waiting change asks for it, too: if the build fails, it was not "unchanged".
        if plan != before or resolve(message, current) != current:
            if last is not None:
                verdicts[last] = Verdict(Outcome.SUPERSEDED, "a later message was combined with it")
            last = place
        verdicts.append(Verdict(Outcome.UNCHANGED, "no change"))
    if last is None or plan == current:
        return Decision(tuple(verdicts), plan)
    verdicts[last] = Verdict(None)
    return Decision(tuple(verdicts), plan, Work.BUILD, last)


def _alone(message: ControlMessage, current: Plan, generation: int) -> Decision:
    if conflict := generation_conflict(message, generation):
        return Decision((_rejection(conflict),), current)
    if message.action is Action.APPLY:
        return Decision((Verdict(None),), current, Work.APPLY, carrier=0)
    rollback = message.action is Action.ROLLBACK
    plan = current if rollback else resolve(message, current)
    # A dry run of a rollback is a dry run: nothing may move.
    work = Work.DRY_RUN if message.dry_run else Work.ROLLBACK
    return Decision((Verdict(None),), plan, work, carrier=0)


def _rejection(error: ControlRejected) -> Verdict:
    return Verdict(Outcome.REJECTED, str(error), error)


def _too_early(message: ControlMessage) -> ControlRejected:
    return ControlRejected(
        "no generation is published yet, so there is nothing that a file could be held against",
        "wait until the server is ready, and apply it again",
        code="building",
        request_id=message.request_id,
    )


def replay(queue: Sequence[ParsedMessage], initial: Plan) -> Decision:
    """Decide all messages of a control topic before the first build: one plan, built once.

    Each message is applied in turn, and a rollback undoes the change before it; `expectedGeneration` is ignored, since
    there is no generation yet. The last message that changed the plan carries its build.
    """
    plans = [initial]
    verdicts: list[Verdict] = []
    last: int | None = None
    for place, message in enumerate(queue):
        verdict = Verdict(Outcome.UNCHANGED, "no change")
        if isinstance(message, ControlRejected):
            verdict = _rejection(message)
        elif message.action is Action.APPLY:
            verdict = _rejection(_too_early(message))
        elif message.dry_run:
            verdict = Verdict(Outcome.UNCHANGED, "a dry run changes nothing")
        elif message.action is Action.ROLLBACK:
            if len(plans) > 1:
                plans.pop()
                verdict, last = Verdict(Outcome.SUPERSEDED, REPLAYED), place
        elif (plan := resolve(message, plans[-1])) != plans[-1]:
            plans.append(plan)
            verdict, last = Verdict(Outcome.SUPERSEDED, REPLAYED), place
        verdicts.append(verdict)
    if last is not None:
        verdicts[last] = Verdict(None)
    return Decision(tuple(verdicts), plans[-1], Work.BUILD, last)
