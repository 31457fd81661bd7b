"""Anything that anybody may send to the server: it is answered, or refused in the one shape of errors; never a 500."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from fake_orchestrator import FakeOrchestrator
from http_server import small_store
from lengths import FUZZ_EXAMPLES
from turnout.config import Settings
from turnout.serve import control_api
from turnout.serve.app import create_app
from turnout.serve.read_api import Services
from turnout.store.database import Database
from turnout.store.ledger import Ledger
from turnout.swap.control_queue import ControlQueue

OWN = "http://127.0.0.1:10000"
fuzzed = settings(max_examples=FUZZ_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
CONTROL_FIELDS = st.sampled_from(
    ["usersTopic", "accountsTopic", "joinType", "requestId", "start", "expectedGeneration", "dryRun", "action"]
)
CONTROL = st.binary(max_size=200) | st.one_of(
    JSON, st.dictionaries(CONTROL_FIELDS, JSON | st.sampled_from(["left", "users", "earliest", "rollback", "cancel"]))
).map(lambda value: json.dumps(value).encode())

COLUMNS = st.sampled_from(["userId", "name", "age", "_id", "nope", '"'])
OPERATORS = st.sampled_from(["=", "!=", "<", ">=", "like", "in", "not in", "is null", "contains", "~", ";"])
TERMS = st.text(max_size=60) | st.tuples(COLUMNS, OPERATORS, st.text(max_size=20)).map(" ".join)
QUERY = st.lists(
    st.tuples(
        st.sampled_from(["where", "sort", "columns", "offset", "limit", "format", "table"]) | st.text(max_size=5),
        TERMS | st.integers().map(str) | st.sampled_from(["json", "csv", "-age", "userId,name"]),
    ),
    max_size=4,
)

FIELDS = st.sampled_from(["type", "id", "table", "columns", "where", "sort", "offset", "limit", "resume", "generation"])
WORDS = st.sampled_from(
    ["window", "changes", "status", "unsubscribe", "1", "users_ui", "users_ui@1", "age > 3", "-age"]
)
REQUEST = st.fixed_dictionaries(
    {"type": st.sampled_from(["window", "changes", "status", "unsubscribe"]), "id": WORDS, "table": WORDS},
    optional={"where": WORDS | JSON, "sort": WORDS | JSON, "limit": JSON, "offset": JSON, "resume": JSON},
)
FRAME = (
    st.text(max_size=100)
    | st.binary(max_size=100)
    | (st.dictionaries(FIELDS, WORDS | JSON) | REQUEST | JSON).map(json.dumps)
)


class Steered(FakeOrchestrator):
    """An orchestrator with a real control queue, where messages are kept and wait."""

    def __init__(self, database: Database) -> None:
        chosen = Settings()
        super().__init__(ControlQueue(chosen, Ledger(database, list(chosen.sources)), lambda level, text: None))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with small_store(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(database: Database) -> Iterator[TestClient]:
    app = create_app(Services(database, Steered(database)))
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(control_api, "wait_seconds", lambda _: 1)
        with TestClient(app, base_url=OWN, raise_server_exceptions=True) as opened:
            yield opened


def assert_answered(answer: httpx.Response, *good: int) -> None:
    if answer.status_code in good:
        return
    assert 400 <= answer.status_code < 500, answer.text
    assert_shaped(answer.json()["error"])


def assert_shaped(error: dict[str, Any]) -> None:
    assert {"code", "message", "hint"} <= set(error)
    assert error["code"]
    assert error["message"]


@fuzzed
@given(CONTROL, st.sampled_from(["application/json", "application/json; charset=utf-8", "text/plain", ""]))
def test_control_of_anything_is_kept_or_refused(client: TestClient, database: Database, body: bytes, kind: str) -> None:
    before = kept(database)
    answer = client.post("/api/control?wait=false", content=body, headers={"Content-Type": kind})
    assert_answered(answer, 202)
    if answer.status_code == 202:
        assert kept(database) == before + 1


def kept(database: Database) -> int:
    with database.read() as cursor:
        row = cursor.execute("SELECT count(*) FROM turnout.control_raw").fetchone()
    assert row is not None
    return int(row[0])


@fuzzed
@given(st.sampled_from(["users_ui", "users_ui@1", "swaps"]) | st.text(min_size=1, max_size=10), QUERY)
def test_rows_of_anything_are_answered_or_refused(client: TestClient, table: str, query: list[tuple[str, str]]) -> None:
    path = f"/api/tables/{quote(table, safe='', errors='replace')}/rows"
    assert_answered(client.get(f"{path}?{urlencode(query, errors='replace')}"), 200)


@fuzzed
@given(st.lists(FRAME, min_size=1, max_size=8))
def test_frames_of_anything_leave_the_connection_open(client: TestClient, frames: list[str | bytes]) -> None:
    with client.websocket_connect("/api/live") as socket:
        assert socket.receive_json()["type"] == "hello"
        for frame in frames:
            if isinstance(frame, bytes):
                socket.send_bytes(frame)
            else:
                socket.send_text(frame)
        socket.send_json({"type": "status", "id": "the end"})
        while (heard := socket.receive_json()).get("id") != "the end":
            if heard["type"] == "error":
                assert_shaped(heard["error"])
        assert heard["type"] == "status"
