"""Looking at a real Turnout on real Kafka: many subscribers through load and swaps, and each ends with the table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import jsonschema_rs
import pytest

from background_work import beside
from in_process_turnout import ServedTurnout
from kafka_writer import writing
from lengths import LONG, SUBSCRIBERS
from live_socket import Follower, Socket, place_of, rows_of, sorted_rows_of
from turnout.local.broker import EmbeddedBroker
from turnout.testing import create_topic, produce, wait_until
from turnout_client.messages import Snapshot, WindowRows
from turnout_process import ASKED_SECONDS, RunningTurnout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWAPS = ("inner", "left", "full") if LONG else ("inner", "full")


@pytest.fixture
def turnout(tmp_path: Path, broker: EmbeddedBroker, spark: SparkSession) -> Iterator[ServedTurnout]:
    bootstrap = broker.bootstrap_servers
    for topic in ("look-users", "look-accounts", "look-control"):
        create_topic(bootstrap, topic, 2)
    produce(bootstrap, "look-users", [user(number) for number in range(300)])
    produce(bootstrap, "look-accounts", [account(number) for number in range(0, 300, 2)])
    sources = {
        "users": {"topic": "look-users", "table": "users_ui", "key": "userId", "rows": "latest"}
        | {"columns": {"userId": "string", "name": "string", "age": "int64"}},
        "accounts": {"topic": "look-accounts", "table": "accounts_ui", "key": "userId"}
        | {"columns": {"userId": "string", "balance": "double"}},
    }
    control = {"topic": "look-control"}
    with ServedTurnout(tmp_path, spark, bootstrap, sources=sources, start="earliest", control=control) as running:
        yield running


def user(number: int, age: int = 0) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": f"name {number}", "age": age}


def account(number: int, balance: float = 1.0) -> dict[str, Any]:
    return {"userId": f"u{number}", "balance": balance}


@contextmanager
def steady_load(bootstrap: str) -> Iterator[None]:
    """Changes, inserts and second accounts, until the block ends."""

    def run(stopped: threading.Event) -> None:
        turn = 0
        with writing(bootstrap) as writer:
            while not stopped.wait(0.05 if LONG else 0.3):  # each write is a batch
                turn += 1
                writer.write("look-users", [user(turn % 320, turn)])
                writer.write("look-accounts", [account(turn % 310, float(turn))])

    with beside(run):
        yield


def swapped_to(turnout: RunningTurnout, join: str) -> int:
    """Wait for the swap; the generation that is published then."""
    wait_until(lambda: turnout.status()["joinType"] == join, interval=ASKED_SECONDS, what=f"the swap to {join}")
    return int(turnout.status()["generation"])


def test_subscribers_keep_their_sockets_through_swaps_and_hold_the_new_rows(
    turnout: ServedTurnout, broker: EmbeddedBroker
) -> None:
    url = turnout.url
    viewers = [Viewer(url) for _ in range(SUBSCRIBERS // 2)]
    followers = [Following(url) for _ in range(SUBSCRIBERS - len(viewers))]
    everyone: list[Viewer | Following] = [*viewers, *followers]
    with steady_load(broker.bootstrap_servers):
        for join in SWAPS:
            produce(broker.bootstrap_servers, "look-control", [{"joinType": join}])
            generation = swapped_to(turnout, join)
            for subscriber in everyone:
                subscriber.read_to_generation(generation)
    # Written after all else, so all else has been read with them.
    produce(broker.bootstrap_servers, "look-users", [user(999)])
    produce(broker.bootstrap_servers, "look-accounts", [account(999)])
    last = {"where": "userId = u999, age = 0, balance = 1"}
    wait_until(lambda: turnout.total("final_ui", **last) == 1, interval=ASKED_SECONDS, what="everything read")
    for subscriber in everyone:
        subscriber.settle()
        assert subscriber.swaps == len(SWAPS), "one message for each swap, on the socket it began with"
    expected = rows_of(url, "final_ui")
    assert all(viewer.rows == expected for viewer in viewers)
    assert all(following.follower.sorted_rows() == sorted_rows_of(url, "final_ui") for following in followers)
    for subscriber in everyone:
        subscriber.socket.raw.close()
    assert_answers_are_as_told(turnout)


def assert_answers_are_as_told(turnout: RunningTurnout) -> None:
    """What a real orchestrator answers is what the OpenAPI document says."""
    document = turnout.get("/api/openapi.json")
    readable = [path for path, methods in document["paths"].items() if "get" in methods and "{" not in path]
    answers = [("GET", path, turnout.http.get(path)) for path in readable]
    dry_run = {"joinType": "anti", "dryRun": True, "requestId": 7}
    answers.append(("POST", "/api/control", turnout.http.post("/api/control", json=dry_run)))
    answers.append(("POST", "/api/rollback", turnout.http.post("/api/rollback", json={"expectedGeneration": 0})))
    for method, path, answer in answers:
        assert_answer_is_as_told(document, method, path, answer)
    assert [answer.status_code for _, _, answer in answers] == [200] * (len(answers) - 1) + [409]


def assert_answer_is_as_told(document: dict[str, Any], method: str, path: str, answer: httpx.Response) -> None:
    if LONG:
        import schemathesis  # takes more than a second; `test_openapi.py` has it in the short form, too

        schemathesis.openapi.from_dict(document)[path][method].validate_response(answer)
    told = document["paths"][path][method.lower()]["responses"][str(answer.status_code)]["content"]
    kind = answer.headers["content-type"].partition(";")[0]
    if kind == "application/json":
        schema = told[kind].get("schema", {})
        jsonschema_rs.validate({**schema, "components": document["components"]}, answer.json())
    else:
        assert kind in {one.partition(";")[0] for one in told}


class Viewer:
    """Looks at a window that holds all rows."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.socket = Socket(url)
        self.socket.send(type="window", id="w", table="final_ui", limit=10_000)
        self.generation, self.swaps = 0, -1
        self.rows: list[list[Any]] = []
        self._read()

    def _read(self) -> None:
        message = self.socket.receive()
        assert isinstance(message, WindowRows), message
        self.swaps += message.generation != self.generation
        self.generation, self.rows = message.generation, message.rows

    def read_to_generation(self, generation: int) -> None:
        while self.generation != generation:
            self._read()

    def settle(self) -> None:
        while self.rows != rows_of(self.url, "final_ui"):
            self._read()


class Following:
    """Follows every change."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.socket = Socket(url)
        self.follower = Follower("final_ui")
        self.follower.subscribe(self.socket)
        self.follower.apply(self.socket.receive())

    def read_to_generation(self, generation: int) -> None:
        while self.follower.place is None or self.follower.place[0] != generation:
            self.follower.apply(self.socket.receive())

    def settle(self) -> None:
        self.follower.read_up_to(self.socket, place_of(self.url, "final_ui"))

    @property
    def swaps(self) -> int:
        return sum(isinstance(m, Snapshot) and m.reason == "swap" for m in self.follower.messages)
