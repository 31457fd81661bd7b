"""Topics over HTTP: which there are, which are sources, and an example of one, for operators."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from fake_orchestrator import FakeOrchestrator, sources_named
from http_server import small_store
from turnout.config import Role, Settings, parse
from turnout.config.document import parse_yaml
from turnout.config.settings import default_sources
from turnout.errors import TurnoutError
from turnout.example.by_example import new_source, source_json
from turnout.serve import kafka_api
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app
from turnout.store.database import Database

VIEWER, OPERATOR = "v" * 20, "o" * 20


class Examining(FakeOrchestrator):
    """Answers as the orchestrator does, or fails as it does."""

    error: Exception | None = None
    asked: tuple[str, int] | None = None

    def example(self, topic: str, records: int) -> dict[str, Any]:
        self.asked = (topic, records)
        if self.error is not None:
            raise self.error
        return super().example(topic, records)


@pytest.fixture
def steering() -> Examining:
    return Examining(**sources_named("users", "accounts"))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with small_store(tmp_path) as opened:
        yield opened


def client_of(database: Database, steering: Examining, access: Access | None = None) -> TestClient:
    return TestClient(
        create_app(Services(database, steering), access), client=("127.0.0.1", 1), base_url="http://127.0.0.1"
    )


def test_topics_come_with_those_of_the_sources(database: Database, steering: Examining) -> None:
    answer = client_of(database, steering).get("/api/topics")
    assert answer.json() == {"topics": ["users"], "sources": {"users": "users", "accounts": "accounts"}}


def test_example_has_columns_key_and_yaml_that_can_be_added(database: Database, steering: Examining) -> None:
    answer = client_of(database, steering).get("/api/topics/people/example", params={"records": 2})
    assert answer.status_code == 200
    assert steering.asked == ("people", 2)
    found = answer.json()
    assert [column["name"] for column in found["columns"]] == ["userId", "city"]
    assert found["columns"][0] == {"name": "userId", "type": "string", "evidence": "2 of 2 records, 2 different values"}
    assert found["key"]["value"] == "userId"
    assert found["views"] == ["people_users_ui"]
    document, wrong = parse_yaml(found["yaml"])
    assert wrong == []
    whole = {"sources": {**default_sources(), **document["sources"]}, "views": document["views"]}
    assert parse(whole, Path("/x"), {}).sources["people"].topic == "people"


def two_roles() -> Access:
    return Access(Tokens([(Identity("wall", Role.VIEWER), VIEWER), (Identity("ops", Role.OPERATOR), OPERATOR)]))


def test_viewers_are_told_of_the_topics_of_sources_alone(
    database: Database, steering: Examining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "topics", lambda: ["users", "accounts", "salaries", "__consumer_offsets"])
    client = client_of(database, steering, two_roles())

    def topics(token: str) -> list[str]:
        found: list[str] = client.get("/api/topics", headers={"Authorization": f"Bearer {token}"}).json()["topics"]
        return found

    assert topics(VIEWER) == ["accounts", "users"]
    assert topics(OPERATOR) == ["accounts", "salaries", "users"]


def test_example_is_for_operators(database: Database, steering: Examining) -> None:
    client = client_of(database, steering, two_roles())

    def status(token: str, topic: str = "people") -> int:
        headers = {"Authorization": f"Bearer {token}"}
        answer = client.get(f"/api/topics/{topic}/example", headers=headers)
        assert answer.status_code != 403 or "viewers may not preview topics" in answer.text
        return int(answer.status_code)

    assert (status(VIEWER), status(VIEWER, "users"), steering.asked) == (403, 403, None)
    assert (status("x" * 20), steering.asked) == (401, None)
    assert status(OPERATOR) == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/topics/people/example?records=0", 400, "bad_parameter"),
        ("/api/topics/people/example?records=1001", 400, "bad_parameter"),
        ("/api/topics/people/example?records=many", 400, "bad_parameter"),
        ("/api/topics/people/example?rows=1", 400, "unknown_parameter"),
        ("/api/topics/no%20topic/example", 400, "bad_parameter"),
        ("/api/topics//example", 404, "not_found"),
    ],
)
def test_wrong_question_is_refused_before_kafka_is_asked(
    database: Database, steering: Examining, path: str, status: int, code: str
) -> None:
    answer = client_of(database, steering).get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert steering.asked is None


def test_fault_of_a_topic_has_the_one_shape(database: Database, steering: Examining) -> None:
    steering.error = TurnoutError("bad_example", "topic 'people' has no records", "write records to it first")
    answer = client_of(database, steering).get("/api/topics/people/example")
    assert answer.status_code == 422
    assert answer.json() == steering.error.as_json()


def test_kafka_that_hangs_is_told_in_time(
    database: Database, steering: Examining, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = threading.Event()
    monkeypatch.setattr(kafka_api, "_LOOKING_SECONDS", 0.05)
    monkeypatch.setattr(steering, "example", lambda *_: held.wait())
    try:
        answer = client_of(database, steering).get("/api/topics/people/example")
    finally:
        held.set()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "kafka_unreachable")


def test_topics_that_no_message_may_name_are_not_looked_at() -> None:
    settings = parse({"control": {"topics": ["users-*"]}}, Path("/x"), {})
    for topic, why in (("secret", "is not allowed here"), ("control", "is the control topic"), ("__x", "Kafka's own")):
        with pytest.raises(TurnoutError, match=why) as caught:
            new_source(topic, settings, 10, 1.0)
        assert caught.value.code == "bad_example"


def test_names_of_the_file_are_not_taken_twice() -> None:
    from sampled_topics import example

    found = source_json(example("users", [{"other": n} for n in range(3)]), Settings())
    assert (found["source"], found["table"], found["views"]) == ("users_2", "users_2_ui", [])
