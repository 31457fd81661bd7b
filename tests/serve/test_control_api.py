"""The calls that change something: outcomes, waiting, what is refused before it reaches the queue, and topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import duckdb
import httpx
import httpx2
import pytest
from starlette.testclient import TestClient

from fake_orchestrator import FakeOrchestrator, FakeQueue, leave_waiting
from http_server import HTTP, SECONDS, serving, small_store
from turnout.errors import TurnoutError
from turnout.plan.control import ControlRejected, Outcome
from turnout.serve import control_api
from turnout.serve.app import Services, create_app
from turnout.store.database import Database
from turnout.swap.control_queue import QueuedMessage, Reply
from turnout.testing import wait_until
from turnout_client import connect

OWN = "http://127.0.0.1:10000"


# One store and one application for all tests: none writes to the store, and each gets a queue of its own.


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with small_store(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_orchestrator() -> FakeOrchestrator:
    made = FakeOrchestrator()
    made.topic_names = ("users", "__consumer_offsets", "accounts")
    return made


@pytest.fixture(scope="module")
def shared_client(database: Database, shared_orchestrator: FakeOrchestrator) -> TestClient:
    return client_of(database, shared_orchestrator)


@pytest.fixture
def orchestrator(shared_orchestrator: FakeOrchestrator) -> FakeOrchestrator:
    shared_orchestrator.queue = FakeQueue()
    return shared_orchestrator


@pytest.fixture
def queue(orchestrator: FakeOrchestrator) -> FakeQueue:
    assert isinstance(orchestrator.queue, FakeQueue)
    return orchestrator.queue


@pytest.fixture
def client(shared_client: TestClient, orchestrator: FakeOrchestrator) -> TestClient:
    return shared_client


def client_of(database: Database, orchestrator: FakeOrchestrator) -> TestClient:
    app = create_app(Services(database, orchestrator))
    return TestClient(app, base_url=OWN, raise_server_exceptions=False)


def error_of(answer: httpx.Response | httpx2.Response, status: int, code: str) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error: dict[str, str] = answer.json()["error"]
    assert error["code"] == code
    return error


@pytest.mark.parametrize(
    "outcome",
    [Outcome.APPLIED, Outcome.UNCHANGED, Outcome.SUPERSEDED, Outcome.ROLLED_BACK, Outcome.CANCELLED],
)
def test_outcome_is_answered_in_the_agreed_shape(client: TestClient, queue: FakeQueue, outcome: Outcome) -> None:
    queue.decide = lambda _: Reply(outcome, "generation 7", 7)
    answer = client.post("/api/control", json={"usersTopic": "users2", "requestId": "r1"})
    assert answer.status_code == 200
    assert answer.json() == {
        "requestId": "r1",
        "outcome": outcome.value,
        "detail": "generation 7",
        "generation": 7,
    }
    assert answer.headers["cache-control"] == "no-store"


def test_message_reaches_the_queue_as_it_came(client: TestClient, queue: FakeQueue) -> None:
    raw = ' {"usersTopic" :"users2", "usersTopic": "users3", "joinType": NaN}\n'
    assert client.post("/api/control", content=raw).status_code == 200
    assert queue.messages[0].record.raw == raw


def test_dry_run_brings_its_report(client: TestClient, queue: FakeQueue) -> None:
    queue.decide = lambda _: Reply(Outcome.UNCHANGED, "dryRun", 1, report={"changes": True})
    answer = client.post("/api/control", json={"usersTopic": "users2", "dryRun": True}).json()
    assert answer["report"] == {"changes": True}


@pytest.mark.parametrize(
    ("body", "part"),
    [(b"{", "not valid JSON"), (b"", "empty"), (b"[]", "array"), (b'{"usersTopic": 7}', "usersTopic"), (b"\xff", "")],
)
def test_bad_message_is_rejected_with_the_reason(client: TestClient, body: bytes, part: str) -> None:
    # What is no UTF-8 the real queue turns into text that is no JSON.
    answer = client.post("/api/control", content=body.decode(errors="backslashreplace"))
    error = error_of(answer, 422, "bad_control")
    assert part in error["message"]
    assert error["hint"]


def test_wrong_expected_generation_is_a_conflict(client: TestClient, queue: FakeQueue) -> None:
    conflict = ControlRejected(message="generation 2 is published", code="generation_conflict", status=409)
    queue.decide = lambda _: Reply(Outcome.REJECTED, str(conflict), 2, conflict)
    error_of(client.post("/api/control", json={"expectedGeneration": 1}), 409, "generation_conflict")


def test_failed_build_is_an_error_of_the_server(client: TestClient, queue: FakeQueue) -> None:
    failure = TurnoutError(code="build_timeout", message="did not catch up", hint="raise it", status=504)
    queue.decide = lambda _: Reply(Outcome.FAILED, str(failure), 1, failure)
    error_of(client.post("/api/control", json={"usersTopic": "users2"}), 504, "build_timeout")


def test_request_that_does_not_wait_is_accepted(client: TestClient, queue: FakeQueue) -> None:
    queue.decide = leave_waiting
    for message, wait in enumerate(("false", "False", "0"), start=1):
        answer = client.post(f"/api/control?wait={wait}", json={"requestId": 5})
        assert answer.status_code == 202
        assert answer.json() == {"message": message, "requestId": "5", "outcome": None}


def test_wait_must_be_a_truth(client: TestClient, queue: FakeQueue) -> None:
    for wait in ("maybe", "TRUE", "tRue", ""):
        error_of(client.post(f"/api/control?wait={wait}", json={}), 400, "bad_parameter")
    error_of(client.post("/api/control?await=1", json={}), 400, "unknown_parameter")
    assert queue.messages == []


def test_request_waits_until_its_outcome_comes(client: TestClient, queue: FakeQueue) -> None:
    queue.decide = leave_waiting
    with ThreadPoolExecutor(1) as pool:
        post = pool.submit(client.post, "/api/control", json={"usersTopic": "users2"})
        wait_until(lambda: len(queue.messages) == 1)
        assert not post.done()
        queue.settle(queue.messages[0], Reply(Outcome.APPLIED, "", 2))
        assert post.result(SECONDS).json()["outcome"] == "applied"


def test_outcome_that_takes_too_long_becomes_accepted(
    database: Database, orchestrator: FakeOrchestrator, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_api, "wait_seconds", lambda _: 0.05)
    queue.decide = leave_waiting
    answer = client_of(database, orchestrator).post("/api/control", json={"requestId": "r"})
    assert (answer.status_code, answer.json()["outcome"], answer.json()["requestId"]) == (202, None, "r")


def test_waiting_requests_hold_nobody_back(
    database: Database, orchestrator: FakeOrchestrator, queue: FakeQueue
) -> None:
    queue.decide = leave_waiting
    with (
        serving(create_app(Services(database, orchestrator))) as url,
        httpx.Client(base_url=url, limits=httpx.Limits(max_connections=200), timeout=SECONDS) as http,
        ThreadPoolExecutor(control_api.MAX_WAITING) as pool,
    ):
        posts = [pool.submit(http.post, "/api/control", json={}) for _ in range(control_api.MAX_WAITING)]
        wait_until(lambda: len(queue.messages) == control_api.MAX_WAITING)
        assert http.get("/api/tables").status_code == 200
        # One more is taken too, but not waited for.
        wait_until(lambda: http.post("/api/control", json={}).status_code == 202)
        assert not any(post.done() for post in posts)
        for message in queue.messages:
            queue.settle(message, Reply(Outcome.UNCHANGED, "", 1))
        assert {post.result(SECONDS).status_code for post in posts} == {200}


def test_server_stops_while_a_request_waits(
    database: Database, orchestrator: FakeOrchestrator, queue: FakeQueue
) -> None:
    queue.decide = leave_waiting
    with ThreadPoolExecutor(1) as pool:
        with serving(create_app(Services(database, orchestrator))) as url:
            # It would wait for more than ten minutes.
            post = pool.submit(httpx.post, f"{url}/api/control", json={}, timeout=SECONDS)
            wait_until(lambda: len(queue.messages) == 1)
        assert post.result(SECONDS).status_code == 202


def test_waiting_place_of_a_client_that_left_is_free_again(
    database: Database, orchestrator: FakeOrchestrator, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_api, "MAX_WAITING", 1)
    queue.decide = leave_waiting
    with serving(create_app(Services(database, orchestrator))) as url:
        with pytest.raises(httpx.ReadTimeout):
            HTTP.post(f"{url}/api/control", json={}, timeout=httpx.Timeout(SECONDS, read=0.3))
        queue.decide = lambda _: Reply(Outcome.UNCHANGED, "", 1)
        wait_until(lambda: HTTP.post(f"{url}/api/control", json={}).status_code == 200)


def test_body_that_is_too_large_is_refused(client: TestClient, queue: FakeQueue) -> None:
    fits = json.dumps({"x": "a" * (256 * 1024 - 9)})
    assert client.post("/api/control", content=fits).status_code == 200
    for path in ("/api/control", "/api/rollback", "/api/cancel", "/api/publish", "/api/discard"):
        error_of(client.post(path, content=fits + " "), 413, "message_too_large")
    assert len(queue.messages) == 1


@pytest.mark.parametrize(
    ("header", "requester"),
    [
        (None, "http"),
        ("page", "page"),
        ("CLI", "cli"),
        ("topic", "http"),
        ("configuration", "http"),
        ("<b>", "http"),
        ("a" * 40, "http"),
    ],
)
def test_requester_is_what_the_client_calls_itself(
    client: TestClient, queue: FakeQueue, header: str | None, requester: str
) -> None:
    client.post("/api/control", json={}, headers={"X-Turnout-Client": header} if header else {})
    assert queue.messages[0].record.requester == requester


@pytest.mark.parametrize("body", [b"", b"  ", b"{}"])
@pytest.mark.parametrize(
    ("action", "outcome"),
    [("rollback", Outcome.ROLLED_BACK), *((name, Outcome.APPLIED) for name in ("cancel", "publish", "discard"))],
)
def test_action_is_a_control_message(
    client: TestClient, queue: FakeQueue, action: str, outcome: Outcome, body: bytes
) -> None:
    queue.decide = lambda _: Reply(outcome, "generation 1", 1)
    answer = client.post(f"/api/{action}", content=body)
    assert answer.json()["outcome"] == outcome.value
    assert json.loads(queue.messages[0].record.raw or "") == {"action": action}


@pytest.mark.parametrize("action", ["rollback", "cancel", "publish", "discard"])
def test_action_takes_request_and_generation(client: TestClient, queue: FakeQueue, action: str) -> None:
    client.post(f"/api/{action}?wait=false", json={"requestId": "undo", "expectedGeneration": 7, "action": "change"})
    assert json.loads(queue.messages[0].record.raw or "") == {
        "requestId": "undo",
        "expectedGeneration": 7,
        "action": action,
    }


@pytest.mark.parametrize("body", [b"[]", b"{", b"7", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("action", ["rollback", "cancel", "publish", "discard"])
def test_action_with_another_body_is_never_something_else(
    client: TestClient, queue: FakeQueue, action: str, body: bytes
) -> None:
    error_of(client.post(f"/api/{action}", content=body), 422, "bad_control")
    assert queue.messages == []


@pytest.mark.parametrize("action", ["rollback", "cancel", "publish", "discard"])
def test_action_refuses_topics(client: TestClient, action: str) -> None:
    error = error_of(client.post(f"/api/{action}", json={"usersTopic": "users2"}), 422, "bad_control")
    assert f"{action} takes no topics" in error["message"]


def test_cancel_with_nothing_to_cancel_is_a_conflict(client: TestClient, queue: FakeQueue) -> None:
    error = ControlRejected("no build is under way", "roll back", code="nothing_to_cancel")
    queue.decide = lambda _: Reply(Outcome.REJECTED, str(error), 1, error)
    assert error_of(client.post("/api/cancel"), 409, "nothing_to_cancel")["message"] == "no build is under way"


@pytest.mark.parametrize("path", ["/api/control", "/api/rollback", "/api/cancel", "/api/publish", "/api/discard"])
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:9999",
        "http://127.0.0.1:10000.evil.example",
        "null",
        "",
        "file://",
        "http://[",
        "http://127.0.0.1:port",
    ],
)
def test_page_of_another_site_is_refused(client: TestClient, queue: FakeQueue, path: str, origin: str) -> None:
    error = error_of(client.post(path, json={}, headers={"Origin": origin}), 403, "foreign_origin")
    assert error["hint"]
    assert queue.messages == []


def test_name_that_a_site_gave_this_machine_is_refused(client: TestClient) -> None:
    headers = {"Origin": "http://evil.example:10000", "Host": "evil.example:10000"}
    error_of(client.post("/api/control", json={}, headers=headers), 403, "foreign_host")


@pytest.mark.parametrize("name", ["127.0.0.1:10000", "localhost:10000", "[::1]:10000"])
def test_own_page_is_served(client: TestClient, name: str) -> None:
    headers = {"Origin": f"http://{name}", "Host": name}
    assert client.post("/api/control", json={}, headers=headers).status_code == 200


def test_own_page_behind_a_proxy_with_tls_is_served(database: Database, orchestrator: FakeOrchestrator) -> None:
    app = create_app(Services(database, orchestrator))
    client = TestClient(app, base_url="http://turnout.example")
    assert client.post("/api/control", json={}, headers={"Origin": "https://turnout.example"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_other_content_types_are_refused(client: TestClient, queue: FakeQueue, kind: str) -> None:
    error = error_of(
        client.post("/api/control", content="{}", headers={"Content-Type": kind}), 415, "unsupported_media_type"
    )
    assert "application/json" in error["hint"]
    assert queue.messages == []


def test_json_with_a_charset_is_taken(client: TestClient) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert client.post("/api/control", content="{}", headers=headers).status_code == 200


def test_reading_a_changing_call_is_refused(client: TestClient) -> None:
    answer = client.get("/api/control")
    error_of(answer, 405, "method_not_allowed")
    assert "POST" in answer.headers["allow"]


def test_store_that_takes_no_message_is_unavailable(client: TestClient, queue: FakeQueue) -> None:
    def full(_: QueuedMessage) -> Reply:
        raise duckdb.IOException("no space left on device")

    queue.decide = full
    error = error_of(client.post("/api/control", json={}), 503, "store_unavailable")
    assert "cannot be written now: its disk fails or is full" in error["message"]


def test_topics_are_listed_without_those_of_kafka_itself(client: TestClient) -> None:
    assert client.get("/api/topics").json() == {
        "topics": ["accounts", "users"],
        "sources": {"users": "users", "accounts": "accounts"},
    }


def test_topics_without_kafka_are_unavailable(database: Database) -> None:
    class Away(FakeOrchestrator):
        def topics(self) -> list[str]:
            raise TurnoutError(code="kafka_unreachable", message="no broker at x:9092", hint="start it", status=503)

    error_of(client_of(database, Away()).get("/api/topics"), 503, "kafka_unreachable")


def test_client_gets_outcomes_and_errors(database: Database, orchestrator: FakeOrchestrator) -> None:
    with serving(create_app(Services(database, orchestrator))) as url, connect(url) as client:
        assert client.control({"usersTopic": "users2", "requestId": "r"})["outcome"] == "applied"
        assert client.rollback({"expectedGeneration": 2}, wait=False)["outcome"] is None
        with pytest.raises(TurnoutError, match="usersTopic") as raised:
            client.control({"usersTopic": 7})
    assert raised.value.status == 422
