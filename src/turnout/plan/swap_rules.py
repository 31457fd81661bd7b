"""The rules of a swap, as pure functions: which generations retire, and which waiting message is built.

`swap/` asks here first, and then builds, publishes and closes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any, TypeAlias

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
    CANDIDATE = "candidate"
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
UNPUBLISHED = "no candidate is built when the control topic is read from its start"


class Effect(StrEnum):
    """What a decision does beside its verdicts."""

    NONE = "none"
    BUILD = "build"
    DRY_RUN = "dry_run"
    ROLLBACK = "rollback"
    APPLY = "apply"
    CANDIDATE = "candidate"
    """Build, and publish nothing."""
    PUBLISH = "publish"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one message; None only for the asker: the effect decides it."""

    outcome: Outcome | None
    reason: str = ""
    error: ControlRejected | None = None

    @property
    def report(self) -> Mapping[str, Any] | None:
        return self.error.report if self.error else None


class _Refusal(Enum):
    """Why a message cannot be followed at the moment: the code, the text and the hint of its rejection."""

    FIRST_BUILD = (
        "nothing_to_cancel",
        "the first build cannot be cancelled: no generation is published yet",
        "wait until it is published, and send another plan then",
    )
    NO_BUILD = "nothing_to_cancel", "no build is under way", "send a rollback to undo what is published"
    NO_CANDIDATE = (
        "no_candidate",
        "there is no candidate: none was made, or it was published, replaced or discarded, or it expired",
        'send a change with "publish": false to make one; `turnout history` says what became of the last one',
    )
    NO_PREVIOUS = (
        "nothing_to_roll_back",
        "there is no previous plan",
        "a rollback needs an earlier swap; name topics or a join instead",
    )
    TOO_EARLY = (
        "building",
        "no generation is published yet, so there is no configuration to compare the file with",
        "wait until the server is ready, and apply it again",
    )

    def of(self, message: ControlMessage | ApplyRequest) -> Verdict:
        """The rejection of a message for this reason."""
        code, text, hint = self.value
        return _rejection(ControlRejected(text, hint, code=code, request_id=message.request_id))


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


@dataclass(frozen=True, slots=True)
class Standing:
    """What a decision starts from: the published plan, the one before it, and the candidate, with their generations."""

    plan: Plan
    generation: int
    previous: Plan | None = None
    candidate: Plan | None = None
    candidate_generation: int = 0


def decide(queue: Sequence[ParsedMessage], standing: Standing) -> Decision:
    """Decide the next messages of a queue, in order, so that at most one thing is built.

    Dry runs, applies and actions are decided alone, after everything before them. Cancels are rejected here: those
    that can end a build are decided by `interrupt` while it is under way. A message with an expected generation, or one
    that asks for a candidate, waits until the changes before it are published: only then is its plan known.
    If the asker proves invalid before its build began, replace it by its rejection and decide again: the messages
    that it would have superseded are then decided without it.
    """
    current = plan = standing.plan
    verdicts: list[Verdict] = []
    last: int | None = None
    effect, aim = Effect.NONE, current
    read: set[str] = set()
    for index, message in enumerate(queue):
        if isinstance(message, ControlRejected):
            verdicts.append(_rejection(message))
            continue
        alone = isinstance(message, ApplyRequest) or message.dry_run or message.action is not Action.CHANGE
        if alone and index == 0:
            return _alone(message, standing)
        if isinstance(message, ApplyRequest) or alone:
            break
        if plan != current and (message.expected_generation is not None or not message.publish):
            break
        if conflict := generation_conflict(message, standing.generation):
            verdicts.append(_rejection(conflict))
            continue
        before, after = plan, resolve(message, plan)
        # One that repeats a waiting change asks for it, too: if the build fails, it was not "unchanged".
        asks = after != before or resolve(message, current) != current
        if not message.publish:
            asks = asks and (effect is Effect.CANDIDATE or after != standing.candidate)
        if asks:
            if last is not None:
                verdicts[last] = Verdict(Outcome.SUPERSEDED, "a later message was combined with it")
            if effect is Effect.CANDIDATE:
                read = set()  # a candidate is replaced, not combined
            last, aim, effect = index, after, Effect.BUILD if message.publish else Effect.CANDIDATE
            plan = after if message.publish else plan
            read |= _started(message, current)
        verdicts.append(Verdict(Outcome.UNCHANGED, "no change"))
    if last is None or aim == current:
        return Decision(tuple(verdicts), current)
    verdicts[last] = Verdict(None)
    return Decision(tuple(verdicts), aim, effect, last, frozenset(read))


def _started(message: ControlMessage, plan: Plan) -> set[str]:
    """The sources for which the message names a start."""
    return set(plan.topics) if message.start is not None else set(message.starts)


def _alone(message: ControlMessage | ApplyRequest, standing: Standing) -> Decision:
    current, previous = standing.plan, standing.previous
    if isinstance(message, ControlMessage) and message.action in (Action.PUBLISH, Action.DISCARD):
        return _of_candidate(message, standing)
    if conflict := generation_conflict(message, standing.generation):
        return Decision((_rejection(conflict),), current)
    if isinstance(message, ApplyRequest):
        return Decision((Verdict(None),), current, Effect.APPLY, asker=0)
    if message.action is Action.CANCEL:
        return Decision((_Refusal.NO_BUILD.of(message),), current)
    if message.dry_run:
        # A dry run of a rollback is a dry run: nothing may move.
        plan = (previous or current) if message.action is Action.ROLLBACK else resolve(message, current)
        return Decision((Verdict(None),), plan, Effect.DRY_RUN, 0, frozenset(_started(message, current)))
    if previous is None:
        return Decision((_Refusal.NO_PREVIOUS.of(message),), current)
    return Decision((Verdict(None),), previous, Effect.ROLLBACK, asker=0)


def _of_candidate(message: ControlMessage, standing: Standing) -> Decision:
    """Decide a message about the candidate; its expected generation is the candidate's."""
    if standing.candidate is None:
        return Decision((_Refusal.NO_CANDIDATE.of(message),), standing.plan)
    if conflict := generation_conflict(message, standing.candidate_generation, "the candidate"):
        return Decision((_rejection(conflict),), standing.plan)
    effect = Effect.PUBLISH if message.action is Action.PUBLISH else Effect.DISCARD
    return Decision((Verdict(None),), standing.candidate, effect, asker=0)


def _rejection(error: ControlRejected) -> Verdict:
    return Verdict(Outcome.REJECTED, str(error), error)


def interrupt(
    waiting: Sequence[ParsedMessage], plan: Plan, generation: int, *, publishes: bool = True
) -> dict[int, Verdict]:
    """Decide which waiting messages end the build of `plan`, by their index; the build ends unless all are rejected.

    Every cancel is decided at once. The first rollback ends the build if no message before it asks for something else:
    then the build is what it would undo. A rollback also ends the build of a candidate, which it does not undo: it has
    no outcome yet. `generation` is the published one; the first build, at 0, does not end.
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
                verdicts[index] = Verdict(Outcome.ROLLED_BACK, reason) if publishes else Verdict(None)
            undoes = False
        elif not message.dry_run and (message.action is not Action.CHANGE or resolve(message, plan) != plan):
            undoes = False
    return verdicts


def _cancel(message: ControlMessage, plan: Plan, generation: int) -> Verdict:
    if generation == 0:
        return _Refusal.FIRST_BUILD.of(message)
    if conflict := generation_conflict(message, generation):
        return _rejection(conflict)
    return Verdict(Outcome.APPLIED, f"cancelled the build of {plan.describe()}")


@dataclass(frozen=True, slots=True)
class _Replayed:
    """Where a replay stands: the plans so far, the candidate and its message, and the message that is to be built."""

    plans: tuple[Plan, ...]
    candidate: Plan | None = None
    candidate_at: int = 0
    last: int | None = None


def replay(
    queue: Sequence[ParsedMessage], initial: Plan, expired: Callable[[int, int], bool] = lambda made, asked: False
) -> Decision:
    """Decide all messages of a control topic before the first build: one plan, built once.

    Each message is applied in turn. A rollback undoes the change before it, and so does a cancel right behind a change:
    it was sent while that was built. `expectedGeneration` is ignored, since there is no generation yet. A candidate
    counts only if a later message publishes it; `expired` tells by the indexes of both whether its time was over. The
    last message that changed the plan carries its build.
    """
    now = _Replayed((initial,))
    before: tuple[int, _Replayed] | None = None
    """The index of the change right before a message, and where the replay stood then."""
    verdicts: list[Verdict] = []
    read: set[str] = set()
    for index, message in enumerate(queue):
        verdict = Verdict(Outcome.UNCHANGED, "no change")
        if isinstance(message, ControlRejected):
            verdict = _rejection(message)
        elif isinstance(message, ApplyRequest):
            verdict = _Refusal.TOO_EARLY.of(message)
        elif message.dry_run:
            verdict = Verdict(Outcome.UNCHANGED, "a dry run changes nothing")
        elif message.action is Action.CANCEL:
            verdict = _Refusal.NO_BUILD.of(message)
            if before is not None:
                changed, now = before
                verdicts[changed] = Verdict(Outcome.CANCELLED, "the message after it cancelled it")
                verdict, before = Verdict(Outcome.APPLIED, "cancelled the change before it"), None
        elif message.action is Action.ROLLBACK:
            before = None
            if len(now.plans) > 1:
                verdict, now = Verdict(Outcome.SUPERSEDED, REPLAYED), _Replayed(now.plans[:-1], last=index)
        elif message.action is not Action.CHANGE:
            before, verdict = None, _Refusal.NO_CANDIDATE.of(message)
            if now.candidate is not None and not expired(now.candidate_at, index):
                if message.action is Action.PUBLISH:
                    verdict = Verdict(Outcome.SUPERSEDED, REPLAYED)
                    now = _Replayed((*now.plans, now.candidate), last=index)
                else:
                    verdict, now = Verdict(Outcome.APPLIED, "discarded the candidate"), replace(now, candidate=None)
        elif (plan := resolve(message, now.plans[-1])) != now.plans[-1]:
            verdict, before = Verdict(Outcome.SUPERSEDED, REPLAYED), (index, now)
            if message.publish:
                now = _Replayed((*now.plans, plan), last=index)
            else:
                verdict = Verdict(Outcome.SUPERSEDED, UNPUBLISHED)
                now = replace(now, candidate=plan, candidate_at=index)
            read |= _started(message, plan)
        verdicts.append(verdict)
    if now.last is not None:
        verdicts[now.last] = Verdict(None)
    return Decision(tuple(verdicts), now.plans[-1], Effect.BUILD, now.last, frozenset(read))
