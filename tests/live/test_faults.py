"""What goes wrong around Turnout: brokers, topics, disks, signals, a second process. It says so, and goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import oracle
from beside import beside
from kafka_log import read_all
from running import RunningTurnout, lives
from small_disk import fill, small_disk
from turnout.broker import EmbeddedBroker, free_port
from turnout.joins import Duplicates, Join
from turnout.testing import Record, create_topic, delete_topic, patience, produce, wait_until

# Five seconds are promised; a machine that has much else to do gets more.
STOP_SECONDS = 20
USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}
TopicName = Callable[[str], str]


def sections(users: str, accounts: str, **more: Any) -> dict[str, Any]:
    """A file that reads these topics from their start."""
    return {
        "control": {"topic": f"{users}-control"},
        "sources": {
            "users": {"topic": users, "table": "users_ui", "key": "userId", "columns": USERS},
            "accounts": {"topic": accounts, "table": "accounts_ui", "key": "userId", "columns": ACCOUNTS},
        },
        "start": "earliest",
        **more,
    }


def user(number: int) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": f"n{number}", "email": "e", "age": number % 90}


def account(number: int) -> dict[str, Any]:
    return {"userId": f"u{number}", "accountType": "gold", "balance": number / 2}


def wait_reason(turnout: RunningTurnout, *parts: str) -> None:
    wait_until(
        lambda: all(part in turnout.reason() for part in parts),
        what=f"the reason to have {parts}; it is {turnout.reason()!r}; log:\n{turnout.log()}",
    )


def wait_total(turnout: RunningTurnout, table: str, total: int) -> None:
    wait_until(lambda: turnout.total(table) >= total, what=f"{total} rows of {table}: {turnout.log()}")
    assert turnout.total(table) == total


def said(turnout: RunningTurnout, *parts: str) -> bool:
    return any(all(part in line["msg"] for part in parts) for line in turnout.rows("orchestrator_logs"))


def wait_said(turnout: RunningTurnout, *parts: str) -> None:
    """Wait for a line of the log, which may be written a moment after what it tells of."""
    wait_until(lambda: said(turnout, *parts), what=f"{parts} in the log:\n{turnout.log()}")


@contextmanager
def ended(turnout: RunningTurnout) -> Iterator[None]:
    """No process is left, however the block ends."""
    try:
        yield
    finally:
        if turnout._process is not None and turnout._process.poll() is None:
            turnout.kill()


@contextmanager
def running(folder: Path, bootstrap: str, **sections: Any) -> Iterator[RunningTurnout]:
    turnout = RunningTurnout(folder / "turnout", bootstrap, **sections)
    with ended(turnout):
        yield turnout.start()


def assert_ends_soon(turnout: RunningTurnout, number: int) -> None:
    """It ends in time, with success, and takes its JVM along."""
    family = psutil.Process(turnout.pid).children(recursive=True)
    started = time.monotonic()
    code = turnout.stop(number)
    seconds = time.monotonic() - started
    print(f"ended after {seconds:.2f} s")
    assert code == 0, turnout.log()
    assert seconds < patience(STOP_SECONDS), f"{seconds:.1f} s"
    wait_until(lambda: not any(map(lives, family)), what="the end of its processes")


def assert_tables_are_exact(
    turnout: RunningTurnout, bootstrap: str, topics: tuple[str, str], columns: dict[str, str] = USERS
) -> None:
    records = read_all(bootstrap, topics)
    users = oracle.Source("users", topics[0], "userId", columns, latest=False)
    accounts = oracle.Source("accounts", topics[1], "userId", ACCOUNTS, latest=False)
    left, _ = oracle.read_source(users, records)
    right, _ = oracle.read_source(accounts, records)
    wait_total(turnout, "users_ui", len(left))
    wait_total(turnout, "accounts_ui", len(right))
    assert oracle.bag(turnout.rows("users_ui")) == oracle.bag(kept.row for kept in left)
    assert oracle.bag(turnout.rows("accounts_ui")) == oracle.bag(kept.row for kept in right)
    expected = oracle.join_rows(users, left, accounts, right, Join.LEFT, Duplicates.LATEST)
    assert oracle.bag(turnout.rows("final_ui")) == oracle.bag(expected)


@contextmanager
def watched(turnout: RunningTurnout, allowed: tuple[int, ...] = (200,)) -> Iterator[None]:
    """Read the view all the time; every answer must be one of the allowed."""
    answers: list[int] = []

    def read(stopped: threading.Event) -> None:
        with httpx.Client(base_url=turnout.http.base_url, timeout=patience()) as client:
            while not stopped.wait(0.05):
                answers.append(client.get("/api/tables/final_ui/rows", params={"limit": 5}).status_code)

    with beside(read):
        yield
    assert len(answers) > 10
    assert set(answers) <= set(allowed), set(answers)


@contextmanager
def load(bootstrap: str, topics: tuple[str, str], per_second: int = 1000) -> Iterator[None]:
    """So many records a second, until the block ends."""
    some = per_second // 40

    def write(stopped: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        number = 0
        while not stopped.wait(0.05):
            for topic, value in zip(topics, (user, account), strict=True):
                for n in range(number, number + some):
                    producer.produce(topic, json.dumps(value(n)))
            number += some
        assert producer.flush(patience()) == 0

    with beside(write):
        yield


def test_start_without_broker_or_topics_waits_for_both(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    turnout = RunningTurnout(tmp_path / "turnout", address, **sections("users", "accounts"))
    with ended(turnout), EmbeddedBrokerLater(tmp_path / "broker", port) as broker:
        turnout.start(ready=False)
        wait_until(lambda: turnout.answer("/healthz") == 200, what="an answer")
        wait_said(turnout, address, "cannot be reached")
        assert_ends_soon(turnout, signal.SIGTERM)

        turnout.start(ready=False)
        wait_reason(turnout, address, "cannot be reached")
        assert turnout.answer("/healthz") == 200
        assert turnout.rows("final_ui") == []
        assert address in turnout.log()
        broker.start()
        wait_reason(turnout, "topic 'accounts' does not exist; create it")
        create_topic(address, "accounts")
        wait_reason(turnout, "topic 'users' does not exist; create it")
        create_topic(address, "users")
        started = time.monotonic()
        produce(address, "users", [user(1)])
        turnout.wait_ready()
        wait_total(turnout, "final_ui", 1)
        print(f"ready {time.monotonic() - started:.1f} s after the topics")


class EmbeddedBrokerLater(EmbeddedBroker):
    """A broker that the test starts; it is stopped at the end."""

    def __enter__(self) -> EmbeddedBrokerLater:
        return self


def test_broker_restart_while_reading_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "broker") as broker:
        address = broker.bootstrap_servers
        topics = ("users", "accounts")
        for topic in topics:
            create_topic(address, topic, partitions=2)
        produce(address, "users", [user(n) for n in range(100)])
        with running(tmp_path, address, **sections(*topics)) as turnout:
            wait_total(turnout, "final_ui", 100)
            with watched(turnout):
                broker.stop()
                stopped = time.monotonic()
                wait_reason(turnout, address, "cannot be reached")
                print(f"noticed after {time.monotonic() - stopped:.1f} s")
                wait_until(lambda: time.monotonic() - stopped > OUTAGE_SECONDS)
                broker.start()
                began = time.monotonic()
                produce(address, "users", [user(n) for n in range(100, 150)])
                produce(address, "accounts", [account(n) for n in range(50)])
                wait_total(turnout, "final_ui", 150)
                print(f"new records after {time.monotonic() - began:.1f} s")
                turnout.wait_ready()
            assert_tables_are_exact(turnout, address, topics)


OUTAGE_SECONDS = 12


def test_deleted_topics_and_records_lost_to_retention_are_told_and_reading_goes_on(
    tmp_path: Path, broker: EmbeddedBroker, topic_name: TopicName
) -> None:
    address = broker.bootstrap_servers
    users, accounts = topic_name("users"), topic_name("accounts")
    for topic in (users, accounts):
        create_topic(address, topic)
    produce(address, users, [user(n) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": address})
    with running(tmp_path, address, **sections(users, accounts)) as turnout:
        wait_total(turnout, "users_ui", 10)
        delete_topic(address, users)
        produce(address, accounts, [account(n) for n in range(3)])
        wait_total(turnout, "accounts_ui", 3)
        wait_said(turnout, f"topic '{users}' partition 0 is gone", "offset 10")
        create_topic(address, users)
        produce(address, users, [user(n) for n in range(100, 104)])
        wait_total(turnout, "users_ui", 14)
        turnout.wait_ready()

        # Between two batches one topic is deleted and made anew, so that its offsets go back, and records of the
        # other are gone before they were read.
        assert turnout.stop() == 0
        delete_topic(address, users)
        create_topic(address, users)
        produce(address, users, [user(200)])
        produce(address, accounts, [account(n) for n in range(10, 30)])
        place = TopicPartition(accounts, 0, 18)
        admin.delete_records([place])[place].result(patience())
        turnout.start()
        wait_total(turnout, "users_ui", 15)
        wait_total(turnout, "accounts_ui", 8)
        wait_said(turnout, f"topic '{users}' partition 0 was deleted and made anew", "offset 4", "ends at 1")
        wait_said(turnout, f"topic '{accounts}' partition 0 lost offsets 3 to 17")
        produce(address, users, [user(201)])
        produce(address, accounts, [account(30)])
        wait_total(turnout, "users_ui", 16)
        wait_total(turnout, "accounts_ui", 9)


def test_full_disk_is_told_and_left_without_harm(tmp_path: Path, broker: EmbeddedBroker, topic_name: TopicName) -> None:
    address = broker.bootstrap_servers
    topics = (topic_name("users"), topic_name("accounts"))
    for topic in topics:
        create_topic(address, topic)
    produce(address, topics[0], [user(n) for n in range(100)])
    data = str(tmp_path / "disk" / "data")
    with (
        small_disk(tmp_path / "disk", 64) as disk,
        running(tmp_path, address, **sections(*topics, data_dir=data)) as turnout,
    ):
        wait_total(turnout, "final_ui", 100)
        with watched(turnout, allowed=(200, 503)):
            fill(disk / "filler")
            produce(address, topics[0], [Record({**user(n), "email": "e" * 500}) for n in range(100, 5000)])
            produce(address, topics[1], [account(n) for n in range(100)])
            wait_reason(turnout, "No space left on device", "room")
            assert turnout.answer("/healthz") == 200
            fill(disk / "filler")
            deadline = time.monotonic() + 8  # several tries on the full disk
            wait_until(lambda: time.monotonic() > deadline)
            (disk / "filler").unlink()
            freed = time.monotonic()
            turnout.wait_ready()
            print(f"ready {time.monotonic() - freed:.1f} s after there was room")
        assert_tables_are_exact(turnout, address, topics)
        assert_ends_soon(turnout, signal.SIGTERM)
        turnout.start()
        assert_tables_are_exact(turnout, address, topics)
        assert_ends_soon(turnout, signal.SIGTERM)


def test_spark_that_is_killed_comes_back_by_itself_and_loses_and_doubles_nothing(
    tmp_path: Path, broker: EmbeddedBroker, topic_name: TopicName
) -> None:
    address = broker.bootstrap_servers
    topics = (topic_name("users"), topic_name("accounts"))
    for topic in topics:
        create_topic(address, topic, partitions=2)
    produce(address, topics[0], [user(n) for n in range(100)])
    with running(tmp_path, address, **sections(*topics, swap={"linger_seconds": 600})) as turnout:
        with load(address, topics, per_second=200), watched(turnout):
            # A generation lingers beside the published one, and another is being built.
            assert turnout.http.post("/api/control", json={"joinType": "inner"}).json()["outcome"] == "applied"
            java = turnout.java()
            turnout.http.post("/api/control?wait=false", json={"joinType": "full", "requestId": "third"})
            wait_until(lambda: turnout.status()["progress"], interval=0.01, what="a build")
            java.kill()
            killed = time.monotonic()
            wait_reason(turnout, f"Spark's JVM (process {java.pid}) was killed by SIGKILL")
            assert turnout.http.get("/readyz").json()["error"]["code"] == "spark_gone"
            assert turnout.answer("/healthz") == 200
            shown = turnout.total("users_ui@1")
            turnout.wait_ready()
            print(f"ready {time.monotonic() - killed:.1f} s after the kill")
            [third] = [row for row in turnout.rows("control_raw") if row["requestId"] == "third"]
            assert third["outcome"] == "failed"
            assert "was killed by SIGKILL" in third["detail"]
            wait_until(lambda: turnout.total("users_ui@1") > shown, what="what lingers to read again")
            back = turnout.http.post("/api/rollback").json()
            assert (back["outcome"], back["generation"]) == ("rolled_back", 1)
        assert_tables_are_exact(turnout, address, topics)
        wait_said(turnout, "Spark runs again, and generation 2 reads")
        assert "unexpected error" not in turnout.log()
        assert_ends_soon(turnout, signal.SIGTERM)


def test_process_ends_soon_under_load_and_takes_new_columns_up(
    tmp_path: Path, broker: EmbeddedBroker, topic_name: TopicName
) -> None:
    address = broker.bootstrap_servers
    topics = (topic_name("users"), topic_name("accounts"))
    for topic in topics:
        create_topic(address, topic, partitions=2)
    turnout = RunningTurnout(tmp_path / "turnout", address, **sections(*topics))
    with ended(turnout):
        with load(address, topics):
            turnout.start()
            wait_until(lambda: turnout.total("final_ui") > 1000, what="rows")
            assert_second_process_is_refused(turnout)
            assert_ends_soon(turnout, signal.SIGINT)
            turnout.start(ready=False)
            wait_until(lambda: turnout.answer("/healthz") == 200, what="an answer while Spark starts")
            assert turnout.answer("/readyz") == 503
            assert_ends_soon(turnout, signal.SIGTERM)

            changed = turnout.config.read_text().replace("age: int64", "age: int64\n      city: string")
            turnout.config.write_text(changed)
            turnout.start(ready=False)
            wait_until(lambda: turnout.answer("/healthz") == 200, what="an answer")
            assert "city" not in turnout.rows("users_ui", limit=1)[0]
            turnout.wait_ready()
            assert "city" in turnout.rows("users_ui", limit=1)[0]
            assert turnout.status()["usersTopic"] == topics[0]
        assert_tables_are_exact(turnout, address, topics, USERS | {"city": "string"})
        assert_ends_soon(turnout, signal.SIGTERM)


def assert_second_process_is_refused(first: RunningTurnout) -> None:
    command = [sys.executable, "-m", "turnout", "run", "-c", str(first.config), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert f"error: another turnout (process {first.pid}) uses data_dir {first.data_dir}" in second.stderr
    assert first.answer("/readyz") == 200


@pytest.fixture(autouse=True)
def _shown_on_failure(tmp_path: Path) -> Iterator[None]:
    """The log of the process is part of a failure's report."""
    yield
    log = tmp_path / "turnout" / "turnout.log"
    if log.exists():
        print(log.read_text()[-6000:])
