"""The rules of a swap: retiring, and what becomes of messages that wait together."""

import itertools
from collections.abc import Sequence
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.plan.control import Action, ControlMessage, ControlRejected, Outcome, resolve
from turnout.plan.joins import Join
from turnout.plan.plan import Plan, Start
from turnout.plan.swap_rules import (
    Decision,
    ParsedMessage,
    Work,
    decide,
    replay,
    to_retire,
)

CURRENT = Plan({"users": "users", "accounts": "accounts"}, {"final_ui": Join.LEFT})

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


@pytest.mark.parametrize(
    ("queue", "outcomes", "work"),
    [
        pytest.param([], "", Work.NONE, id="empty"),
        pytest.param([BAD], "rejected", Work.NONE, id="rejected"),
        pytest.param([NOTHING, NOTHING], "unchanged unchanged", Work.NONE, id="nothing asked"),
        pytest.param([users("users")], "unchanged", Work.NONE, id="the same plan"),
        pytest.param([users("u2")], "carrier", Work.BUILD, id="one change"),
        pytest.param([users("u2"), users("u3")], "superseded carrier", Work.BUILD, id="later wins"),
        pytest.param([users("u2"), INNER], "superseded carrier", Work.BUILD, id="both fields"),
        pytest.param([users("u2"), NOTHING], "carrier unchanged", Work.BUILD, id="a refresh behind a change"),
        pytest.param([NOTHING, users("u2")], "unchanged carrier", Work.BUILD, id="a refresh before a change"),
        pytest.param([users("u2"), users("u2")], "superseded carrier", Work.BUILD, id="repeated"),
        pytest.param([users("u2"), BAD], "carrier rejected", Work.BUILD, id="a bad one behind"),
        pytest.param([BAD, users("u2"), BAD, INNER], "rejected superseded rejected carrier", Work.BUILD, id="mix"),
        pytest.param([users("u2"), users("users")], "superseded unchanged", Work.NONE, id="there and back"),
        pytest.param(
            [users("u2"), users("users"), users("users")],
            "superseded unchanged unchanged",
            Work.NONE,
            id="there and back twice",
        ),
        pytest.param([users("u2", 4)], "carrier", Work.BUILD, id="expected generation"),
        pytest.param([users("u2", 3)], "rejected", Work.NONE, id="another generation expected"),
        pytest.param([users("u2", 3), users("u3")], "rejected carrier", Work.BUILD, id="conflict before change"),
        pytest.param([users("u2", 4), users("u3")], "superseded carrier", Work.BUILD, id="expected, then plain"),
        pytest.param([users("u2"), users("u3", 4)], "carrier", Work.BUILD, id="expected waits for a change"),
        pytest.param([users("u2"), DRY, INNER], "carrier", Work.BUILD, id="dry run waits"),
        pytest.param([DRY, INNER], "carrier", Work.DRY_RUN, id="dry run is alone"),
        pytest.param([NOTHING, BACK], "unchanged", Work.NONE, id="rollback waits"),
        pytest.param([BACK, INNER], "carrier", Work.ROLLBACK, id="rollback is alone"),
        pytest.param(
            [ControlMessage(action=Action.ROLLBACK, dry_run=True)], "carrier", Work.DRY_RUN, id="dry rollback"
        ),
        pytest.param(
            [ControlMessage(action=Action.ROLLBACK, expected_generation=3), INNER],
            "rejected",
            Work.NONE,
            id="rollback of another generation",
        ),
    ],
)
def test_batch_decides_each_message(queue: list[ParsedMessage], outcomes: str, work: Work) -> None:
    batch = decide(queue, CURRENT, generation=4)
    assert [verdict.outcome or "carrier" for verdict in batch.verdicts] == outcomes.split()
    assert batch.work is work


def test_batch_aims_at_the_combined_plan() -> None:
    batch = decide([users("u2"), INNER, NOTHING], CURRENT, 4)
    assert batch.plan == Plan({"users": "u2", "accounts": "accounts"}, {"final_ui": Join.INNER})
    assert batch.carrier == 1


def test_batch_dry_run_aims_at_what_it_would_build() -> None:
    assert decide([DRY], CURRENT, 4).plan.topics["users"] == "dry"


def test_batch_rejection_keeps_its_error() -> None:
    (verdict,) = decide([BAD], CURRENT, 4).verdicts
    assert verdict.error is BAD
    assert verdict.reason == "bad; do better"


def test_batch_conflict_has_its_own_error() -> None:
    (verdict,) = decide([users("u2", 9)], CURRENT, 4).verdicts
    assert verdict.error is not None
    assert (verdict.error.code, verdict.error.status) == ("generation_conflict", 409)


def test_batch_without_an_invalid_carrier_is_decided_again() -> None:
    assert decide([users("u2"), users("bad")], CURRENT, 4).carrier == 1
    again = decide([users("u2"), BAD], CURRENT, 4)
    assert (again.carrier, again.plan.topics["users"]) == (0, "u2")


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


class Line:
    """Works through a queue as the orchestrator does; each piece of work succeeds or fails as told."""

    def __init__(self, queue: Sequence[ParsedMessage], fates: Sequence[bool]) -> None:
        self.queue = list(queue)
        self.outcomes: list[Outcome] = []
        self.batches: list[Decision] = []
        self.history = [CURRENT]
        self.generation = 0
        self._fates = itertools.cycle(fates)

    def run(self) -> "Line":
        while len(self.outcomes) < len(self.queue):
            batch = decide(self.queue[len(self.outcomes) :], self.history[-1], self.generation)
            assert batch.verdicts, "a queue that is not empty always moves on"
            carried = [place for place, verdict in enumerate(batch.verdicts) if verdict.outcome is None]
            assert carried == ([] if batch.work is Work.NONE else [batch.carrier])
            done = self._perform(batch)
            self.outcomes += [verdict.outcome or done for verdict in batch.verdicts]
            self.batches.append(batch)
        return self

    def _perform(self, batch: Decision) -> Outcome:
        if batch.work in (Work.NONE, Work.DRY_RUN):
            return Outcome.UNCHANGED
        if not next(self._fates):
            return Outcome.FAILED
        self.generation += 1
        if batch.work is Work.ROLLBACK:
            self.history.append(self.history[-2] if len(self.history) > 1 else self.history[-1])
            return Outcome.ROLLED_BACK
        self.history.append(batch.plan)
        return Outcome.APPLIED


@given(
    st.lists(CHANGES | ANY | BACKS | st.just(BAD), max_size=12),
    st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_line_gives_every_message_exactly_one_outcome(queue: list[ParsedMessage], fates: list[bool]) -> None:
    line = Line(queue, fates).run()
    assert len(line.outcomes) == len(queue)
    for message, outcome in zip(queue, line.outcomes, strict=True):
        if isinstance(message, ControlRejected):
            assert outcome is Outcome.REJECTED
        elif message.expected_generation is None:
            assert outcome is not Outcome.REJECTED
        if outcome is Outcome.ROLLED_BACK:
            assert isinstance(message, ControlMessage)
            assert message.action is Action.ROLLBACK


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
        generation += batch.work in (Work.BUILD, Work.ROLLBACK)


def test_replay_applies_messages_in_turn_and_a_rollback_takes_one_back() -> None:
    batch = replay([users("u2"), INNER, BACK, ControlMessage({"accounts": "a2"})], CURRENT)
    assert batch.plan == CURRENT.with_(topics={"users": "u2", "accounts": "a2"})
    assert [verdict.outcome for verdict in batch.verdicts] == [Outcome.SUPERSEDED] * 3 + [None]
    assert (batch.work, batch.carrier) == (Work.BUILD, 3)


def test_replay_without_a_change_builds_the_first_plan_for_nobody() -> None:
    batch = replay([NOTHING, BACK, DRY, BAD], CURRENT)
    assert (batch.plan, batch.work, batch.carrier) == (CURRENT, Work.BUILD, None)
    assert [verdict.outcome for verdict in batch.verdicts] == [Outcome.UNCHANGED] * 3 + [Outcome.REJECTED]
