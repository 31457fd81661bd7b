"""Saved views: kept by operators, read by all, bounded in size and number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from fake_orchestrator import FakeOrchestrator
from http_server import HTTP, application, serving, small_store
from turnout.config.server import Role
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app
from turnout.store.database import Database

OPS, WALL = "operator-token-0123456789", "viewer-token-0123456789"
VIEW = {"table": "final_ui", "where": "age>=30", "sort": "-age", "columns": ["name"], "chart": {"kind": "bars"}}


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with small_store(tmp_path) as opened:
        yield opened


@pytest.fixture
def url(database: Database) -> Iterator[str]:
    with serving(application(database)) as address:
        yield address


def call(method: str, url: str, name: str = "", token: str = "", **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return HTTP.request(method, f"{url}/api/saved{name and '/'}{name}", headers=headers, **more)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_view_is_kept_replaced_listed_and_removed(url: str) -> None:
    assert call("GET", url).json() == {"saved": []}
    assert call("PUT", url, "rich people", json=VIEW).json() == {"name": "rich people", **VIEW}
    call("PUT", url, "all", json={"table": "users_ui"})
    call("PUT", url, "rich people", json={**VIEW, "sort": "age"})
    plain = {"name": "all", "table": "users_ui", "where": "", "sort": "", "columns": None, "chart": None}
    assert call("GET", url).json() == {"saved": [plain, {"name": "rich people", **VIEW, "sort": "age"}]}
    assert call("GET", url, "all").json() == plain
    assert call("DELETE", url, "all").json() == {"name": "all"}
    assert code(call("GET", url, "all")) == (404, "unknown_saved")
    assert code(call("DELETE", url, "all")) == (404, "unknown_saved")
    assert [view["name"] for view in call("GET", url).json()["saved"]] == ["rich people"]


def test_name_may_have_a_slash_in_it(url: str) -> None:
    for name in ("a/b", "c%2Fd", "/e//"):
        assert call("PUT", url, name, json=VIEW).status_code == 200
    names = [view["name"] for view in call("GET", url).json()["saved"]]
    assert names == ["/e//", "a/b", "c/d"]
    for name in ("a%2Fb", "c/d", "%2Fe%2F/"):
        assert call("DELETE", url, name).status_code == 200
    assert call("GET", url).json() == {"saved": []}
    assert code(HTTP.put(f"{url}/api/saved/", json=VIEW)) == (400, "bad_parameter")


def test_filter_compares_with_a_number_of_any_size(url: str) -> None:
    view = {**VIEW, "where": [{"column": "age", "op": "<", "value": 10**30}]}
    assert call("PUT", url, "all ages", json=view).json() == {"name": "all ages", **view}
    assert call("GET", url).json() == {"saved": [{"name": "all ages", **view}]}


def test_select_is_kept_instead_of_a_table(url: str) -> None:
    view = {"table": "", "sql": "select 1", "where": "", "sort": "", "columns": None, "chart": {"kind": "bars"}}
    assert call("PUT", url, "one", json=view).json() == {"name": "one", **view}
    assert call("GET", url).json() == {"saved": [{"name": "one", **view}]}


def test_views_are_there_after_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with small_store(folder) as database, serving(application(database)) as url:
        call("PUT", url, "kept", json=VIEW)
    database = Database.open(folder)
    with serving(application(database)) as url:
        assert [view["name"] for view in call("GET", url).json()["saved"]] == ["kept"]
    database.close()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"table": 1},
        {"table": "t", "more": 1},
        {"table": "t", "columns": "a"},
        {"table": "t", "where": [{"column": "a"}]},
        {"table": "t", "chart": "bars"},
        {"sql": "select 1"},
    ],
)
def test_view_of_another_shape_is_refused(url: str, body: dict[str, Any]) -> None:
    assert code(call("PUT", url, "wrong", json=body)) == (422, "bad_body")


def test_views_are_bounded_in_size_name_and_number(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    large = {**VIEW, "chart": {"text": "x" * 20_000}}
    assert code(call("PUT", url, "large", json=large)) == (413, "message_too_large")
    assert code(call("PUT", url, "n" * 65, json=VIEW)) == (400, "bad_parameter")
    assert code(call("PUT", url, "%00", json=VIEW)) == (400, "bad_parameter")
    monkeypatch.setattr("turnout.store.saved_views.MAX_SAVED", 2)
    for name in ("a", "b", "b"):
        assert call("PUT", url, name, json=VIEW).status_code == 200
    assert code(call("PUT", url, "c", json=VIEW)) == (422, "too_many_saved")
    assert len(call("GET", url).json()["saved"]) == 2


def test_viewers_read_and_operators_keep(database: Database) -> None:
    tokens = Tokens([(Identity("ops", Role.OPERATOR), OPS), (Identity("wall", Role.VIEWER), WALL)])
    with serving(create_app(Services(database, FakeOrchestrator()), Access(tokens))) as url:
        assert code(call("PUT", url, "a", WALL, json=VIEW)) == (403, "forbidden")
        assert call("PUT", url, "a", OPS, json=VIEW).status_code == 200
        assert [view["name"] for view in call("GET", url, token=WALL).json()["saved"]] == ["a"]
        assert code(call("DELETE", url, "a", WALL)) == (403, "forbidden")
        assert code(call("GET", url)) == (401, "unauthorized")
        assert call("DELETE", url, "a", OPS).status_code == 200


def test_page_of_another_site_keeps_nothing(url: str) -> None:
    answer = HTTP.put(f"{url}/api/saved/a", json=VIEW, headers={"Origin": "https://evil.example"})
    assert code(answer) == (403, "foreign_origin")
    assert call("GET", url).json() == {"saved": []}
