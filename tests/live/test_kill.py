"""A process that is killed at any moment comes back with what it showed and loses and doubles nothing."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import oracle
from beside import beside
from kafka_log import read_all
from lengths import KILLS, LONG
from running import RunningTurnout
from turnout.local.broker import EmbeddedBroker
from turnout.plan.joins import Duplicates, Join
from turnout.testing import Record, create_topic, wait_until
from writing import writing

USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}


def random_record(random_: random.Random, topic: str) -> Record:
    key = f"k{random_.randrange(200)}"
    chance = random_.random()
    if chance < 0.02:
        return Record(b"{nope", partition=random_.randrange(2))
    if chance < 0.05:
        return Record(None, key=key.encode(), partition=random_.randrange(2))
    if "users" in topic:
        value: dict[str, Any] = {
            "userId": key,
            "name": f"n{random_.random()}",
            "email": "e",
            "age": random_.randrange(99),
        }
        if chance < 0.08:
            value["age"] = "old"
    else:
        value = {"userId": key, "accountType": random_.choice(["gold", "basic"]), "balance": random_.random()}
    return Record(value, partition=random_.randrange(2))


@contextmanager
def steady_load(bootstrap: str, topics: tuple[str, str], seed: int) -> Iterator[None]:
    """Some hundred records a second, in the short form some dozen, until the block ends."""
    random_ = random.Random(seed)

    def run(stopped: threading.Event) -> None:
        with writing(bootstrap) as writer:
            while not stopped.wait(0.05 if LONG else 0.2):
                for topic in topics:
                    writer.write(topic, [random_record(random_, topic) for _ in range(random_.randrange(20))])

    with beside(run):
        yield


def assert_tables_equal_kafka(turnout: RunningTurnout, bootstrap: str, topics: tuple[str, str]) -> None:
    """Compare every table with the plain computation over what Kafka holds."""
    records = read_all(bootstrap, topics)
    users = oracle.Source("users", topics[0], "userId", USERS, latest=False)
    accounts = oracle.Source("accounts", topics[1], "userId", ACCOUNTS, latest=True)
    (left, left_bad), (right, right_bad) = oracle.read_source(users, records), oracle.read_source(accounts, records)
    right = oracle.shown(accounts, right)
    accounts_now = oracle.bag(kept.row for kept in right)
    wait_until(lambda: turnout.total("users_ui") >= len(left), what="all users to be read")
    with contextlib.suppress(TimeoutError):  # what is wrong is told by the comparison
        wait_until(lambda: oracle.bag(turnout.rows("accounts_ui")) == accounts_now)
    assert oracle.bag(turnout.rows("users_ui")) == oracle.bag(kept.row for kept in left)
    assert oracle.bag(turnout.rows("accounts_ui")) == accounts_now
    expected = oracle.join_rows(users, left, accounts, right, Join.LEFT, Duplicates.LATEST)
    assert oracle.bag(turnout.rows("final_ui")) == oracle.bag(expected)
    assert len(turnout.rows("bad_records")) == len(left_bad | right_bad)
    [quality] = turnout.rows("join_quality")
    assert quality == {"view": "final_ui"} | oracle.quality(users, left, accounts, right)


def test_kill_at_random_moments_loses_and_doubles_nothing(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topics = (topic_name("users"), topic_name("accounts"))
    for topic in topics:
        create_topic(broker.bootstrap_servers, topic, 2)
    sources = {
        "users": {"topic": topics[0], "table": "users_ui", "key": "userId", "columns": USERS},
        "accounts": {
            "topic": topics[1],
            "table": "accounts_ui",
            "key": "userId",
            "columns": ACCOUNTS,
            "rows": "latest",
        },
    }
    random_ = random.Random(7)
    control = {"topic": topic_name("control")}
    turnout = RunningTurnout(tmp_path, broker.bootstrap_servers, start="earliest", sources=sources, control=control)
    shown = 0
    with steady_load(broker.bootstrap_servers, topics, seed=7):
        for number in range(KILLS):
            # Half of the moments are in the start, when batches are replayed; the others come while it reads.
            turnout.start(ready=False)
            if number % 2:
                wait_until(lambda: turnout.answer("/healthz") == 200, what="an answer")
                time.sleep(random_.uniform(0, 4))
            else:
                turnout.wait_ready()
                assert turnout.total("users_ui") >= shown, "rows that were shown are gone"
                time.sleep(random_.uniform(0, 2))
                shown = turnout.total("users_ui")
            turnout.kill()
    with turnout:
        assert turnout.total("users_ui") >= shown, "rows that were shown are gone"
        assert_tables_equal_kafka(turnout, broker.bootstrap_servers, topics)
