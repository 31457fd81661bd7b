"""The rules of a swap: retiring, and what becomes of messages that wait together."""

import itertools
from collections.abc import Sequence
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.plan.control import Action, ApplyRequest, ControlMessage, ControlRejected, Outcome, resolve
from turnout.plan.joins import Join
from turnout.plan.plan import Plan, Start
from turnout.plan.swap_rules import (
    Decision,
    Effect,
    ParsedMessage,
    Standing,
    decide,
    interrupt,
    replay,
    to_retire,
)

CURRENT = Plan({"users": "users", "accounts": "accounts"}, {"final_ui": Join.LEFT})
BEFORE = CURRENT.with_(topics={"users": "before"})

THREE = {3: 30.0, 1: 10.0, 2: 20.0}


@pytest.mark.parametrize(
    ("lingering", "now", "seconds", "most", "retired"),
    [
        pytest.param({}, 99.0, 8, 2, (), id="none"),
        pytest.param(THREE, 30.0, 100, 3, (), id="young and few"),
        pytest.param(THREE, 30.0, 100, 2, (1,), id="too many: the oldest"),
        pytest.param(THREE, 30.0, 100, 0, (1, 2, 3), id="none may linger"),
        pytest.param(THREE, 28.0, 8, 3, (1, 2), id="time over, at its very end"),
        pytest.param(THREE, 27.9, 8, 3, (1,), id="just before its end"),
        pytest.param(THREE, 31.0, 0, 3, (1, 2, 3), id="no time at all"),
        pytest.param(THREE, 38.0, 8, 1, (1, 2, 3), id="both, each once"),
        pytest.param({5: 1.0, 4: 1.0}, 1.0, 8, 1, (4,), id="same moment: lower number"),
        pytest.param({7: 10.0, 8: 9.0}, 10.0, 8, 1, (8,), id="by age, not by number"),
    ],
)
def test_lingering_generations_retire_by_time_and_count(
    lingering: dict[int, float], now: float, seconds: float, most: int, retired: tuple[int, ...]
) -> None:
    assert to_retire(lingering, now, seconds, most) == retired


def users(topic: str, expected: int | None = None) -> ControlMessage:
    return ControlMessage({"users": topic}, expected_generation=expected)


BAD = ControlRejected(message="bad", hint="do better", request_id="b")
NOTHING = ControlMessage()
INNER = ControlMessage(join=Join.INNER)
DRY = ControlMessage({"users": "dry"}, dry_run=True)
BACK = ControlMessage(action=Action.ROLLBACK)
CANCEL = ControlMessage(action=Action.CANCEL)
PUBLISHING = ControlMessage(action=Action.PUBLISH)
DISCARDING = ControlMessage(action=Action.DISCARD)
APPLY = ApplyRequest("store: {log_rows: 5}")


def expecting(action: Action, generation: int) -> ControlMessage:
    return ControlMessage(action=action, expected_generation=generation)


@pytest.mark.parametrize(
    ("queue", "outcomes", "work"),
    [
        pytest.param([], "", Effect.NONE, id="empty"),
        pytest.param([BAD], "rejected", Effect.NONE, id="rejected"),
        pytest.param([NOTHING, NOTHING], "unchanged unchanged", Effect.NONE, id="nothing asked"),
        pytest.param([users("users")], "unchanged", Effect.NONE, id="the same plan"),
        pytest.param([users("u2")], "carrier", Effect.BUILD, id="one change"),
        pytest.param([users("u2"), users("u3")], "superseded carrier", Effect.BUILD, id="later wins"),
        pytest.param([users("u2"), INNER], "superseded carrier", Effect.BUILD, id="both fields"),
        pytest.param([users("u2"), NOTHING], "carrier unchanged", Effect.BUILD, id="a refresh behind a change"),
        pytest.param([NOTHING, users("u2")], "unchanged carrier", Effect.BUILD, id="a refresh before a change"),
        pytest.param([users("u2"), users("u2")], "superseded carrier", Effect.BUILD, id="repeated"),
        pytest.param([users("u2"), BAD], "carrier rejected", Effect.BUILD, id="a bad one behind"),
        pytest.param([BAD, users("u2"), BAD, INNER], "rejected superseded rejected carrier", Effect.BUILD, id="mix"),
        pytest.param([users("u2"), users("users")], "superseded unchanged", Effect.NONE, id="there and back"),
        pytest.param(
            [users("u2"), users("users"), users("users")],
            "superseded unchanged unchanged",
            Effect.NONE,
            id="there and back twice",
        ),
        pytest.param([users("u2", 4)], "carrier", Effect.BUILD, id="expected generation"),
        pytest.param([users("u2", 3)], "rejected", Effect.NONE, id="another generation expected"),
        pytest.param([users("u2", 3), users("u3")], "rejected carrier", Effect.BUILD, id="conflict before change"),
        pytest.param([users("u2", 4), users("u3")], "superseded carrier", Effect.BUILD, id="expected, then plain"),
        pytest.param([users("u2"), users("u3", 4)], "carrier", Effect.BUILD, id="expected waits for a change"),
        pytest.param([users("u2"), DRY, INNER], "carrier", Effect.BUILD, id="dry run waits"),
        pytest.param([DRY, INNER], "carrier", Effect.DRY_RUN, id="dry run is alone"),
        pytest.param([NOTHING, BACK], "unchanged", Effect.NONE, id="rollback waits"),
        pytest.param([BACK, INNER], "carrier", Effect.ROLLBACK, id="rollback is alone"),
        pytest.param([CANCEL, INNER], "rejected", Effect.NONE, id="nothing to cancel"),
        pytest.param([users("u2"), CANCEL, INNER], "carrier", Effect.BUILD, id="a cancel behind a change"),
        pytest.param([expecting(Action.CANCEL, 3)], "rejected", Effect.NONE, id="cancel of another generation"),
        pytest.param(
            [ControlMessage(action=Action.ROLLBACK, dry_run=True)], "carrier", Effect.DRY_RUN, id="dry rollback"
        ),
        pytest.param(
            [ControlMessage(action=Action.ROLLBACK, expected_generation=3), INNER],
            "rejected",
            Effect.NONE,
            id="rollback of another generation",
        ),
    ],
)
def test_batch_decides_each_message(queue: list[ParsedMessage], outcomes: str, work: Effect) -> None:
    batch = decide(queue, Standing(CURRENT, 4, BEFORE))
    assert [verdict.outcome or "carrier" for verdict in batch.verdicts] == outcomes.split()
    assert batch.effect is work


def test_cancel_without_a_build_says_so() -> None:
    (verdict,) = decide([CANCEL], Standing(CURRENT, 4)).verdicts
    assert verdict.error is not None
    assert (verdict.error.code, verdict.error.status) == ("nothing_to_cancel", 409)
    assert verdict.reason == "no build is under way; send a rollback to undo what is published"


BUILT = CURRENT.with_(topics={"users": "u2"})
DRY_BACK = ControlMessage(action=Action.ROLLBACK, dry_run=True)


@pytest.mark.parametrize(
    ("waiting", "outcomes"),
    [
        pytest.param([], {}, id="nothing waits"),
        pytest.param([INNER, DRY, BAD, NOTHING, APPLY], {}, id="nothing that ends a build"),
        pytest.param([CANCEL], {0: "applied"}, id="cancel"),
        pytest.param([CANCEL, CANCEL], {0: "applied", 1: "applied"}, id="cancel twice"),
        pytest.param([INNER, CANCEL], {1: "applied"}, id="a cancel passes a change that waits"),
        pytest.param([expecting(Action.CANCEL, 4)], {0: "applied"}, id="expected"),
        pytest.param([expecting(Action.CANCEL, 5)], {0: "rejected"}, id="another expected, at once"),
        pytest.param(
            [expecting(Action.CANCEL, 5), CANCEL],
            {0: "rejected", 1: "applied"},
            id="another expected, then a plain one",
        ),
        pytest.param([BACK], {0: "rolled_back"}, id="rollback"),
        pytest.param([BACK, BACK], {0: "rolled_back"}, id="of two rollbacks the first"),
        pytest.param([DRY_BACK], {}, id="dry run of a rollback"),
        pytest.param([BAD, DRY, NOTHING, BACK], {3: "rolled_back"}, id="a rollback passes what changes nothing"),
        pytest.param([users("u2"), BACK], {1: "rolled_back"}, id="a rollback passes what asks for the same"),
        pytest.param([INNER, BACK], {}, id="a rollback of a change that waits"),
        pytest.param([APPLY, BACK], {}, id="a rollback of an apply that waits"),
        pytest.param([expecting(Action.ROLLBACK, 5)], {}, id="a rollback of what is published next"),
        pytest.param([expecting(Action.ROLLBACK, 5), BACK], {}, id="two rollbacks after the build"),
        pytest.param([PUBLISHING, DISCARDING], {}, id="a candidate is published or discarded after the build"),
        pytest.param([PUBLISHING, BACK], {}, id="a rollback of a candidate that is published after the build"),
        pytest.param([DISCARDING, BACK], {}, id="a rollback after a discard that waits"),
        pytest.param([PUBLISHING, CANCEL], {1: "applied"}, id="a cancel passes a publish that waits"),
        pytest.param([CANCEL, BACK], {0: "applied"}, id="a rollback after a cancel undoes what is published"),
        pytest.param([BACK, CANCEL], {0: "rolled_back", 1: "applied"}, id="a cancel after a rollback"),
    ],
)
def test_build_is_ended_by_cancels_and_by_the_rollback_behind_it(
    waiting: list[ParsedMessage], outcomes: dict[int, str]
) -> None:
    verdicts = interrupt(waiting, BUILT, generation=4)
    assert {index: verdict.outcome for index, verdict in verdicts.items()} == outcomes


def test_verdicts_of_an_ended_build_say_what_happened() -> None:
    [cancel] = interrupt([CANCEL], BUILT, 4).values()
    [back] = interrupt([BACK], BUILT, 4).values()
    assert cancel.reason == "cancelled the build of users=u2 accounts=accounts join=left"
    assert back.reason == f"{cancel.reason}; generation 4 stays published"


def test_first_build_is_ended_by_nothing() -> None:
    verdicts = interrupt([BACK, CANCEL], BUILT, generation=0)
    assert [*verdicts] == [1] and verdicts[1].error is not None
    assert verdicts[1].error.code == "nothing_to_cancel"
    assert verdicts[1].reason.startswith("the first build cannot be cancelled")


def test_batch_aims_at_the_combined_plan() -> None:
    batch = decide([users("u2"), INNER, NOTHING], Standing(CURRENT, 4))
    assert batch.plan == Plan({"users": "u2", "accounts": "accounts"}, {"final_ui": Join.INNER})
    assert batch.asker == 1


def test_batch_rollback_aims_at_the_previous_plan() -> None:
    assert decide([BACK], Standing(CURRENT, 4, BEFORE)).plan == BEFORE
    dry = ControlMessage(action=Action.ROLLBACK, dry_run=True)
    assert [decide([dry], Standing(CURRENT, 4, previous)).plan for previous in (BEFORE, None)] == [BEFORE, CURRENT]


def test_batch_rollback_without_a_previous_plan_is_rejected() -> None:
    (verdict,) = decide([BACK], Standing(CURRENT, 4)).verdicts
    assert verdict.error is not None
    assert (verdict.error.code, verdict.error.status) == ("nothing_to_roll_back", 422)


def test_batch_reads_the_sources_for_which_a_message_names_a_start() -> None:
    earliest = Start("earliest")
    some, every = ControlMessage(starts={"users": earliest}), ControlMessage(start=earliest)
    assert decide([INNER], Standing(CURRENT, 4)).read == frozenset()
    assert decide([some, INNER], Standing(CURRENT, 4)).read == {"users"}
    assert decide([some, every], Standing(CURRENT, 4)).read == {"users", "accounts"}
    # A start that changes nothing asks for nothing.
    assert decide([ControlMessage(start=CURRENT.start), INNER], Standing(CURRENT, 4)).read == frozenset()
    assert replay([some, INNER], CURRENT).read == {"users"}


def test_batch_dry_run_aims_at_what_it_would_build() -> None:
    assert decide([DRY], Standing(CURRENT, 4)).plan.topics["users"] == "dry"


def test_batch_rejection_keeps_its_error() -> None:
    (verdict,) = decide([BAD], Standing(CURRENT, 4)).verdicts
    assert verdict.error is BAD
    assert verdict.reason == "bad; do better"


def test_batch_conflict_has_its_own_error() -> None:
    (verdict,) = decide([users("u2", 9)], Standing(CURRENT, 4)).verdicts
    assert verdict.error is not None
    assert (verdict.error.code, verdict.error.status) == ("generation_conflict", 409)


def test_batch_without_an_invalid_carrier_is_decided_again() -> None:
    assert decide([users("u2"), users("bad")], Standing(CURRENT, 4)).asker == 1
    again = decide([users("u2"), BAD], Standing(CURRENT, 4))
    assert (again.asker, again.plan.topics["users"]) == (0, "u2")


CHANGES = st.builds(
    ControlMessage,
    topics=st.dictionaries(st.sampled_from(["users", "accounts"]), st.sampled_from(["users", "accounts", "t3"])),
    join=st.sampled_from([None, Join.LEFT, Join.INNER]),
    start=st.sampled_from([None, Start(), Start("earliest")]),
)
ANY = st.builds(
    ControlMessage,
    topics=st.dictionaries(st.just("users"), st.sampled_from(["users", "t3"])),
    expected_generation=st.sampled_from([None, None, 0, 1, 2]),
    dry_run=st.sampled_from([False, False, True]),
)
BACKS = st.builds(
    ControlMessage,
    action=st.just(Action.ROLLBACK),
    expected_generation=st.sampled_from([None, 0, 1]),
    dry_run=st.booleans(),
)


CANDIDATE = 9
REVIEWS = st.builds(
    ControlMessage,
    topics=st.dictionaries(st.just("accounts"), st.sampled_from(["a1", "a2"])),
    publish=st.just(False),
) | st.builds(
    ControlMessage,
    action=st.sampled_from([Action.PUBLISH, Action.DISCARD]),
    expected_generation=st.sampled_from([None, CANDIDATE]),
)


class Line:
    """Works through a queue as the orchestrator does; each piece of work succeeds or fails as told."""

    def __init__(self, queue: Sequence[ParsedMessage], fates: Sequence[bool]) -> None:
        self.queue = list(queue)
        self.outcomes: list[Outcome] = []
        self.batches: list[Decision] = []
        self.history = [BEFORE, CURRENT]
        self.generation = 0
        self.candidate: Plan | None = None
        self._fates = itertools.cycle(fates)

    def run(self) -> "Line":
        while len(self.outcomes) < len(self.queue):
            standing = Standing(self.history[-1], self.generation, self.history[-2], self.candidate, CANDIDATE)
            batch = decide(self.queue[len(self.outcomes) :], standing)
            assert batch.verdicts, "a queue that is not empty always moves on"
            carried = [place for place, verdict in enumerate(batch.verdicts) if verdict.outcome is None]
            assert carried == ([] if batch.effect is Effect.NONE else [batch.asker])
            done = self._perform(batch)
            self.outcomes += [verdict.outcome or done for verdict in batch.verdicts]
            self.batches.append(batch)
        return self

    def _perform(self, batch: Decision) -> Outcome:
        if batch.effect in (Effect.NONE, Effect.DRY_RUN):
            return Outcome.UNCHANGED
        if batch.effect is Effect.DISCARD:
            self.candidate = None
            return Outcome.APPLIED
        if not next(self._fates):
            return Outcome.FAILED
        if batch.effect is Effect.CANDIDATE:
            self.candidate = batch.plan
            return Outcome.CANDIDATE
        self.generation += 1
        self.candidate = None
        self.history.append(batch.plan)
        return Outcome.ROLLED_BACK if batch.effect is Effect.ROLLBACK else Outcome.APPLIED


@given(
    st.lists(CHANGES | ANY | BACKS | REVIEWS | st.just(BAD), max_size=12),
    st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_line_gives_every_message_exactly_one_outcome(queue: list[ParsedMessage], fates: list[bool]) -> None:
    line = Line(queue, fates).run()
    assert len(line.outcomes) == len(queue)
    for message, outcome in zip(queue, line.outcomes, strict=True):
        if isinstance(message, ControlRejected):
            assert outcome is Outcome.REJECTED
        elif (
            isinstance(message, ControlMessage)
            and message.expected_generation is None
            and message.action not in (Action.PUBLISH, Action.DISCARD)
        ):
            assert outcome is not Outcome.REJECTED
        if outcome is Outcome.CANDIDATE:
            assert isinstance(message, ControlMessage) and not message.publish
        if outcome is Outcome.ROLLED_BACK:
            assert isinstance(message, ControlMessage)
            assert message.action is Action.ROLLBACK


def one_by_one(queue: Sequence[ParsedMessage]) -> tuple[Plan, Plan | None]:
    """What is published and what is the candidate after each message was followed alone."""
    plan, candidate = CURRENT, None
    for message in queue:
        if isinstance(message, (ControlRejected, ApplyRequest)) or message.dry_run:
            continue
        if message.action is Action.PUBLISH:
            plan, candidate = candidate or plan, None
        elif message.action is Action.DISCARD:
            candidate = None
        elif (after := resolve(message, plan)) != plan:
            plan, candidate = (after, None) if message.publish else (plan, after)
    return plan, candidate


@given(st.lists(REVIEWS | st.integers(0, 99) | st.just(BAD) | st.just(DRY) | st.just(NOTHING), max_size=12))
def test_line_keeps_candidates_as_one_by_one(drawn: list[ParsedMessage | int]) -> None:
    # No change leads back to a plan before it: then nothing is built, and a candidate stays.
    queue = [users(f"u{index}") if isinstance(one, int) else one for index, one in enumerate(drawn)]
    line = Line(queue, [True]).run()
    assert (line.history[-1], line.candidate) == one_by_one(queue)


@given(st.lists(CHANGES | REVIEWS, max_size=12), st.integers(0, 12))
def test_failed_build_leaves_plan_and_candidate(queue: list[ParsedMessage], fails_from: int) -> None:
    line = Line(queue, [index < fails_from for index in range(13)]).run()
    made = [batch for batch in line.batches if batch.effect in (Effect.BUILD, Effect.CANDIDATE, Effect.PUBLISH)]
    published = [CURRENT, *(batch.plan for batch in made[:fails_from] if batch.effect is not Effect.CANDIDATE)]
    assert line.history[1:] == published


@given(st.lists(CHANGES | st.just(BAD) | st.just(DRY), max_size=12))
def test_line_ends_at_the_plan_of_applying_one_by_one(queue: list[ParsedMessage]) -> None:
    plan = CURRENT
    for message in queue:
        if isinstance(message, ControlMessage) and not message.dry_run:
            plan = resolve(message, plan)
    assert Line(queue, [True]).run().history[-1] == plan


@given(st.lists(CHANGES, max_size=12))
def test_line_of_changes_is_one_build_at_most(queue: list[ControlMessage]) -> None:
    line = Line(queue, [True]).run()
    assert len(line.batches) <= 1
    plan = reduce(lambda plan, message: resolve(message, plan), queue, CURRENT)
    assert line.history[-1] == plan
    assert line.outcomes.count(Outcome.APPLIED) == int(plan != CURRENT)


@given(st.lists(CHANGES | ANY | BACKS, max_size=8))
def test_line_meets_every_expected_generation_or_rejects(queue: list[ControlMessage]) -> None:
    line = Line(queue, [True])
    plain = [message.expected_generation for message in queue]
    line.run()
    place = generation = 0
    for batch in line.batches:
        for verdict in batch.verdicts:
            if plain[place] is not None:
                assert (verdict.outcome is Outcome.REJECTED) == (plain[place] != generation)
            place += 1
        generation += batch.effect in (Effect.BUILD, Effect.ROLLBACK)


CANCELS = st.builds(
    ControlMessage, action=st.just(Action.CANCEL), expected_generation=st.sampled_from([None, None, 0, 1, 2])
)


class InterruptedLine:
    """Works through a queue whose messages all come before the first build is published."""

    def __init__(self, queue: Sequence[ParsedMessage]) -> None:
        self.queue = list(queue)
        self.outcomes: dict[int, Outcome] = {}
        self.published = [BEFORE, CURRENT]
        self.ended: list[Plan] = []

    def run(self) -> "InterruptedLine":
        while waiting := [index for index in range(len(self.queue)) if index not in self.outcomes]:
            previous, current = self.published[-2:]
            generation = len(self.published) - 1
            batch = decide([self.queue[index] for index in waiting], Standing(current, generation, previous))
            batched, behind = waiting[: len(batch.verdicts)], waiting[len(batch.verdicts) :]
            done = Outcome.UNCHANGED
            if batch.effect in (Effect.BUILD, Effect.ROLLBACK):
                verdicts = interrupt([self.queue[index] for index in behind], batch.plan, generation)
                self._note({behind[index]: verdict.outcome for index, verdict in verdicts.items()})
                if any(verdict.outcome is not Outcome.REJECTED for verdict in verdicts.values()):
                    done = Outcome.CANCELLED
                    self.ended.append(batch.plan)
                else:
                    done = Outcome.APPLIED if batch.effect is Effect.BUILD else Outcome.ROLLED_BACK
                    self.published.append(batch.plan)
            self._note({index: v.outcome or done for index, v in zip(batched, batch.verdicts, strict=True)})
        return self

    def _note(self, outcomes: dict[int, Outcome | None]) -> None:
        for index, outcome in outcomes.items():
            assert outcome is not None and index not in self.outcomes, "each message has one outcome"
            self.outcomes[index] = outcome


@given(
    st.lists(
        CHANGES | ANY | BACKS | CANCELS | st.sampled_from([BAD, PUBLISHING, DISCARDING]),
        max_size=12,
    )
)
def test_interrupted_line_gives_every_message_exactly_one_outcome(queue: list[ParsedMessage]) -> None:
    line = InterruptedLine(queue).run()
    assert len(line.outcomes) == len(queue)
    cancelled = [queue[index] for index, outcome in line.outcomes.items() if outcome is Outcome.CANCELLED]
    assert len(cancelled) == len(line.ended)
    assert not any(isinstance(message, ControlMessage) and message.action is Action.CANCEL for message in cancelled)
    made = 0
    for index, outcome in line.outcomes.items():
        message = queue[index]
        if isinstance(message, ControlRejected):
            assert outcome is Outcome.REJECTED
        elif isinstance(message, ControlMessage) and message.action is Action.CANCEL:
            assert outcome in (Outcome.APPLIED, Outcome.REJECTED)
        else:
            made += outcome is Outcome.APPLIED
    backs = sum(outcome is Outcome.ROLLED_BACK for outcome in line.outcomes.values())
    assert made <= len(line.published) - 2 <= made + backs, "what was cancelled is never published"


def review(topic: str) -> ControlMessage:
    return ControlMessage({"users": topic}, publish=False)


PUBLISH = ControlMessage(action=Action.PUBLISH)
DISCARD = ControlMessage(action=Action.DISCARD)


@pytest.mark.parametrize(
    ("queue", "outcomes", "work", "topic"),
    [
        pytest.param([review("u2")], "carrier", Effect.CANDIDATE, "u2", id="one"),
        pytest.param([review("users")], "unchanged", Effect.NONE, "users", id="no change"),
        pytest.param([review("c")], "unchanged", Effect.NONE, "users", id="the candidate already"),
        pytest.param([review("u2"), review("c")], "superseded carrier", Effect.CANDIDATE, "c", id="again"),
        pytest.param([review("u2"), users("u3")], "superseded carrier", Effect.BUILD, "u3", id="then a change"),
        pytest.param([users("u3"), review("u2")], "carrier", Effect.BUILD, "u3", id="waits for a change"),
        pytest.param([review("u2"), NOTHING], "carrier unchanged", Effect.CANDIDATE, "u2", id="then nothing"),
        pytest.param([review("u2"), PUBLISH], "carrier", Effect.CANDIDATE, "u2", id="publish waits"),
        pytest.param([review("u2"), users("u3", 4)], "superseded carrier", Effect.BUILD, "u3", id="expected"),
        pytest.param([PUBLISH, INNER], "carrier", Effect.PUBLISH, "c", id="publish"),
        pytest.param([DISCARD, INNER], "carrier", Effect.DISCARD, "c", id="discard"),
        pytest.param([expecting(Action.PUBLISH, CANDIDATE)], "carrier", Effect.PUBLISH, "c", id="this one"),
        pytest.param([expecting(Action.PUBLISH, 4)], "rejected", Effect.NONE, "users", id="another"),
        pytest.param([expecting(Action.DISCARD, 8)], "rejected", Effect.NONE, "users", id="discard another"),
    ],
)
def test_batch_with_candidates(queue: list[ParsedMessage], outcomes: str, work: Effect, topic: str) -> None:
    candidate = CURRENT.with_(topics={"users": "c"})
    batch = decide(queue, Standing(CURRENT, 4, BEFORE, candidate, CANDIDATE))
    assert [verdict.outcome or "carrier" for verdict in batch.verdicts] == outcomes.split()
    assert (batch.effect, batch.plan.topics["users"]) == (work, topic)


@pytest.mark.parametrize("message", [PUBLISH, DISCARD, expecting(Action.PUBLISH, 4)])
def test_batch_without_a_candidate_says_so(message: ControlMessage) -> None:
    (verdict,) = decide([message], Standing(CURRENT, 4)).verdicts
    assert verdict.error is not None
    assert (verdict.error.code, verdict.error.status) == ("no_candidate", 409)
    assert '"publish": false' in verdict.error.hint


def test_candidate_does_not_read_what_the_one_before_it_asked_for() -> None:
    earliest = ControlMessage({"users": "u2"}, start=Start("earliest"), publish=False)
    assert decide([earliest, review("u3")], Standing(CURRENT, 4)).read == frozenset()


def test_rollback_ends_the_build_of_a_candidate_and_is_decided_after_it() -> None:
    verdicts = interrupt([NOTHING, BACK, CANCEL], BUILT, 4, publishes=False)
    assert {index: verdict.outcome for index, verdict in verdicts.items()} == {1: None, 2: "applied"}


@pytest.mark.parametrize(
    ("queue", "topic", "asker"),
    [
        pytest.param([review("u2")], "users", None, id="never published"),
        pytest.param([review("u2"), PUBLISH], "u2", 1, id="published"),
        pytest.param([review("u2"), DISCARD, PUBLISH], "users", None, id="discarded"),
        pytest.param([review("u2"), review("u3"), PUBLISH], "u3", 2, id="replaced"),
        pytest.param([review("u2"), users("u3"), PUBLISH], "u3", 1, id="replaced by a change"),
        pytest.param([review("u2"), review("u3"), CANCEL, PUBLISH], "u2", 3, id="the second was cancelled"),
        pytest.param([users("u3"), review("u2"), BACK, PUBLISH], "users", 2, id="replaced by a rollback"),
        pytest.param([review("u2"), PUBLISH, BACK], "users", 2, id="rolled back"),
    ],
)
def test_replay_publishes_a_candidate_only_where_a_message_did(
    queue: list[ParsedMessage], topic: str, asker: int | None
) -> None:
    batch = replay(queue, CURRENT)
    assert (batch.plan.topics["users"], batch.asker, batch.effect) == (topic, asker, Effect.BUILD)
    assert [index for index, verdict in enumerate(batch.verdicts) if verdict.outcome is None] == (
        [] if asker is None else [asker]
    )


@given(st.lists(REVIEWS | CHANGES | st.just(BAD) | st.just(DRY), max_size=12))
def test_replay_ends_at_the_plan_of_one_by_one(queue: list[ParsedMessage]) -> None:
    assert replay(queue, CURRENT).plan == one_by_one(queue)[0]


def test_replay_does_not_publish_a_candidate_whose_time_was_over() -> None:
    times = [0, 70, 10, 100]
    batch = replay(
        [review("u2"), PUBLISH, review("u3"), PUBLISH], CURRENT, lambda made, asked: times[asked] - times[made] >= 60
    )
    assert (batch.plan, batch.asker) == (CURRENT, None)
    assert [verdict.outcome for verdict in batch.verdicts] == ["superseded", "rejected", "superseded", "rejected"]


def test_replay_takes_back_the_change_right_before_a_cancel() -> None:
    batch = replay([INNER, users("u2"), BAD, CANCEL, NOTHING, CANCEL], CURRENT)
    assert batch.plan == CURRENT.with_(joins={"final_ui": Join.INNER})
    assert [verdict.outcome for verdict in batch.verdicts] == [
        None,
        "cancelled",
        *("rejected", "applied", "unchanged", "rejected"),
    ]
    assert batch.asker == 0


def test_replay_of_a_cancel_behind_a_rollback_takes_nothing_back() -> None:
    batch = replay([users("u2"), BACK, CANCEL], CURRENT)
    assert (batch.plan, batch.asker) == (CURRENT, 1)
    assert [verdict.outcome for verdict in batch.verdicts] == ["superseded", None, "rejected"]


def test_replay_applies_messages_in_turn_and_a_rollback_takes_one_back() -> None:
    batch = replay([users("u2"), INNER, BACK, ControlMessage({"accounts": "a2"})], CURRENT)
    assert batch.plan == CURRENT.with_(topics={"users": "u2", "accounts": "a2"})
    assert [verdict.outcome for verdict in batch.verdicts] == [Outcome.SUPERSEDED] * 3 + [None]
    assert (batch.effect, batch.asker) == (Effect.BUILD, 3)


def test_replay_without_a_change_builds_the_first_plan_for_nobody() -> None:
    batch = replay([NOTHING, BACK, DRY, BAD], CURRENT)
    assert (batch.plan, batch.effect, batch.asker) == (CURRENT, Effect.BUILD, None)
    assert [verdict.outcome for verdict in batch.verdicts] == [Outcome.UNCHANGED] * 3 + [Outcome.REJECTED]
