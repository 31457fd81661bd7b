"""The client against real servers: what it returns, and what it says when the way there or the answer is wrong."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from serving import STATUS, application, serving, small_store
from turnout.client import Client, connect
from turnout.errors import TurnoutError


async def echo(request: Request) -> Response:
    """Answers with what it was sent."""
    sent = await request.json()
    if sent.get("expectedGeneration") == 99:
        error = TurnoutError(code="generation_conflict", message="generation 1 is published", hint="ask again")
        return JSONResponse(error.as_json(), 409)
    query = dict(request.query_params)
    return JSONResponse(
        {
            "sent": sent,
            "query": query,
            "authorization": request.headers.get("authorization"),
            "client": request.headers.get("x-turnout-client"),
        }
    )


async def no_turnout(_: Request) -> Response:
    return PlainTextResponse("hello")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        small_store(tmp_path_factory.mktemp("store")) as database,
        serving(application(database)) as url,
        connect(url) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def echoing() -> Iterator[str]:
    routes = [
        Route("/api/control", echo, methods=["POST"]),
        Route("/api/rollback", echo, methods=["POST"]),
        Route("/api/status", no_turnout),
    ]
    with serving(Starlette(routes=routes)) as url:
        yield url


def test_tables_have_columns_and_counts(client: Client) -> None:
    users = next(table for table in client.tables() if table["name"] == "users_ui")
    assert (users["rows"], users["generation"], users["version"]) == (3, 1, 5)
    assert users["columns"][2] == {"name": "age", "type": "int64"}


def test_rows_are_those_of_the_window(client: Client) -> None:
    window = client.rows("users_ui", columns=["name", "age"], where=["age > 30"], sort=["-age"], limit=1)
    assert window.rows == ({"name": "[b]Cy", "age": 52},)
    assert (window.table, window.generation, window.version, window.total) == ("users_ui", 1, 5, 2)
    assert client.rows("users_ui", offset=2).rows[0]["userId"] == "u3"


def test_rows_as_json_have_the_shape_of_the_api(client: Client) -> None:
    assert list(client.rows("users_ui").as_json()) == ["table", "generation", "version", "total", "columns", "rows"]


def test_status_and_swaps_are_told(client: Client) -> None:
    assert client.status() == STATUS
    assert [(swap["generation"], swap["outcome"]) for swap in client.swaps()] == [(1, "applied")]


def test_error_of_the_server_is_the_same_error_here(client: Client) -> None:
    with pytest.raises(TurnoutError) as raised:
        client.rows("user_ui")
    assert (raised.value.code, raised.value.status) == ("unknown_table", 404)
    assert "users_ui" in raised.value.hint


@pytest.mark.parametrize("name", ["a/b", "a b?c#d", "../status", "é"])
def test_table_name_is_never_a_path(client: Client, name: str) -> None:
    with pytest.raises(TurnoutError) as raised:
        client.rows(name)
    assert raised.value.status == 404


def test_control_sends_the_message_and_the_token(echoing: str) -> None:
    with connect(f"{echoing}/", "s3cret") as client:
        answer = client.control({"usersTopic": "users2"})
        assert answer == {
            "sent": {"usersTopic": "users2"},
            "query": {},
            "authorization": "Bearer s3cret",
            "client": "python",
        }
        assert client.control({}, wait=False)["query"] == {"wait": "false"}
        assert client.rollback({"requestId": "r"})["sent"] == {"requestId": "r"}


def test_conflict_is_an_error_with_its_status(echoing: str) -> None:
    with connect(echoing) as client, pytest.raises(TurnoutError) as raised:
        client.control({"expectedGeneration": 99})
    assert (raised.value.code, raised.value.status, raised.value.hint) == ("generation_conflict", 409, "ask again")


def test_answer_of_another_server_is_named_as_such(echoing: str) -> None:
    with connect(echoing) as client, pytest.raises(TurnoutError, match="200 OK, not as Turnout does") as raised:
        client.status()
    assert raised.value.code == "bad_answer"


def test_unreachable_server_is_told_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        with connect(f"http://127.0.0.1:{taken.getsockname()[1]}") as client, pytest.raises(TurnoutError) as raised:
            client.status()
    assert (raised.value.code, raised.value.status) == ("server_unreachable", 503)
    assert "nothing listens there" in raised.value.message
    assert "turnout run" in raised.value.hint


@pytest.mark.parametrize("url", ["", "localhost:10000", "ftp://x", "http://", "http://me:secret@host", "http://x:y"])
def test_unusable_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(TurnoutError) as raised:
        connect(url)
    assert raised.value.code == "bad_url"
    assert "secret" not in str(raised.value)


def test_token_that_no_header_carries_is_refused_and_not_shown() -> None:
    with pytest.raises(TurnoutError) as raised:
        connect("http://127.0.0.1:1", "to\nken")
    assert raised.value.code == "bad_token"
    assert "ken" not in raised.value.message.replace("token", "")


def test_token_file_with_a_line_break_at_its_end_works(echoing: str, tmp_path: Path) -> None:
    with connect(echoing, "s3cret\n") as client:
        assert client.control({})["authorization"] == "Bearer s3cret"
