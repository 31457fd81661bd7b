"""Why over HTTP: each wrong question has a clear answer, and a key with many records costs little."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from fake_orchestrator import FakeOrchestrator
from http_server import HTTP, serving
from oracle import Sent
from reason_oracle import Fed
from turnout.config import parse
from turnout.config.configuration import Configuration
from turnout.serve import kafka_api
from turnout.serve.app import Services, create_app
from turnout.store.database import Database
from turnout.store.ledger import Ledger
from turnout.store.query.row_records import MOST_OTHERS, MOST_ROWS, Explanation
from turnout.swap import explainer
from turnout.swap.explainer import Explainer
from turnout.testing import patience

COLUMNS = {"id": "int64", "x": "string"}
SOURCES = {
    "users": {"topic": "users", "table": "users_ui", "key": "id", "columns": COLUMNS},
    "accounts": {"topic": "accounts", "table": "accounts_ui", "key": "id", "columns": COLUMNS},
}
VIEWS = {"final_ui": {"left": "users", "right": "accounts", "on": "id", "join": "left"}}


class Explaining(FakeOrchestrator):
    """Explains rows of one generation; there is no Kafka."""

    def __init__(self, fed: Fed) -> None:
        super().__init__()
        self.configuration = Configuration(fed.settings)
        generation: Any = SimpleNamespace(number=1, tables=fed.tables)
        ledger = Ledger(fed.database, list(SOURCES))
        self.explainer = Explainer(lambda: [generation], self.configuration, ledger)


@pytest.fixture
def fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fed]:
    monkeypatch.setattr(explainer, "KAFKA_SECONDS", 0.05)
    database = Database.open(tmp_path)
    document = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "sources": SOURCES, "views": VIEWS}
    made = Fed(database, parse(document, tmp_path, {}))
    made.feed([sent("users", 0, 7), sent("users", 1, None), sent("accounts", 0, 7)])
    yield made
    database.close()


@pytest.fixture
def client(fed: Fed) -> TestClient:
    app = create_app(Services(fed.database, Explaining(fed)))
    return TestClient(app, client=("127.0.0.1", 1), base_url="http://127.0.0.1")


def sent(topic: str, offset: int, key: int | None) -> Sent:
    value = b"no json" if key is None else json.dumps({"id": key, "x": "y"}).encode()
    return Sent(topic, 0, offset, 1000, None, value)


@pytest.mark.parametrize(
    ("question", "status", "code", "words"),
    [
        ("final_ui/why", 400, "bad_parameter", "nothing"),
        ("final_ui/why?row=1&key=7", 400, "bad_parameter", "key, row"),
        ("final_ui/why?key=7&key=8", 400, "bad_parameter", "given 2 times"),
        ("final_ui/why?id=7", 400, "unknown_parameter", "'id'"),
        ("final_ui/why?key=seven", 400, "bad_parameter", "'seven' is not int64"),
        ("final_ui/why?key=", 400, "bad_parameter", "'' is not int64"),
        ("final_ui/why?topic=users&partition=0&offset=1", 400, "bad_parameter", "are for bad_records"),
        ("final_ui/why?topic=users", 400, "bad_parameter", "topic"),
        ("final_ui/why?key=8", 404, "unknown_row", "no row and no record of the key '8'"),
        ("final_ui/why?row=gone", 404, "unknown_row", "no row 'gone'"),
        ("final_ui/why?row=%27%20OR%201=1%20--", 404, "unknown_row", "no row"),
        ("final_ui@7/why?key=7", 404, "unknown_table", "final_ui@7"),
        ("other_ui/why?key=7", 404, "unknown_table", "no table 'other_ui'"),
        ("swaps/why?key=7", 404, "unknown_table", "not made of records"),
        ("join_quality/why?row=final_ui", 404, "unknown_table", "not made of records"),
        ("bad_records/why?key=7", 400, "bad_parameter", "bad_records has no key"),
        (
            "bad_records/why?topic=users&partition=0&offset=0",
            404,
            "unknown_row",
            "bad_records has no record of topic 'users', partition 0, offset 0",
        ),
        ("bad_records/why?topic=users&partition=-1&offset=0", 400, "bad_parameter", "partition"),
        ("bad_records/why?row=gone", 404, "unknown_row", "no row 'gone'"),
    ],
)
def test_wrong_question_has_a_clear_answer(
    client: TestClient, question: str, status: int, code: str, words: str
) -> None:
    answer = client.get(f"/api/tables/{question}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert words in error["message"]
    assert error["hint"]


def test_rows_are_asked_for_by_key_by_id_and_by_the_place_of_a_bad_record(client: TestClient) -> None:
    by_key = client.get("/api/tables/final_ui/why?key=7").json()
    assert (by_key["table"], by_key["generation"], by_key["key"], by_key["total"]) == ("final_ui", 1, "id", 1)
    assert [(one["source"], one["offset"]) for one in by_key["rows"][0]["records"]] == [("users", 0), ("accounts", 0)]
    assert by_key["message"] is None
    [note] = by_key["notes"]
    assert "cannot be reached" in note
    by_id = client.get("/api/tables/final_ui@1/why", params={"row": by_key["rows"][0]["row"]}).json()
    assert by_id["rows"] == by_key["rows"]
    bad = client.get("/api/tables/bad_records/why?topic=users&partition=0&offset=1").json()
    assert [(one["topic"], one["offset"], one["reason"]) for one in bad["rows"][0]["records"]] == [("users", 1, None)]
    assert client.get("/api/tables/bad_records/why", params={"row": bad["rows"][0]["row"]}).json() == bad


def test_key_with_many_records_is_told_in_part(fed: Fed, client: TestClient) -> None:
    fed.feed([sent("users", offset, 9) for offset in range(2, 2 + MOST_ROWS + 5)])
    fed.feed([sent("accounts", offset, 9) for offset in range(1, 3_000)])
    answer = client.get("/api/tables/final_ui/why?key=9").json()
    assert (answer["total"], len(answer["rows"])) == (MOST_ROWS + 5, MOST_ROWS)
    for row in answer["rows"]:
        assert [one["offset"] for one in row["records"]][1:] == [2_999]
        assert [one["offset"] for one in row["others"]] == list(range(2_998, 2_998 - MOST_OTHERS, -1))
        assert not row["complete"]


def test_generation_that_is_not_taken_up_is_told(fed: Fed) -> None:
    steering = Explaining(fed)
    steering.explainer._generations = list
    app = create_app(Services(fed.database, steering))
    client = TestClient(app, client=("127.0.0.1", 1), base_url="http://127.0.0.1")
    answer = client.get("/api/tables/final_ui/why?key=7")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "starting")


def test_kafka_that_hangs_holds_up_neither_the_answer_nor_others(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, end = threading.Semaphore(0), threading.Event()

    def hang(self: Explainer, found: Explanation, *, raw_values: bool) -> dict[str, Any]:
        asked.release()
        end.wait(patience())
        return self.as_json(found, {})

    monkeypatch.setattr(Explainer, "answer", hang)
    monkeypatch.setattr(kafka_api, "_ASKING_SECONDS", 0.2)
    try:
        with serving(create_app(Services(fed.database, Explaining(fed)))) as url:
            answers = [HTTP.get(f"{url}/api/tables/final_ui/why?key=7") for _ in range(3)]
            assert [answer.status_code for answer in answers] == [200] * 3
            assert all("did not give the records" in answer.json()["notes"][0] for answer in answers)
            assert asked.acquire(timeout=patience())
            assert not asked.acquire(blocking=False), "one question of a client at a time"
            assert HTTP.get(f"{url}/api/tables/final_ui/rows").status_code == 200
            end.set()
    finally:
        end.set()
