"""Live differences: sent when they change, and through candidates that come and go."""

from __future__ import annotations

import pytest

from filled_store import USER_1, USER_2, Filling
from live_socket import Socket
from turnout_client.messages import DifferenceNow, Problem

USER_3 = {**USER_2, "userId": "u3", "name": "Cy"}


@pytest.fixture
def filling(filling: Filling) -> Filling:
    """Generation 1 is published with two users, and generation 2 is a candidate with the first of them."""
    filling.generation()
    filling.batch(users=[USER_1])
    candidate(filling, 2)
    return filling


def candidate(filling: Filling, number: int | None) -> None:
    with filling.database.write() as cursor:
        cursor.execute("UPDATE turnout.published SET candidate = ?", [number])


def difference(socket: Socket) -> DifferenceNow:
    message = socket.receive()
    assert isinstance(message, DifferenceNow), message
    return message


def problem(socket: Socket) -> str:
    message = socket.receive()
    assert isinstance(message, Problem), message
    return message.error.code


def test_difference_is_sent_at_once_and_again_when_either_table_changed(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="difference", id="d", table="users_ui", limit=10)
        first = difference(socket)
        assert (first.from_.generation, first.to.generation) == (1, 2)
        assert first.counts.model_dump() == {"added": 0, "removed": 1, "changed": 0, "same": 1}
        filling.batch(users=[USER_3])
        second = difference(socket)
        assert (second.to.version, second.counts.added, second.total) == (2, 1, 2)
        assert [row.change for row in second.rows] == ["removed", "added"]
        socket.send(type="difference", id="added", table="users_ui", change="added")
        added = difference(socket)
        assert ([row.change for row in added.rows], added.total, added.counts) == (["added"], 1, second.counts)


def test_difference_of_a_filter_says_nothing_while_nobody_would_see_a_change(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="difference", id="d", table="users_ui", where="userId = u2")
        assert difference(socket).total == 1
        filling.batch(users=[USER_3])
        filling.batch(users=[USER_2])
        message = difference(socket)
        assert (message.counts.same, message.total, message.to.version) == (1, 0, 3)


def test_difference_goes_on_with_another_candidate_and_ends_without_one(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(type="difference", id="d", table="users_ui")
        assert difference(socket).to.generation == 2
        filling.generation()
        filling.batch(users=[USER_1, USER_2, USER_3])
        candidate(filling, 3)
        replaced = difference(socket)
        assert (replaced.to.generation, replaced.counts.added, replaced.counts.same) == (3, 1, 2)
        candidate(filling, None)
        assert problem(socket) == "no_candidate"
        socket.send(type="difference", id="d", table="users_ui")
        assert problem(socket) == "no_candidate"


def test_difference_of_named_generations_outlives_a_swap_and_ends_with_one_of_them(filling: Filling, url: str) -> None:
    with Socket(url) as socket:
        socket.send(**{"type": "difference", "id": "d", "table": "users_ui", "from": 1, "to": 2})
        assert difference(socket).counts.removed == 1
        candidate(filling, None)
        filling.publish()
        filling.batch(users=[USER_2])
        assert difference(socket).counts.same == 2
        filling.drop(1)
        assert problem(socket) == "unknown_generation"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"table": "nothing"}, "unknown_table"),
        ({"table": "users_ui", "where": "nothing = 1"}, "bad_where"),
        ({"table": "users_ui", "where": "nonsense"}, "bad_where"),
        ({"table": "users_ui", "sort": "nothing"}, "bad_sort"),
        ({"table": "users_ui", "to": 1}, "bad_parameter"),
        ({"table": "users_ui", "to": 9}, "unknown_generation"),
        ({"table": "users_ui", "limit": 1_001}, "bad_message"),
        ({"table": "users_ui", "from": -1}, "bad_message"),
        ({"table": "users_ui", "change": "same"}, "bad_message"),
    ],
)
def test_wrong_difference_is_an_error_of_its_subscription(url: str, asked: dict[str, object], code: str) -> None:
    with Socket(url) as socket:
        socket.send(type="difference", id="d", **asked)
        assert problem(socket) == code
