"""The last hour of row counts and summaries: there before somebody looks, kept when nobody does, and bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from filled_store import GOLD_1, USER_1, USER_2, Filling
from live_socket import Socket
from turnout.plan.joins import Join
from turnout.plan.position import Position
from turnout.plan.where import parse_terms
from turnout.serve.live import summaries, summary_history
from turnout.serve.live.summary_history import MAX_LEFT, MAX_LEFT_BY_CLIENT, Histories
from turnout.store.query.summary import Summary, parse_by, parse_order
from turnout.store.query.summary_read import read_summary
from turnout.store.query.windows import list_tables, read_positions
from turnout.testing import wait_until
from turnout_client.messages import SummaryGroups, SummaryHistory


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The server of the shared fixture, which takes its samples often."""
    monkeypatch.setattr(summaries, "SAMPLE_SECONDS", 0.05)
    address: str = request.getfixturevalue("url")
    return address


def asked(url: str, **fields: Any) -> SummaryHistory:
    """The history that a new client is sent first."""
    with Socket(url) as socket:
        socket.send(type="summary", id="s", history=3_600, **fields)
        message = socket.receive()
        assert isinstance(message, SummaryGroups), message
        assert message.history is not None
        assert message.history.whole
        return message.history


def swaps(url: str, **fields: Any) -> list[int]:
    return [swap.generation for swap in asked(url, **fields).swaps]


def test_row_count_of_each_table_is_sampled_while_nobody_looks(filling: Filling, url: str) -> None:
    counted: list[int] = []

    def noted(store: Any, **how: Any) -> Any:
        found = list_tables(store, **how)
        assert [table.name for table in found] == ["accounts_ui", "final_ui", "users_ui"]
        counted.append(found[-1].rows)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(summaries, "list_tables", noted)
        filling.batch(users=[{**USER_1, "userId": "u3"}])
        wait_until(lambda: 3 in counted)
        filling.swap(users=[USER_1])
        wait_until(lambda: counted[-1] == 1)
        filling.batch(users=[USER_2])
        wait_until(lambda: counted[-1] == 2)
        known = len(counted)
        filling.batch(accounts=[GOLD_1])
        wait_until(lambda: len(counted) > known)
    for table, rows in (("users_ui", 2), ("accounts_ui", 1), ("final_ui", 2)):
        found = asked(url, table=table, sort="-count", limit=7)
        assert [swap.generation for swap in found.swaps] == [2]
        assert found.points[-1].groups == [[rows]]


def test_summary_is_kept_while_nobody_looks_and_swaps_are_marked(filling: Filling, url: str) -> None:
    fields = {"table": "final_ui", "by": "accountType", "sort": "-count"}
    asked(url, **fields, limit=30)
    filling.swap(join=Join.INNER, users=[USER_1, USER_2], accounts=[GOLD_1])
    wait_until(lambda: swaps(url, **fields, limit=30) == [2])
    # Lines have fewer groups than bars, and the same history.
    found = asked(url, **fields, limit=1)
    assert [swap.generation for swap in found.swaps] == [2]
    assert {len(point.groups) for point in found.points} == {1}


def test_summaries_that_nobody_looks_at_are_read_only_when_their_table_changed(
    filling: Filling, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            events.append(name if len(arguments) == 2 else "counts")
            return function(*arguments)

        return run

    monkeypatch.setattr(summaries, "read_positions", noted("round", read_positions))
    monkeypatch.setattr(summaries, "read_summary", noted("read", read_summary))
    asked(url, table="users_ui", by="age")
    wait_until(lambda: "read" in events, what="the summary to be read")
    first = len(events)
    wait_until(lambda: events[first:].count("round") >= 3, what="three more rounds")
    assert events.count("read") == 1
    filling.batch(users=[{**USER_1, "userId": "u3"}])
    wait_until(lambda: events.count("read") == 2, what="the summary to be read again")


def test_histories_left_are_bounded_in_number_for_each_client_and_in_time() -> None:
    histories = Histories()

    def look(number: int, client: str, now: float, groups: bytes = b"[]") -> Summary:
        summary = Summary("users_ui", parse_by("age"), limit=number + 1)
        histories.enter(summary).add(int(now * 1_000), 1, groups)
        histories.leave(summary, client, now)
        return summary

    of_one = [look(number, "one", number) for number in range(2 * MAX_LEFT_BY_CLIENT)]
    assert [kept.summary for kept in histories.left()] == of_one[MAX_LEFT_BY_CLIENT:]
    for number in range(2 * MAX_LEFT):
        look(100 + number, f"client {number}", 100 + number)
    left = histories.left()
    assert len(left) == MAX_LEFT
    assert left[-1].client == f"client {2 * MAX_LEFT - 1}"
    large = look(1_000, "large", 200, b"[[%s]]" % (b"1" * (summary_history.MAX_LEFT_BYTES + 1)))
    assert large not in [kept.summary for kept in histories.left()]
    histories.forget_some(100 + 2 * MAX_LEFT + 3_601)
    assert not histories.left()


def test_history_that_never_had_a_value_is_not_kept() -> None:
    histories = Histories()
    histories.enter(Summary("no_such_table"))
    histories.leave(Summary("no_such_table"), "one", 0)
    assert not histories.left()


def test_row_counts_go_on_without_viewers_as_long_as_their_tables_are_there() -> None:
    histories = Histories()
    (users,) = histories.row_counts(["users_ui"])
    assert histories.enter(Summary("users_ui", sort=parse_order("-count"), limit=3)) is users.history
    histories.leave(Summary("users_ui"), "one", 0)
    users.history.add(0, 1, b"[[1]]")
    histories.forget_some(10_000)
    assert histories.row_counts(["users_ui"]) == [users]
    assert histories.row_counts([]) == []
    histories.forget_some(10_000)
    assert not histories.left()


def test_equal_values_of_different_types_have_different_histories() -> None:
    histories = Histories()
    first, second = (
        Summary("users_ui", where=parse_terms([{"column": "age", "op": "=", "value": value}])) for value in (1, True)
    )
    assert histories.enter(first) is not histories.enter(second)


def test_summary_whose_table_is_gone_is_forgotten_and_the_others_go_on(filling: Filling, url: str) -> None:
    asked(url, table="users_ui@1", by="age")
    asked(url, table="users_ui", by="age")
    filling.swap(users=[USER_1])
    filling.drop(1)
    wait_until(lambda: swaps(url, table="users_ui", by="age") == [2])
    with Socket(url) as socket:
        socket.send(type="summary", id="s", table="users_ui@1", by="age", history=60)
        assert socket.receive().type == "error"


def test_sample_that_was_read_before_somebody_looked_is_not_added() -> None:
    histories = Histories()
    summary = Summary("users_ui", parse_by("age"))
    histories.enter(summary).add(0, 2, b"[]")
    histories.leave(summary, "one", 10.0)
    (kept,) = histories.left()
    summaries.add_sample(kept, 9.0, Position(1, 7), b"[[1]]")
    assert kept.position is None
    summaries.add_sample(kept, 11.0, Position(2, 8), b"[[1]]")
    assert kept.position == Position(2, 8)
    assert json.loads(kept.history.body(60, 0, None)[0])["swaps"] == []
