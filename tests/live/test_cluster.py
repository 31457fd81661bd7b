"""Turnout on a Spark cluster: a master and two workers as separate hosts, one of which is lost on the way.

It is also the process that is ended while its broker is away.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bulk_turnout
import oracle
from child_processes import SHORT_LIVED
from kafka_log import read_all
from lengths import LONG
from namespaces import not_run
from shared_broker import formatted
from spark_cluster import Hosts, SparkCluster, Worker, bare_python, broker_for, hosts
from turnout.java.jars import cache_folder
from turnout.plan.joins import Duplicates, Join
from turnout.testing import EmbeddedBroker, create_topic, produce, wait_until
from turnout_process import ASKED_SECONDS, RunningTurnout
from two_topics import assert_ends_soon, wait_reason, wait_total

USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}
FEW, MANY = (1_500, 45_000) if LONG else (500, 4_500)
"""Records in a topic. Many of both are read in bulk after the first pieces, and their view is built in parts."""

FIRST_PIECES = 40_000 if LONG else 2 * bulk_turnout.FIRST_PIECE


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts that see neither the driver's folders nor its jars."""
    hidden = [tmp_path / "driver", cache_folder().parent]
    for folder in hidden:
        folder.mkdir(parents=True, exist_ok=True)
    with hosts(["master", "one", "two"], hidden) as made:
        yield made


def fill(bootstrap: str, prefix: str, count: int) -> None:
    """Records of all kinds: rows, doubles of keys, tombstones, and some that are no JSON or of a wrong type."""
    for topic, other in ((f"{prefix}-users", "age"), (f"{prefix}-accounts", "balance")):
        create_topic(bootstrap, topic, 2)
        good = (
            b'{"userId":"%s%d","name":"n%d","email":"e","age":%d,"accountType":"a%d","balance":%d.5}'
            % (prefix.encode(), n % (MANY * 2 // 3), n, n % 90, n, n)
            for n in range(count)
        )
        odd = [b"nope", b'{"userId":"k1","%s":"x"}' % other.encode(), None, b'{"name":"nobody"}']
        produce(bootstrap, topic, [(value, b"k", n % 2) for n, value in enumerate([*good, *odd])])


def assert_equal(turnout: RunningTurnout, bootstrap: str, topics: tuple[str, str]) -> None:
    """Compare every table with the plain computation over what Kafka holds."""
    records = read_all(bootstrap, topics)
    users = oracle.Source("users", topics[0], "userId", USERS, latest=False)
    accounts = oracle.Source("accounts", topics[1], "userId", ACCOUNTS, latest=False)
    (left, left_bad), (right, right_bad) = oracle.read_source(users, records), oracle.read_source(accounts, records)
    wait_total(turnout, "users_ui", len(left))
    wait_total(turnout, "accounts_ui", len(right))
    assert oracle.bag(turnout.rows("users_ui")) == oracle.bag(kept.row for kept in left)
    assert oracle.bag(turnout.rows("accounts_ui")) == oracle.bag(kept.row for kept in right)
    expected = oracle.join_rows(users, left, accounts, right, Join.LEFT, Duplicates.LATEST)
    assert oracle.bag(turnout.rows("final_ui")) == oracle.bag(expected)
    assert len(turnout.rows("bad_records")) == len(left_bad | right_bad)
    [quality] = turnout.rows("join_quality")
    assert quality == {"view": "final_ui"} | oracle.quality(users, left, accounts, right)


def records_read(turnout: RunningTurnout) -> int:
    """How many records the generation that is being built has read."""
    return int((turnout.status()["progress"] or {"records": 0})["records"])


def lose_in_a_task(worker: Worker) -> None:
    """Kill a worker and its executor, certainly while a task runs: the executor is held while its log is looked at."""
    [executor] = worker.executors()

    def in_a_task() -> bool:
        executor.send_signal(signal.SIGSTOP)
        if worker.running_tasks():
            return True
        executor.send_signal(signal.SIGCONT)
        return False

    wait_until(in_a_task, interval=0.02, what="a task on the worker")
    worker.kill()


@pytest.mark.namespaces("mount", "net")
def test_cluster_reads_swaps_and_loses_a_worker(place: Hosts, broker: EmbeddedBroker, tmp_path: Path) -> None:
    own, bootstrap = broker_for(place, formatted(broker, tmp_path / "broker"))
    python = bare_python(tmp_path / "python")
    with own, SparkCluster(tmp_path / "cluster", place) as cluster:
        cluster.start_workers()
        create_topic(bootstrap, "control", 1)
        fill(bootstrap, "a", FEW)
        fill(bootstrap, "b", MANY)
        sources = {
            "users": {"topic": "a-users", "table": "users_ui", "key": "userId", "columns": USERS},
            "accounts": {"topic": "a-accounts", "table": "accounts_ui", "key": "userId", "columns": ACCOUNTS},
        }
        conf = cluster.conf | {
            "spark.pyspark.python": str(python),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": " ".join(SHORT_LIVED),
        }
        spark = {"master": cluster.master, "driver_memory": "1g", "conf": conf}
        turnout = RunningTurnout(tmp_path / "driver", bootstrap, start="earliest", sources=sources, spark=spark)
        if not LONG:
            turnout.command = [sys.executable, str(Path(bulk_turnout.__file__))]
        with turnout:
            assert_equal(turnout, bootstrap, ("a-users", "a-accounts"))
            message = {"usersTopic": "b-users", "accountsTopic": "b-accounts"}
            turnout.http.post("/api/control", params={"wait": "false"}, json=message).raise_for_status()
            wait_until(lambda: records_read(turnout) >= FIRST_PIECES, what="the first pieces")
            lose_in_a_task(cluster.workers["one"])
            assert turnout.status()["progress"], "the catch-up was over when the worker was lost"
            wait_until(lambda: turnout.status()["usersTopic"] == "b-users", interval=ASKED_SECONDS, what="the swap")
            assert_equal(turnout, bootstrap, ("b-users", "b-accounts"))
            assert "Lost executor" in (turnout.data_dir / "spark" / "spark.log").read_text()
            own.stop()
            wait_reason(turnout, bootstrap, "cannot be reached")
            assert_ends_soon(turnout, signal.SIGTERM)
    if place.why_not:
        not_run(f"workers on hosts of their own (on this machine's network all went well): {place.why_not}")
