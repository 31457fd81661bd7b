"""Viewers of a table whose columns change, or which is gone: each kind of subscription, and the Python client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filled_store import GOLD_1, USER_1, USER_2, Filling
from http_server import SECONDS, application, serving
from live_socket import Socket
from turnout import connect
from turnout.config import Settings, parse
from turnout.store.database import Database
from turnout.testing import wait_until
from turnout_client import State
from turnout_client.messages import Problem, ServerMessage

PHONED = [user | {"phone": f"+{user['userId']}"} for user in (USER_1, USER_2)]
BEFORE = ["userId", "name", "email", "age"]
AFTER = ["userId", "name", "age", "phone"]


def settings(*, changed: bool, accounts: bool = True) -> Settings:
    """The default tables, or those after an apply: a column came, one is gone, and perhaps a source."""
    kinds = dict.fromkeys(AFTER if changed else BEFORE, "string") | {"age": "int64"}
    users = {"topic": "users", "table": "users_ui", "key": "userId", "columns": kinds}
    columns = {"userId": "string", "accountType": "string", "balance": "double"}
    other = {"accounts": {"topic": "accounts", "table": "accounts_ui", "key": "userId", "columns": columns}}
    views = {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}}
    document = {"sources": {"users": users, **(other if accounts else {})}, "views": views if accounts else {}}
    return parse(document, Path(), {})


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    database = Database.open(tmp_path)
    made = Filling(database, settings(changed=False))
    made.swap(users=[USER_1, USER_2], accounts=[GOLD_1])
    yield made
    database.close()


def apply(filling: Filling, *, accounts: bool = True) -> None:
    filling.settings = settings(changed=True, accounts=accounts)
    filling.swap(users=PHONED, accounts=[GOLD_1] if accounts else [])


def first_of(socket: Socket, *ids: str) -> dict[str, Any]:
    """The next message of each subscription."""
    found: dict[str, Any] = {}
    while set(found) != set(ids):
        message: ServerMessage = socket.receive()
        identity = getattr(message, "id", None)
        assert identity in ids and identity not in found, message
        found[identity] = message
    return found


def names(message: Any) -> list[str]:
    return [column.name for column in message.columns]


def test_each_kind_of_subscription_gets_the_new_columns_in_one_message(filling: Filling) -> None:
    asked: dict[str, dict[str, Any]] = {
        "window": {"type": "window", "table": "users_ui", "sort": "-age", "where": "age > 1"},
        "far": {"type": "window", "table": "users_ui", "offset": 3_000},
        "some": {"type": "window", "table": "users_ui", "columns": ["name", "age"]},
        "changes": {"type": "changes", "table": "final_ui"},
        "summary": {"type": "summary", "table": "users_ui", "by": "name", "values": "count,max(age)", "history": 60},
        "sql": {"type": "sql", "sql": "select * from users_ui order by age", "live": True},
        "quality": {"type": "changes", "table": "join_quality"},
    }
    with serving(application(filling.database)) as url, Socket(url) as socket:
        for identity, request in asked.items():
            socket.send(id=identity, **request)
        first = first_of(socket, *asked)
        assert names(first["window"]) == names(first["sql"]) == BEFORE
        apply(filling)
        then = first_of(socket, *asked)
        assert {message.generation for message in then.values()} == {2}
        assert names(then["window"]) == names(then["sql"]) == AFTER and names(then["some"]) == ["name", "age"]
        assert then["window"].rows == [["u2", "Ben", 52, "+u2"], ["u1", "Ada", 36, "+u1"]]
        assert names(then["changes"]) == [*AFTER, "accountType", "balance"] and len(then["changes"].rows) == 2
        assert then["changes"].reason == "swap" and then["summary"].groups == [["Ada", 1, 36], ["Ben", 1, 52]]
        # And on from there.
        filling.batch(users=[{"userId": "u3", "name": "Cy", "age": 99, "phone": None}])
        after = first_of(socket, *(identity for identity in asked if identity != "quality"), "quality")
        assert after["window"].rows[0] == ["u3", "Cy", 99, None] and after["changes"].insert.rows == [
            ["u3", "Cy", 99, None, None, None]
        ]


def test_subscription_that_names_a_column_which_is_gone_ends_alone(filling: Filling) -> None:
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "columns": ("bad_columns", {"type": "window", "table": "users_ui", "columns": ["email"]}),
        "where": ("bad_where", {"type": "window", "table": "users_ui", "where": "email is null"}),
        "sort": ("bad_sort", {"type": "window", "table": "users_ui", "sort": "-email"}),
        "changes": ("bad_columns", {"type": "changes", "table": "final_ui", "columns": ["userId", "email"]}),
        "by": ("bad_by", {"type": "summary", "table": "users_ui", "by": "email"}),
        "values": ("bad_values", {"type": "summary", "table": "users_ui", "values": "max(email)"}),
        "sql": ("sql_refused", {"type": "sql", "sql": "select email from users_ui", "live": True}),
    }
    with serving(application(filling.database)) as url, Socket(url) as socket:
        for identity, (_, request) in asked.items():
            socket.send(id=identity, **request)
        socket.send(id="whole", type="window", table="users_ui")
        first_of(socket, *asked, "whole")
        apply(filling)
        then = first_of(socket, *asked, "whole")
        assert names(then.pop("whole")) == AFTER
        assert {identity: message.error.code for identity, message in then.items()} == {
            identity: code for identity, (code, _) in asked.items()
        }
        assert all("email" in message.error.message for message in then.values())
        # The socket lives, and the same id can ask again.
        socket.send(id="sort", type="window", table="users_ui", sort="phone")
        assert names(first_of(socket, "sort")["sort"]) == AFTER


def test_subscription_of_a_table_that_is_gone_ends_with_that_reason(filling: Filling) -> None:
    asked: dict[str, dict[str, Any]] = {
        "window": {"type": "window", "table": "accounts_ui"},
        "changes": {"type": "changes", "table": "final_ui"},
        "summary": {"type": "summary", "table": "final_ui"},
        "sql": {"type": "sql", "sql": "select * from accounts_ui, users_ui", "live": True},
    }
    with serving(application(filling.database)) as url, Socket(url) as socket:
        for identity, request in asked.items():
            socket.send(id=identity, **request)
        first_of(socket, *asked)
        apply(filling, accounts=False)
        then = first_of(socket, *asked)
        assert all(isinstance(message, Problem) and message.error.code == "table_gone" for message in then.values())
        assert "users_ui" in then["window"].error.hint and "accounts_ui" in then["sql"].error.message
        # One that never was is another matter.
        socket.send(id="new", type="window", table="accounts_ui")
        assert first_of(socket, "new")["new"].error.code == "unknown_table"


def test_python_client_follows_other_columns_and_says_when_a_table_is_gone(filling: Filling) -> None:
    with serving(application(filling.database)) as url, connect(url) as client:
        window, changes = client.table("users_ui").window(sort="age"), client.table("final_ui").changes()
        summary = client.table("users_ui").live_summary(by="name")
        sql = client.live_sql("select * from users_ui")
        for subscription in (window, changes, summary, sql):
            subscription.get(SECONDS)
        apply(filling)
        event = window.get(SECONDS)
        assert event.swapped and [column["name"] for column in event.columns] == AFTER
        assert event.to_arrow().column_names == AFTER and event.rows[0]["phone"] == "+u1"
        change = changes.get(SECONDS)
        assert (
            change.snapshot
            and change.swapped
            and list(next(iter(change.inserted.values())))
            == [
                *AFTER,
                "accountType",
                "balance",
            ]
        )
        assert changes.mirror.to_arrow().column_names == [*AFTER, "accountType", "balance"]
        assert sql.get(SECONDS).to_arrow().column_names == AFTER and summary.get(SECONDS).generation == 2
        assert client.table("users_ui").columns == tuple(AFTER)
        apply(filling, accounts=False)
        wait_until(lambda: changes.state is State.REFUSED, what="the end of the table")
        assert changes.error is not None and changes.error.code == "table_gone"
        assert window.get(SECONDS).generation == 3
