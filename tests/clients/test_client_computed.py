"""Summaries and SQL by the Python client, against the real server: once, live, through swaps and lost connections."""

from __future__ import annotations

import pytest

from filled_store import GOLD_1, USER_1, USER_2, Filling
from http_server import SECONDS
from turnout.errors import TurnoutError
from turnout.plan.joins import Join
from turnout.testing import wait_until
from turnout_client import Client, State

SILVER_2 = {"userId": "u2", "accountType": "silver", "balance": 2.0}


def test_summary_of_one_moment(client: Client) -> None:
    found = client.table("final_ui").summary(by="accountType", values=["count", "sum(balance)"], sort="accountType")
    assert (found.table, found.generation, found.by, found.total) == ("final_ui", 1, ("accountType",), 2)
    assert found.groups == (
        {"accountType": "gold", "count": 1, "sum(balance)": 10.5},
        {"accountType": None, "count": 1, "sum(balance)": None},
    )
    assert found.to_arrow().to_pydict() == {
        "accountType": ["gold", None],
        "count": [1, 1],
        "sum(balance)": [10.5, None],
    }
    assert "gold" in found._repr_html_()
    where = [{"column": "name", "op": "=", "value": "Ada"}]
    assert client.table("final_ui").summary(where=where).groups == ({"count": 1},)


def test_difference_of_one_moment(filling: Filling, client: Client) -> None:
    filling.generation()
    filling.batch(users=[{**USER_1, "age": 37}], accounts=[GOLD_1])
    table = client.table("final_ui")
    found = table.difference(to_generation=2, sort="-age")
    assert found.from_ == {"generation": 1, "version": 1, "lag": None}
    assert (found.to["generation"], found.to["version"], found.total) == (2, 1, 2)
    assert [row["change"] for row in table.difference(to_generation=2, change="changed").rows] == ["changed"]
    assert found.counts == {"added": 0, "removed": 1, "changed": 1, "same": 0}
    assert [(row["change"], (row["from"] or {}).get("age")) for row in found.rows] == [("removed", 52), ("changed", 36)]
    assert found.to_arrow().select(["change", "from.age", "to.age"]).to_pydict() == {
        "change": ["removed", "changed"],
        "from.age": [52, 36],
        "to.age": [None, 37],
    }
    assert repr(found) == (
        "<Difference of final_ui, generation 1 to 2: 0 added, 1 removed, 1 changed, 0 same; changed columns: age>"
    )
    assert found.as_json()["columnsOnlyIn"] == {"from": [], "to": []}
    back = table.difference(2, 1, where="userId = u2", limit=1)
    assert (back.counts["added"], back.counts["changed"]) == (1, 0)
    with pytest.raises(TurnoutError, match="there is no candidate"):
        table.difference()


def test_live_difference_comes_again_when_it_changed_and_says_when_a_generation_is_gone(
    filling: Filling, client: Client
) -> None:
    filling.generation()
    filling.batch(users=[USER_1])
    with client.table("users_ui").live_difference(1, 2, change="removed") as differences:
        assert differences.get(SECONDS).counts["removed"] == 1
        filling.batch(users=[USER_2])
        assert differences.get(SECONDS).counts["same"] == 2
        filling.drop(2)
        with pytest.raises(TurnoutError) as raised:
            differences.get(SECONDS)
    assert (raised.value.code, differences.state) == ("unknown_generation", State.REFUSED)


def test_live_summary_comes_again_when_it_changes_and_follows_swaps(filling: Filling, client: Client) -> None:
    with client.table("final_ui").live_summary(by="accountType", sort="accountType") as summaries:
        assert summaries.get(SECONDS).groups == ({"accountType": "gold", "count": 1}, {"accountType": None, "count": 1})
        filling.batch(accounts=[SILVER_2])
        assert [group["accountType"] for group in summaries.get(SECONDS).groups] == ["gold", "silver"]
        filling.swap(join=Join.INNER, users=[USER_1, USER_2], accounts=[GOLD_1])
        after = summaries.get(SECONDS)
        assert (after.generation, after.swapped, after.groups) == (2, True, ({"accountType": "gold", "count": 1},))
        assert summaries.latest is not None
        assert summaries.latest.groups == after.groups


def test_live_summary_with_history_keeps_its_points(filling: Filling, client: Client) -> None:
    with client.table("users_ui").live_summary(history=60) as summaries:
        first = summaries.get(SECONDS)
        assert [point.groups for point in first.history] == [({"count": 2},)]
        filling.swap(users=[USER_1])
        second = summaries.get(SECONDS)
        assert second.history[-1].groups == ({"count": 1},)
        assert [swap.generation for swap in second.swaps] == [2]


def test_live_summary_goes_on_after_the_connection_was_lost(filling: Filling, client: Client) -> None:
    with client.table("users_ui").live_summary() as summaries:
        assert summaries.get(SECONDS).groups == ({"count": 2},)
        session = client._live._session
        assert session is not None
        assert session._socket is not None
        broken = session._socket
        session.soon(broken.transport.abort)
        wait_until(lambda: session._socket is not broken, what="the loss to be noticed")
        filling.batch(users=[{**USER_1, "userId": "u3"}])
        for found in summaries.events(SECONDS):
            if found.groups == ({"count": 3},):
                break
        assert summaries.state is State.LIVE


def test_live_summary_that_is_wrong_is_refused(client: Client) -> None:
    with client.table("users_ui").live_summary(by="nothing") as summaries, pytest.raises(TurnoutError) as caught:
        summaries.get(SECONDS)
    assert caught.value.code == "bad_by"
    with pytest.raises(TurnoutError, match="history"):
        client.table("users_ui").live_summary(history=1_000_000)
    with pytest.raises(TurnoutError, match="unknown option"):
        client.table("users_ui").live_summary(offset=1)  # type: ignore[call-arg]


def test_sql_of_one_moment(client: Client) -> None:
    found = client.sql("select name, age from users_ui order by age", limit=1)
    assert (found.rows, found.complete, found.generation) == (({"name": "Ada", "age": 36},), False, 1)
    assert found.to_arrow().to_pydict() == {"name": ["Ada"], "age": [36]}
    assert found.as_json()["complete"] is False
    assert client.sql_file("select 1 as a", "csv") == b'"a"\n1\n'
    with pytest.raises(TurnoutError) as caught:
        client.sql("drop view users_ui")
    assert (caught.value.code, caught.value.status) == ("sql_refused", 422)
    with pytest.raises(TurnoutError) as caught:
        client.sql_file("from nothing", "csv")
    assert caught.value.code == "sql_refused"


def test_live_sql_comes_again_when_its_tables_change(filling: Filling, client: Client) -> None:
    with client.live_sql("select count(*) as n from users_ui") as answers:
        assert answers.get(SECONDS).rows == ({"n": 2},)
        filling.batch(users=[{**USER_1, "userId": "u3"}])
        assert answers.get(SECONDS).rows == ({"n": 3},)
    with client.live_sql("pragma version") as refused, pytest.raises(TurnoutError) as caught:
        refused.get(SECONDS)
    assert caught.value.code == "sql_refused"
