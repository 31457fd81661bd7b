"""A sink of a real Turnout under load: what its topic folds to is what HTTP shows, whatever is killed or restarted."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

import killed_turnout
from background_work import beside
from control_topic_reader import patient, reading
from in_process_turnout import ServedTurnout
from kafka_writer import writing
from lengths import LONG, SINK_FAULTS, SINK_WRITES
from shared_broker import RULES
from sink_reader import SunkRecord, SunkTopic, bag, fold
from turnout.config import KafkaSettings
from turnout.kafka.topics import Topics
from turnout.local.broker import EmbeddedBroker
from turnout.testing import Record, create_topic, patience, produce, wait_until
from turnout_process import ASKED_SECONDS, RunningTurnout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = {"users": ("users", "users-b"), "accounts": ("accounts",)}
SINKS: dict[str, dict[str, Any]] = {
    "final_out": {"table": "final_ui", "topic": "final-out", "delivery": "exactly_once", "max_waiting_rows": 300},
    "accounts_out": {"table": "accounts_ui", "topic": "accounts-out", "delivery": "at_least_once"},
    "ages_out": {"table": "ages_ui", "topic": "ages-out"},
}
SOURCES = {
    "users": {
        "topic": "users",
        "table": "users_ui",
        "key": "userId",
        "columns": {"userId": "string", "name": "string", "age": "int64"},
    },
    "accounts": {
        "topic": "accounts",
        "table": "accounts_ui",
        "key": "userId",
        "columns": {"userId": "string", "balance": "double", "opened": "timestamp"},
        "rows": "latest",
    },
}
ORDER_COLUMNS = {"orderId": "string", "userId": "string", "amount": "int64"}
ORDERS = {
    "topic": "orders",
    "table": "orders_ui",
    "key": "orderId",
    "columns": ORDER_COLUMNS,
}
# Generations that linger read on, and a rollback needs one.
SWAP = {"linger_seconds": 30, "max_linger_generations": 3 if LONG else 1}
VIEWS = {
    "final_ui": {"left": "users", "right": "accounts", "on": "userId"},
    "ages_ui": {
        "sources": ["users"],
        "on": "userId",
        "sql": "SELECT userId, max(age) AS oldest, count(*) AS records FROM users GROUP BY userId",
        "columns": {"userId": "string", "oldest": "int64", "records": "int64"},
    },
}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path / "kafka", properties=RULES)
    broker.start()
    yield broker
    broker.stop()


def record(chance: random.Random, source: str) -> Record:
    key = f"k{chance.randrange(60)}"
    if source == "users":
        null = chance.random() < 0.05
        age = chance.randrange(99)
        person = {"userId": None if null else key, "name": f"n{chance.random()}", "age": age}
        return Record({**person, "phone": f"+{age}"})
    if chance.random() < 0.2:
        return Record(None, key=key)
    return Record({"userId": key, "balance": chance.choice([1.5, 2.5]), "opened": "2026-01-31T12:00:00Z"})


@contextmanager
def load(bootstrap: str) -> Iterator[threading.Event]:
    """Records of all topics until the block ends, but for times when `rest` is set; SINK_WRITES times between them."""
    rest = threading.Event()
    chance = random.Random(3)

    def run(ended: threading.Event) -> None:
        with writing(bootstrap) as writer:
            left = SINK_WRITES
            while not ended.wait(0.1 if LONG else 0.25):
                if rest.is_set():
                    left = SINK_WRITES
                elif left:
                    left -= 1
                    for source, topics in TOPICS.items():
                        for topic in topics:
                            writer.write(topic, [record(chance, source) for _ in range(chance.randrange(6))])

    with beside(run):
        yield rest


class Comparison:
    """Readers of all topics of sinks, and what they must show."""

    def __init__(self, turnout: RunningTurnout, bootstrap: str) -> None:
        self._turnout = turnout
        self._topics = {name: SunkTopic(bootstrap, sink["topic"]) for name, sink in SINKS.items()}

    def wait_equal(self) -> None:
        """While nothing is written to the sources, each topic comes to fold to its table."""
        for name, topic in self._topics.items():
            equal = partial(self._equal, topic, SINKS[name]["table"])
            wait_until(equal, interval=ASKED_SECONDS, what=partial(self._told, name))

    def _equal(self, topic: SunkTopic, table: str) -> bool:
        rows = bag(self._turnout.rows(table))
        return topic.rows() == rows and rows == bag(self._turnout.rows(table))

    def _told(self, name: str) -> str:
        return f"topic of sink {name} equals its table: {self._turnout.status()['sinks']}\n{self._turnout.log()}"

    def records(self, name: str) -> list[SunkRecord]:
        return self._topics[name].records

    def close(self) -> None:
        for topic in self._topics.values():
            topic.close()


class KilledApply:
    """An apply whose process is killed in the transaction that publishes it: a restart does it, whole and once."""

    def __init__(self, turnout: RunningTurnout, flag: Path) -> None:
        self._turnout = turnout
        self._flag = flag
        self._numbers = itertools.count()
        self.document = yaml.safe_load(turnout.config.read_text())
        turnout.command = [sys.executable, str(Path(killed_turnout.__file__)), str(flag)]

    def __call__(self) -> None:
        turnout, changed = self._turnout, self.document
        changed["sources"]["users"]["columns"]["phone"] = "string"
        # A column that no file had before: whatever is in force, this needs a generation.
        extra = {f"extra{next(self._numbers)}": "string"}
        changed["sources"]["orders"] = ORDERS | {"columns": ORDER_COLUMNS | extra}
        changed["sinks"]["accounts_out"]["max_waiting_rows"] = 999
        before, outcomes = turnout.status()["generation"], self._outcomes()
        self._flag.write_text("publishing")
        with pytest.raises(httpx.HTTPError):
            turnout.put_config(yaml.safe_dump(changed, sort_keys=False))
        turnout.wait_killed()
        self._flag.unlink()
        turnout.start()
        wait_until(lambda: turnout.status()["generation"] > before + 1, what="the apply that was killed")
        assert self._outcomes() == [[*outcomes[0], "applied"], ["applied", *outcomes[1]]]
        assert all(row["phone"] == f"+{row['age']}" for row in turnout.rows("users_ui"))
        assert turnout.total("orders_ui") == 5
        assert yaml.safe_load(turnout.http.get("/api/config").text)["sources"] == changed["sources"]

    def _outcomes(self) -> list[list[str]]:
        """Those of files that were sent, the oldest first, and those that the history has, the newest first."""
        sent = [row["outcome"] for row in self._turnout.rows("control_raw") if '"apply"' in row["raw"]]
        return [sent, [one["outcome"] for one in self._turnout.get("/api/config/history")["history"]]]


def test_topics_of_sinks_fold_to_what_is_shown_through_swaps_applies_kills_and_broker_restarts(
    own_broker: EmbeddedBroker,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    patient(monkeypatch)
    bootstrap, numbers = own_broker.bootstrap_servers, itertools.count()
    for topic in [topic for topics in TOPICS.values() for topic in topics]:
        create_topic(bootstrap, topic, 2)
    create_topic(bootstrap, "orders", 1)
    produce(bootstrap, "orders", [{"orderId": f"o{i}", "userId": f"k{i}", "amount": i} for i in range(5)])
    for sink in SINKS.values():
        create_topic(bootstrap, sink["topic"], 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"})
    sections = {"sources": SOURCES, "views": VIEWS, "sinks": SINKS, "start": "earliest", "swap": SWAP}
    # Only one in a process of its own can be killed; the short form leaves that to the tests of sinks and of applies.
    turnout = (
        RunningTurnout(tmp_path, bootstrap, **sections)
        if LONG
        else ServedTurnout(tmp_path, spark, bootstrap, **sections)
    )
    chance, killed_apply = random.Random(11), KilledApply(turnout, tmp_path / "flag")

    def swap(**message: Any) -> None:
        answer = turnout.http.post("/api/control", json=message).json()
        assert "outcome" in answer or answer["error"]["code"] in ("nothing_to_roll_back",), answer

    def kill() -> None:
        turnout.kill()
        turnout.start()

    def records_read() -> int:
        """Records of the topic that the users come from now."""
        with closing(Topics(KafkaSettings(bootstrap_servers=bootstrap))) as topics:
            return sum(topics.end_offsets([turnout.status()["usersTopic"]]).next.values())

    def restart_broker() -> None:
        """As the sinks do, a reader of the control topic outlives it, and tells of it once."""
        control = f"control-{next(numbers)}"
        create_topic(bootstrap, control)
        produce(bootstrap, control, ["before"])
        capfd.readouterr()
        with reading(bootstrap, control) as (received, reader):
            assert reader.caught_up.wait(patience())
            own_broker.stop()
            wait_until(lambda: received.warnings, what="the outage is told")
            assert bootstrap in received.warnings[0] and "cannot be reached" in received.warnings[0]
            own_broker.start()
            assert own_broker.bootstrap_servers == bootstrap
            produce(bootstrap, control, ["after"])
            wait_until(lambda: received.values == [b"before", b"after"], what="reading goes on")
            wait_until(lambda: received.news, what="the return is told")
            assert len(received.warnings) == 1
            assert received.news == [f"control topic '{control}' is read"]
        assert "turnout-" not in capfd.readouterr().err  # the names of the clients, in their log lines

    def apply() -> None:
        """Other columns in the table of a sink, and a sink of other settings."""
        document = yaml.safe_load(turnout.config.read_text())
        columns = document["sources"]["users"]["columns"]
        columns.pop("name") if "name" in columns else columns.update(name="string")
        document["sinks"]["accounts_out"]["max_waiting_rows"] = chance.randrange(1000, 2000)
        turnout.config.write_text(yaml.safe_dump(document))
        answer = turnout.put_config(turnout.config.read_text()).json()
        assert answer["outcome"] == "applied", answer

    actions: dict[str, Callable[[], None]] = {
        "swap": lambda: swap(
            usersTopic=chance.choice(TOPICS["users"]), joinType=chance.choice(["left", "inner", "full"])
        ),
        "rollback": lambda: swap(action="rollback"),
        "killed_apply": killed_apply,
        "kill": kill,
        "broker": restart_broker,
        "apply": apply,
    }
    order = ["swap", "apply", "rollback", "broker", "killed_apply", "kill"]
    done: list[str] = []
    with turnout, load(bootstrap) as rest:
        comparison = Comparison(turnout, bootstrap)
        for number in range(SINK_FAULTS):
            kind = order[number] if number < len(order) else chance.choice(order)
            time.sleep(chance.uniform(0.5, 3))  # under load, and any moment will do
            actions[kind]()
            done.append(kind)
            turnout.wait_ready()
            rest.set()
            comparison.wait_equal()
            wait_until(
                lambda: turnout.total("users_ui") == records_read(),
                interval=ASKED_SECONDS,
                what="a row for each record",
            )
            rest.clear()
        rest.set()
        comparison.wait_equal()
        for name in ("final_out", "ages_out"):
            assert_one_piece_for_each_version(comparison.records(name), done.count("rollback"))
        states = [sink["state"] for sink in turnout.status()["sinks"]]
        assert states == ["writing"] * len(SINKS)
        metrics = turnout.http.get("/metrics").text
        assert 'turnout_sink_up{sink="final_out"} 1.0' in metrics
        assert 'turnout_sink_waiting_rows{sink="final_out"} 0.0' in metrics
        comparison.close()


def assert_one_piece_for_each_version(records: list[SunkRecord], rollbacks: int) -> None:
    """All records of a version come in one go, none twice, and a swap is marked at both ends.

    A rollback shows a version again if its generation has taken no record since.
    """
    table: dict[str, dict[str, Any]] = {}
    seen: set[tuple[int, int]] = set()
    last = None
    for one in records:
        if one.version != last and one.version in seen:
            assert rollbacks and one.headers.get("turnout.swap") in ("begin", "only"), "a version in two pieces"
            rollbacks -= 1
        seen.add(one.version)
        last = one.version
        fold(table, [one])
    marks = [one.headers["turnout.swap"] for one in records if "turnout.swap" in one.headers]
    assert len(marks) > 1
    assert [mark for mark in marks if mark != "only"] == ["begin", "end"] * (sum(mark == "begin" for mark in marks))
