"""The ledger: each message has one outcome, and each generation its own number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnout.plan.joins import Join
from turnout.plan.plan import Plan, Start
from turnout.store.database import Database
from turnout.store.ledger import GenerationRecord, Ledger, MessageRecord, SwapRecord

PLAN = Plan({"users": "u", "accounts": "a"}, {"final_ui": Join.LEFT}, Start("earliest"))
MOMENT = 1_767_225_600_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database.open(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def ledger(database: Database) -> Ledger:
    return Ledger(database, ["users", "accounts"])


def rows(database: Database, sql: str) -> list[tuple[Any, ...]]:
    with database.read() as cursor:
        return cursor.execute(sql).fetchall()


def numbers(kept: list[MessageRecord | None]) -> list[int | None]:
    return [one.number if one is not None else None for one in kept]


def settle(database: Database, ledger: Ledger, message: int, outcome: str) -> None:
    with database.write() as cursor:
        ledger.settle(cursor, message, f"r{message}", outcome, "why")


def test_ledger_keeps_a_record_of_the_topic_once(ledger: Ledger) -> None:
    one, two = MessageRecord("{}", "topic", 0, 5, MOMENT), MessageRecord("{}", "topic", 0, 6, MOMENT)
    assert numbers(ledger.add_messages([one, two])) == [1, 2]
    assert ledger.add_messages([one, two]) == [None, None]
    assert ledger.control_positions() == {0: 7}


def test_ledger_takes_the_same_place_of_a_topic_made_anew_as_another_record(ledger: Ledger) -> None:
    assert numbers(ledger.add_messages([MessageRecord("{}", "topic", 0, 0, MOMENT)])) == [1]
    assert numbers(ledger.add_messages([MessageRecord("{}", "topic", 0, 0, MOMENT + 1)])) == [2]


def test_ledger_keeps_equal_messages_of_a_surface_apart(ledger: Ledger) -> None:
    assert numbers(ledger.add_messages([MessageRecord("{}", "http"), MessageRecord("{}", "http")])) == [1, 2]
    assert ledger.control_positions() == {}


def test_ledger_gives_a_message_one_outcome(database: Database, ledger: Ledger) -> None:
    ledger.add_messages([MessageRecord("a", "http"), MessageRecord("b", "topic", 0, 0, MOMENT)])
    settle(database, ledger, 1, "applied")
    assert ledger.open_messages() == [MessageRecord("b", "topic", 0, 0, MOMENT, number=2)]
    with pytest.raises(AssertionError, match="has an outcome already"):
        settle(database, ledger, 1, "failed")
    assert rows(database, "SELECT outcome FROM control_raw ORDER BY _id") == [("applied",), (None,)]


def test_ledger_hands_out_outcomes_until_they_are_acknowledged(database: Database, ledger: Ledger) -> None:
    ledger.add_messages([MessageRecord("a", "http"), MessageRecord("b", "http")])
    settle(database, ledger, 1, "applied")
    [(number, payload)] = ledger.unacknowledged()
    assert (number, payload["requestId"], payload["outcome"]) == (1, "r1", "applied")
    ledger.acknowledged([1])
    assert ledger.unacknowledged() == []


def test_ledger_changes_the_status_row_in_place(database: Database, ledger: Ledger) -> None:
    ledger.set_status(**ledger.plan_values(PLAN), generation=3, state="live")
    ledger.set_status(lag=7)
    status = ledger.status()
    assert (status["usersTopic"], status["accountsTopic"], status["joinType"]) == ("u", "a", "left")
    assert (status["generation"], status["state"], status["lag"]) == (3, "live", 7)
    assert rows(database, "SELECT count(*) FROM orchestrator_status") == [(1,)]


def test_ledger_makes_the_status_row_anew_for_other_sources(database: Database, ledger: Ledger) -> None:
    ledger.set_status(generation=3)
    assert Ledger(database, ["users", "accounts"]).status()["generation"] == 3
    other = Ledger(database, ["users", "orders"]).status()
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
    swap = SwapRecord(
        generation=1,
        before="",
        after="after",
        requester="http",
        request_id=None,
        control_offset=None,
        outcome="applied",
    )
    ledger.add_messages([MessageRecord("a", "http")])
    with pytest.raises(RuntimeError), database.write() as cursor:
        ledger.add_swap(cursor, swap)
        ledger.settle(cursor, 1, None, "applied", "")
        raise RuntimeError
    assert rows(database, "FROM swaps") == []
    assert [pending.number for pending in ledger.open_messages()] == [1]


def test_ledger_remembers_the_plan_before(database: Database, ledger: Ledger) -> None:
    assert ledger.published() == (0, None)
    with database.write() as cursor:
        ledger.set_previous(cursor, PLAN)
    assert ledger.published() == (0, PLAN)
