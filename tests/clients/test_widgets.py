"""Live tables and charts of notebooks, against the real server: what they show, through swaps and restarts.

How a browser draws them: `browser/test_widget.py`. A real kernel: `test_example_notebooks.py`.
"""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import urlsplit

import ipywidgets  # type: ignore[import-untyped]
import pytest

from filled_store import GOLD_1, USER_1, USER_2, Filling
from http_server import application, serving
from turnout.errors import TurnoutError
from turnout.plan.joins import Join
from turnout.testing import wait_until
from turnout_client import Client, State, connect
from turnout_client.widgets import LiveWidget

USER_3 = {"userId": "u3", "name": "<b>Cy</b>", "email": "x" * 1_000, "age": 9007199254740993}
SILVER_2 = {"userId": "u2", "accountType": "silver", "balance": -2.0}


def wait_for_rows(widget: LiveWidget[Any], *rows: list[str | None]) -> None:
    wait_until(lambda: widget._shown.get("rows") == list(rows), what=f"{rows}")


def wait_for_state(widget: LiveWidget[Any], state: str) -> None:
    wait_until(lambda: widget._state["state"] == state, what=state)


def has_ended(widget: LiveWidget[Any], client: Client) -> bool:
    """Whether it left neither a subscription nor a thread behind."""
    callbacks = widget.live._callbacks
    assert callbacks is not None
    return widget.live.state is State.CLOSED and not callbacks.is_alive() and client._live._session is None


def test_widget_shows_the_window_and_what_changes_in_it(filling: Filling, client: Client) -> None:
    widget = client.table("final_ui").widget(columns="name,balance", where="age > 30", sort="name", limit=2)
    wait_for_rows(widget, ["Ada", "10.5"], ["Ben", None])
    facts = ("table", "generation", "total", "offset", "one")
    assert [widget._shown[name] for name in facts] == ["final_ui", 1, 2, 0, "row"]
    assert [column["name"] for column in widget._shown["columns"]] == ["name", "balance"]
    ada = widget._shown["ids"][0]
    filling.batch(users=[{**USER_1, "userId": "u4", "name": "Cy"}], accounts=[{**GOLD_1, "balance": 11.0}])
    wait_for_rows(widget, ["Ada", "11.0"], ["Ben", None])
    assert (widget._shown["total"], widget._shown["ids"][0]) == (3, ada)
    assert widget._state == {"state": "live", "reason": ""}


def test_widget_follows_a_swap(filling: Filling, client: Client) -> None:
    widget = client.table("final_ui").widget(columns="name,accountType", sort="name")
    wait_for_rows(widget, ["Ada", "gold"], ["Ben", None])
    filling.swap(join=Join.INNER, users=[USER_1, USER_2], accounts=[SILVER_2])
    wait_for_rows(widget, ["Ben", "silver"])
    assert widget._shown["generation"] == 2


def test_widget_keeps_its_rows_while_the_server_is_away_and_goes_on_after(filling: Filling) -> None:
    app = application(filling.database)
    with serving(app) as url:
        client = connect(url)
        table, chart = client.table("users_ui").widget(columns="name", sort="name"), client.table("users_ui").chart()
        wait_for_rows(table, ["Ada"], ["Ben"])
        wait_for_rows(chart, ["2"])
    wait_for_state(table, "away")
    wait_for_state(chart, "away")
    assert table._state["reason"]
    assert table._shown["rows"] == [["Ada"], ["Ben"]]
    filling.batch(users=[{**USER_1, "userId": "u3", "name": "Cy"}])
    with serving(application(filling.database), port=urlsplit(url).port or 0), client:
        wait_for_rows(table, ["Ada"], ["Ben"], ["Cy"])
        wait_for_rows(chart, ["3"])
        wait_for_state(table, "live")


def test_widget_shows_texts_whole_numbers_exactly_and_long_texts_cut(filling: Filling, client: Client) -> None:
    filling.batch(users=[USER_3])
    widget = client.table("users_ui").widget(columns="name,email,age", where="userId = u3")
    wait_for_rows(widget, ["<b>Cy</b>", "x" * 197 + "...", "9007199254740993"])


def test_widget_moves_by_its_subscription(client: Client) -> None:
    widget = client.table("users_ui").widget(columns="name", sort="name", limit=1)
    wait_for_rows(widget, ["Ada"])
    widget.live.move(sort="-name")
    wait_for_rows(widget, ["Ben"])


def test_widget_that_is_closed_leaves_nothing_behind(filling: Filling, client: Client) -> None:
    known = len(ipywidgets.widget._instances)
    widgets: list[LiveWidget[Any]] = [client.table("users_ui").widget(), client.table("users_ui").chart()]
    for widget in widgets:
        widget.live.wait()
    assert len(ipywidgets.widget._instances) > known
    for widget in widgets:
        widget.close()
        widget.close()
    assert all(has_ended(widget, client) for widget in widgets)
    assert not {id(widget) for widget in ipywidgets.widget._instances.values()} & {id(widget) for widget in widgets}


def test_client_that_is_closed_ends_its_widgets(client: Client) -> None:
    widget = client.table("users_ui").widget(columns="name", sort="name")
    wait_for_rows(widget, ["Ada"], ["Ben"])
    client.close()
    assert has_ended(widget, client)
    assert (widget._state, widget._shown["rows"]) == ({"state": "closed", "reason": ""}, [["Ada"], ["Ben"]])
    widget._handle_custom_msg({"views": 1}, [])
    assert has_ended(widget, client), "a view that comes later does not start it again"


def test_widget_without_a_view_follows_nothing_until_it_is_shown_again(filling: Filling, client: Client) -> None:
    widget = client.table("users_ui").widget(columns="name", sort="name")
    for views in (1, 1, -1):
        widget._handle_custom_msg({"views": views}, [])
    wait_for_rows(widget, ["Ada"], ["Ben"])
    assert widget.live.state is State.LIVE
    widget._handle_custom_msg({"views": -1}, [])
    assert has_ended(widget, client)
    assert widget._state["state"] == "paused"
    filling.batch(users=[{**USER_1, "userId": "u3", "name": "Cy"}])
    widget._handle_custom_msg({"views": 1}, [])
    wait_for_rows(widget, ["Ada"], ["Ben"], ["Cy"])
    wait_for_state(widget, "live")


def test_chart_has_a_row_for_each_group_and_follows_changes_and_swaps(filling: Filling, client: Client) -> None:
    chart = client.table("final_ui").chart(by="accountType", values="count,sum(balance)", sort="accountType")
    wait_for_rows(chart, ["gold", "1", "10.5"], [None, "1", None])
    assert (chart._shown["by"], chart._shown["total"], chart._shown["one"]) == (1, 2, "group")
    assert len(set(chart._shown["ids"])) == 2
    filling.batch(accounts=[SILVER_2])
    wait_for_rows(chart, ["gold", "1", "10.5"], ["silver", "1", "-2.0"])
    filling.swap(join=Join.INNER, users=[USER_1], accounts=[GOLD_1])
    wait_for_rows(chart, ["gold", "1", "10.5"])
    assert chart._shown["generation"] == 2


def test_chart_with_history_has_the_values_of_its_groups_at_each_point(filling: Filling, client: Client) -> None:
    chart = client.table("final_ui").chart(by="accountType", sort="accountType", history=60)
    wait_for_rows(chart, ["gold", "1"], [None, "1"])
    assert [point["groups"] for point in chart._shown["points"]] == [[["1"], ["1"]]]
    filling.swap(users=[USER_1, USER_2], accounts=[GOLD_1, SILVER_2])
    wait_for_rows(chart, ["gold", "1"], ["silver", "1"])
    assert chart._shown["points"][-1]["groups"] == [["1"], ["1"]]
    # One point holds a second: the first may have been replaced.
    assert chart._shown["points"][0]["groups"] in ([["1"], None], [["1"], ["1"]])
    assert [swap["generation"] for swap in chart._shown["swaps"]] == [2]


def test_option_that_is_wrong_is_refused_at_once_and_leaves_no_widget(client: Client) -> None:
    known = set(ipywidgets.widget._instances)
    with pytest.raises(TurnoutError, match="limit"):
        client.table("users_ui").widget(limit=-1)
    with pytest.raises(TurnoutError, match="history"):
        client.table("users_ui").chart(history=1_000_000)
    assert set(ipywidgets.widget._instances) == known


def test_widget_that_the_server_refuses_says_why(client: Client) -> None:
    widget = client.table("user_ui").widget()
    wait_for_state(widget, "refused")
    assert "user_ui" in widget._state["reason"]
    assert "users_ui" in widget._state["reason"], "the hint is there"


def test_widget_without_its_package_is_told_with_its_remedy(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    for make in (client.table("users_ui").widget, client.table("users_ui").chart):
        with pytest.raises(TurnoutError) as raised:
            make()
        assert str(raised.value).startswith("anywidget is not installed; pip install 'turnout-client[notebook]'")
        assert raised.value.code == "missing_package"
        assert "\n" not in str(raised.value)
