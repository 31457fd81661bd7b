"""Offsets: sums and comparisons, Spark's JSON form, and what is said of lost records."""

from __future__ import annotations

import pytest

from turnout.plan.offsets import EARLIEST, Lost, Offsets


def offsets(**topics: list[int]) -> Offsets:
    return Offsets({(topic, p): offset for topic, parts in topics.items() for p, offset in enumerate(parts)})


def test_offsets_survive_their_json_form() -> None:
    some = offsets(users=[3, 4], accounts=[0])
    assert Offsets.from_json(some.to_json()) == some
    assert some.to_json() == '{"accounts": {"0": 0}, "users": {"0": 3, "1": 4}}'
    assert Offsets.from_json("{}") == Offsets({})


@pytest.mark.parametrize(
    ("now", "left"),
    [([0, 0], 7), ([3, 4], 0), ([5, 4], 0), ([9, 3], 1), ([3], 4)],
)
def test_offsets_behind_counts_what_is_left_and_nothing_twice(now: list[int], left: int) -> None:
    assert offsets(users=now).behind(offsets(users=[3, 4])) == left


def test_offsets_tell_what_is_left_of_each_partition() -> None:
    left = offsets(users=[1], accounts=[9]).lags(offsets(users=[3, 4], accounts=[5]))
    assert left == {("users", 0): 2, ("users", 1): 4, ("accounts", 0): 0}


def test_offsets_up_to_an_end_leave_out_what_is_read_and_begin_new_partitions_at_their_first_record() -> None:
    start = offsets(users=[1, 4], accounts=[9]).up_to(offsets(users=[3, 4, 2], accounts=[9]))
    assert start == Offsets({("users", 0): 1, ("users", 2): EARLIEST})


def test_offsets_reached_takes_a_partition_that_is_gone_for_done() -> None:
    target = offsets(users=[3, 4])
    assert offsets(users=[3, 4]).reached(target)
    assert offsets(users=[3]).reached(target)
    assert not offsets(users=[3, 3]).reached(target)
    assert Offsets({}).reached(target)


def test_offsets_made_anew_are_those_that_went_back() -> None:
    before = offsets(users=[3, 4], accounts=[5])
    assert before.made_anew(offsets(users=[3, 9], accounts=[5])) is None
    assert before.made_anew(offsets(users=[1, 9], other=[0])) == offsets(users=[1])


def test_offsets_keep_topics_that_may_not_be_seen() -> None:
    before, now = offsets(users=[3, 4], accounts=[5]), offsets(accounts=[6])
    asked: list[str] = []

    def denied(topic: str, read: Offsets) -> bool:
        asked.append(topic)
        return read == before

    assert now.keeping(before, denied) == offsets(users=[3, 4], accounts=[6])
    assert asked == ["users"]
    assert now.keeping(before, lambda *_: False) == now
    assert before.keeping(before, denied) == before
    assert asked == ["users"]


def test_offsets_of_one_topic() -> None:
    assert offsets(users=[3, 4], accounts=[5]).topic("accounts") == offsets(accounts=[5])


@pytest.mark.parametrize(
    ("lost", "parts"),
    [
        (Lost("t", 1, 10, 25), ["topic 't' partition 1", "lost offsets 10 to 24", "continues at 25", "raise"]),
        (Lost("t", 0, 10, None), ["topic 't' partition 0 is gone", "up to offset 10"]),
        (Lost("t", 0, 10, 4), ["created again", "up to offset 10", "ends at 4", "again from its start"]),
    ],
)
def test_lost_says_where_what_and_what_next(lost: Lost, parts: list[str]) -> None:
    assert all(part in str(lost) for part in parts), str(lost)
