"""A `turnout run` on two topics, with waits and comparisons for the tests of faults."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from confluent_kafka import Producer

import oracle
from background_work import beside
from kafka_log import read_all
from lengths import LONG
from turnout.plan.joins import Duplicates, Join
from turnout.testing import patience, wait_until
from turnout_process import ASKED_SECONDS, RunningTurnout, lives

# Turnout promises five seconds; a busy machine gets more.
STOP_SECONDS = 20
USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}
TopicName = Callable[[str], str]


def sections(users: str, accounts: str, **more: Any) -> dict[str, Any]:
    """Return a configuration that reads these topics from their start."""
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
        interval=ASKED_SECONDS,
        what=lambda: f"the reason to have {parts}; it is {turnout.reason()!r}; log:\n{turnout.log()}",
    )


def wait_total(turnout: RunningTurnout, table: str, total: int) -> None:
    wait_until(
        lambda: turnout.total(table) >= total,
        interval=ASKED_SECONDS,
        what=lambda: f"{total} rows of {table}: {turnout.log()}",
    )
    assert turnout.total(table) == total


def said(turnout: RunningTurnout, *parts: str) -> bool:
    return any(all(part in line["msg"] for part in parts) for line in turnout.rows("orchestrator_logs"))


def wait_said(turnout: RunningTurnout, *parts: str) -> None:
    """Wait for a line of the log, which may be written a moment after the event."""
    wait_until(
        lambda: said(turnout, *parts), interval=ASKED_SECONDS, what=lambda: f"{parts} in the log:\n{turnout.log()}"
    )


@contextmanager
def ended(turnout: RunningTurnout) -> Iterator[None]:
    """Kill the process at the end of a `with` block if it still runs."""
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
    """Assert that the process and its JVM end in time and with success."""
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
    """Read the view continuously during a `with` block; every status must be an allowed one."""
    answers: list[int] = []

    def read(stopped: threading.Event) -> None:
        with httpx.Client(base_url=turnout.http.base_url, timeout=patience()) as client:
            while not stopped.wait(0.05 if LONG else ASKED_SECONDS):
                answers.append(client.get("/api/tables/final_ui/rows", params={"limit": 5}).status_code)

    with beside(read):
        yield
    assert len(answers) > 10
    assert set(answers) <= set(allowed), set(answers)


@contextmanager
def load(bootstrap: str, topics: tuple[str, str], per_second: int = 1000) -> Iterator[None]:
    """Write records at a rate during a `with` block; the short form writes a tenth, because each write is a batch."""
    some, pause = per_second // 40, 0.05 if LONG else 0.5

    def write(stopped: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": bootstrap})
        number = 0
        while not stopped.wait(pause):
            for topic, value in zip(topics, (user, account), strict=True):
                for n in range(number, number + some):
                    producer.produce(topic, json.dumps(value(n)))
            number += some
        assert producer.flush(patience()) == 0

    with beside(write):
        yield
