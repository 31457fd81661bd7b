"""The ledger: each message has one outcome, each generation its own number, and the log its limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnout.plan.joins import Join
from turnout.plan.plan import Plan, Start
from turnout.store.database import Database
from turnout.store.ledger import Arrival, GenerationRecord, Ledger, Pending, Swap

PLAN = Plan({"users": "u", "accounts": "a"}, {"final_ui": Join.LEFT}, Start("earliest"))
MOMENT = 1_767_225_600_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def ledger(database: Database) -> Ledger:
    return Ledger(database, ["users", "accounts"], log_rows=10)


def rows(database: Database, sql: str) -> list[tuple[Any, ...]]:
    with database.read() as cursor:
        return cursor.execute(sql).fetchall()


def numbers(kept: list[Pending | None]) -> list[int | None]:
    return [one.number if one is not None else None for one in kept]


def settle(database: Database, ledger: Ledger, message: int, outcome: str) -> None:
    with database.write() as cursor:
        ledger.settle(cursor, message, f"r{message}", outcome, "why")


def test_ledger_keeps_a_record_of_the_topic_once(ledger: Ledger) -> None:
    one, two = Arrival("{}", "topic", 0, 5, MOMENT), Arrival("{}", "topic", 0, 6, MOMENT)
    assert numbers(ledger.arrive([one, two])) == [1, 2]
    assert ledger.arrive([one, two]) == [None, None]
    assert ledger.control_positions() == {0: 7}


def test_ledger_takes_the_same_place_of_a_topic_made_anew_as_another_record(ledger: Ledger) -> None:
    assert numbers(ledger.arrive([Arrival("{}", "topic", 0, 0, MOMENT)])) == [1]
    assert numbers(ledger.arrive([Arrival("{}", "topic", 0, 0, MOMENT + 1)])) == [2]


def test_ledger_keeps_equal_messages_of_a_surface_apart(ledger: Ledger) -> None:
    assert numbers(ledger.arrive([Arrival("{}", "http"), Arrival("{}", "http")])) == [1, 2]
    assert ledger.control_positions() == {}


def test_ledger_gives_a_message_one_outcome(database: Database, ledger: Ledger) -> None:
    ledger.arrive([Arrival("a", "http"), Arrival("b", "topic", 0, 0, MOMENT)])
    settle(database, ledger, 1, "applied")
    assert ledger.pending() == [Pending(2, "b", "topic", 0, None)]
    with pytest.raises(AssertionError, match="has an outcome already"):
        settle(database, ledger, 1, "failed")
    assert rows(database, "SELECT outcome FROM control_raw ORDER BY _id") == [("applied",), (None,)]


def test_ledger_hands_out_outcomes_until_they_are_acknowledged(database: Database, ledger: Ledger) -> None:
    ledger.arrive([Arrival("a", "http"), Arrival("b", "http")])
    settle(database, ledger, 1, "applied")
    [(number, payload)] = ledger.unacknowledged()
    assert (number, payload["requestId"], payload["outcome"]) == (1, "r1", "applied")
    ledger.acknowledged([1])
    assert ledger.unacknowledged() == []


def test_ledger_keeps_the_newest_log_lines(database: Database, ledger: Ledger) -> None:
    for number in range(201):
        ledger.log("INFO", f"line {number}")
    kept = rows(database, "SELECT msg FROM orchestrator_logs ORDER BY _id")
    assert kept == [(f"line {number}",) for number in range(191, 201)]


def test_ledger_changes_the_status_row_in_place(database: Database, ledger: Ledger) -> None:
    ledger.set_status(**ledger.plan_values(PLAN), generation=3, state="live")
    ledger.set_status(lag=7)
    status = ledger.status()
    assert (status["usersTopic"], status["accountsTopic"], status["joinType"]) == ("u", "a", "left")
    assert (status["generation"], status["state"], status["lag"]) == (3, "live", 7)
    assert rows(database, "SELECT count(*) FROM orchestrator_status") == [(1,)]


def test_ledger_makes_the_status_row_anew_for_other_sources(database: Database, ledger: Ledger) -> None:
    ledger.set_status(generation=3)
    assert Ledger(database, ["users", "accounts"], 10).status()["generation"] == 3
    other = Ledger(database, ["users", "orders"], 10).status()
    assert "ordersTopic" in other and "accountsTopic" not in other


def test_ledger_never_gives_a_number_twice(database: Database, ledger: Ledger) -> None:
    with database.write() as cursor:
        first = ledger.next_generation(cursor)
        ledger.add_generation(cursor, GenerationRecord(first, PLAN, "layout", "{}", '{"u": {"0": 3}}'))
    assert ledger.generations()[first].plan == PLAN
    assert ledger.generations()[first].target_offsets == '{"u": {"0": 3}}'
    with database.write() as cursor:
        ledger.remove_generation(cursor, first)
        assert ledger.next_generation(cursor) == first + 1
    assert ledger.generations() == {}


def test_ledger_undoes_a_failed_transaction_whole(database: Database, ledger: Ledger) -> None:
    swap = Swap(1, "", "after", "http", None, None, "{}", 0.1, 0.2, 0.3, "applied")
    ledger.arrive([Arrival("a", "http")])
    with pytest.raises(RuntimeError), database.write() as cursor:
        ledger.add_swap(cursor, swap)
        ledger.settle(cursor, 1, None, "applied", "")
        raise RuntimeError
    assert rows(database, "FROM swaps") == []
    assert [pending.number for pending in ledger.pending()] == [1]


def test_ledger_remembers_the_plan_before(database: Database, ledger: Ledger) -> None:
    assert ledger.published() == (0, None)
    with database.write() as cursor:
        ledger.set_previous(cursor, PLAN.to_json())
    assert ledger.published() == (0, PLAN)
