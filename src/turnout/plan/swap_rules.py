"""The rules of a swap, as pure functions: which generations retire, and which waiting message is built.

`swap/` asks here first, and then builds, publishes and closes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from turnout.plan.control import (
    Action,
    ApplyRequest,
    ControlMessage,
    ControlRejected,
    Outcome,
    generation_conflict,
    resolve,
)
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
    CANCELLED = "cancelled"


def to_retire(
    lingering: Mapping[int, float], now: float, linger_seconds: float, max_linger_generations: int
) -> tuple[int, ...]:
    """The generations to close, oldest first: those whose time is over, and those that are too many.

    `lingering` has for each when it was replaced, in seconds on the same clock as `now`.
    """
    by_age = sorted(lingering, key=lambda number: (lingering[number], number))
    too_many = max(0, len(by_age) - max_linger_generations)
    return tuple(
        number for index, number in enumerate(by_age) if index < too_many or now - lingering[number] >= linger_seconds
    )


ParsedMessage: TypeAlias = ControlMessage | ApplyRequest | ControlRejected
"""A waiting message: what it asks for, or why parsing or validation rejected it."""


REPLAYED = "a later message was combined with it when the control topic was read from its start"


class Effect(StrEnum):
    """What a decision does beside its verdicts."""

    NONE = "none"
    BUILD = "build"
    DRY_RUN = "dry_run"
    ROLLBACK = "rollback"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one message; None only for the asker: the effect decides it."""

    outcome: Outcome | None
    reason: str = ""
    error: ControlRejected | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict for each of the first `len(verdicts)` messages of the queue; the others wait.

    `plan` is what the effect aims at. An apply makes its plan later, of the file and the current plan.
    """

    verdicts: tuple[Verdict, ...]
    plan: Plan
    effect: Effect = Effect.NONE
    asker: int | None = None
    """The index of the message that the effect is for."""
    read: frozenset[str] = frozenset()
    """The sources for which a message names a start: they are read from Kafka, whatever the published rows are."""


def decide(queue: Sequence[ParsedMessage], current: Plan, generation: int, previous: Plan | None = None) -> Decision:
    """Decide the next messages of a queue, in order, so that at most one thing is built.

    Dry runs, rollbacks and applies are decided alone, after everything before them. So are cancels, which are rejected
    here: those that can end a build are decided by `interrupt` while it is under way. A message with an expected
    generation waits until the changes before it are built: only then is the published generation known.
    If the asker proves invalid before its build began, replace it by its rejection and decide again: the messages
    that it would have superseded are then decided without it.
    """
    plan = current
    verdicts: list[Verdict] = []
    last: int | None = None
    read: set[str] = set()
    for index, message in enumerate(queue):
        if isinstance(message, ControlRejected):
            verdicts.append(_rejection(message))
            continue
        alone = isinstance(message, ApplyRequest) or message.dry_run or message.action is not Action.CHANGE
        if alone and index == 0:
            return _alone(message, current, generation, previous)
        if isinstance(message, ApplyRequest) or alone or (message.expected_generation is not None and plan != current):
            break
        if conflict := generation_conflict(message, generation):
            verdicts.append(_rejection(conflict))
            continue
        before, plan = plan, resolve(message, plan)
        # One that repeats a waiting change asks for it, too: if the build fails, it was not "unchanged".
        if plan != before or resolve(message, current) != current:
            if last is not None:
                verdicts[last] = Verdict(Outcome.SUPERSEDED, "a later message was combined with it")
            last = index
            read |= _started(message, current)
        verdicts.append(Verdict(Outcome.UNCHANGED, "no change"))
    if last is None or plan == current:
        return Decision(tuple(verdicts), plan)
    verdicts[last] = Verdict(None)
    return Decision(tuple(verdicts), plan, Effect.BUILD, last, frozenset(read))


def _started(message: ControlMessage, plan: Plan) -> set[str]:
    """The sources for which the message names a start."""
    return set(plan.topics) if message.start is not None else set(message.starts)


def _alone(message: ControlMessage | ApplyRequest, current: Plan, generation: int, previous: Plan | None) -> Decision:
    if conflict := generation_conflict(message, generation):
        return Decision((_rejection(conflict),), current)
    if isinstance(message, ApplyRequest):
        return Decision((Verdict(None),), current, Effect.APPLY, asker=0)
    if message.action is Action.CANCEL:
        return Decision((_rejection(_nothing_to_cancel(message)),), current)
    if message.dry_run:
        # A dry run of a rollback is a dry run: nothing may move.
        plan = (previous or current) if message.action is Action.ROLLBACK else resolve(message, current)
        return Decision((Verdict(None),), plan, Effect.DRY_RUN, 0, frozenset(_started(message, current)))
    if previous is None:
        return Decision((_rejection(_nothing_to_roll_back(message)),), current)
    return Decision((Verdict(None),), previous, Effect.ROLLBACK, asker=0)


def _rejection(error: ControlRejected) -> Verdict:
    return Verdict(Outcome.REJECTED, str(error), error)


def interrupt(waiting: Sequence[ParsedMessage], plan: Plan, generation: int) -> dict[int, Verdict]:
    """Decide which waiting messages end the build of `plan`, by their index; the build ends unless all are rejected.

    Every cancel is decided at once. The first rollback ends the build if no message before it asks for something else:
    then the build is what it would undo. `generation` is the published one; the first build, at 0, does not end.
    """
    verdicts: dict[int, Verdict] = {}
    undoes = generation > 0
    for index, message in enumerate(waiting):
        if isinstance(message, ControlRejected):
            continue
        if isinstance(message, ApplyRequest):
            undoes = undoes and message.dry_run
        elif message.action is Action.CANCEL:
            verdicts[index] = _cancel(message, plan, generation)
            undoes = False
        elif message.action is Action.ROLLBACK and not message.dry_run:
            if undoes and generation_conflict(message, generation) is None:
                reason = f"cancelled the build of {plan.describe()}; generation {generation} stays published"
                verdicts[index] = Verdict(Outcome.ROLLED_BACK, reason)
            undoes = False
        elif not message.dry_run and resolve(message, plan) != plan:
            undoes = False
    return verdicts


def _cancel(message: ControlMessage, plan: Plan, generation: int) -> Verdict:
    error = generation_conflict(message, generation)
    if generation == 0:
        error = ControlRejected(
            "the first build cannot be cancelled: no generation is published yet",
            "wait until it is published, and send another plan then",
            code="nothing_to_cancel",
            request_id=message.request_id,
        )
    return _rejection(error) if error else Verdict(Outcome.APPLIED, f"cancelled the build of {plan.describe()}")


def _nothing_to_cancel(message: ControlMessage) -> ControlRejected:
    return ControlRejected(
        "no build is under way",
        "send a rollback to undo what is published",
        code="nothing_to_cancel",
        request_id=message.request_id,
    )


def _nothing_to_roll_back(message: ControlMessage) -> ControlRejected:
    return ControlRejected(
        "there is no plan before the present one",
        "a rollback needs an earlier swap; name topics or a join instead",
        code="nothing_to_roll_back",
        request_id=message.request_id,
    )


def _too_early(message: ApplyRequest) -> ControlRejected:
    return ControlRejected(
        "no generation is published yet, so there is no configuration to compare the file with",
        "wait until the server is ready, and apply it again",
        code="building",
        request_id=message.request_id,
    )


def replay(queue: Sequence[ParsedMessage], initial: Plan) -> Decision:
    """Decide all messages of a control topic before the first build: one plan, built once.

    Each message is applied in turn. A rollback undoes the change before it, and so does a cancel right behind a change:
    it was sent while that was built. `expectedGeneration` is ignored, since there is no generation yet. The last
    message that changed the plan carries its build.
    """
    plans = [initial]
    verdicts: list[Verdict] = []
    last: int | None = None
    undone: int | None = None
    """What `last` is again if the next message cancels the change before it."""
    changed: int | None = None
    """The index of that change."""
    read: set[str] = set()
    for index, message in enumerate(queue):
        verdict = Verdict(Outcome.UNCHANGED, "no change")
        if isinstance(message, ControlRejected):
            verdict = _rejection(message)
        elif isinstance(message, ApplyRequest):
            verdict = _rejection(_too_early(message))
        elif message.dry_run:
            verdict = Verdict(Outcome.UNCHANGED, "a dry run changes nothing")
        elif message.action is Action.CANCEL:
            verdict = _rejection(_nothing_to_cancel(message))
            if changed is not None:
                plans.pop()
                verdicts[changed], last = Verdict(Outcome.CANCELLED, "the message after it cancelled it"), undone
                verdict, changed = Verdict(Outcome.APPLIED, "cancelled the change before it"), None
        elif message.action is Action.ROLLBACK:
            changed = None
            if len(plans) > 1:
                plans.pop()
                verdict, last = Verdict(Outcome.SUPERSEDED, REPLAYED), index
        elif (plan := resolve(message, plans[-1])) != plans[-1]:
            plans.append(plan)
            read |= _started(message, plan)
            verdict, undone, last, changed = Verdict(Outcome.SUPERSEDED, REPLAYED), last, index, index
        verdicts.append(verdict)
    if last is not None:
        verdicts[last] = Verdict(None)
    return Decision(tuple(verdicts), plans[-1], Effect.BUILD, last, frozenset(read))
