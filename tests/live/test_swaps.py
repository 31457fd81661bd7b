"""Hot swaps seen from inside: no reader ever sees a mixture, nothing is left behind, every message is accounted for."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from background_work import beside
from in_process_orchestrator import Orchestrated, orchestrated
from kafka_writer import writing
from lengths import LONG, STORM, SWAPS
from turnout.local.broker import EmbeddedBroker
from turnout.plan.control import Outcome
from turnout.store.database import Database
from turnout.testing import create_topic, patience, produce, wait_until
from turnout_process import ASKED_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOINS = ("left", "inner", "full", "anti", "semi", "right", "natural")


@dataclass(frozen=True, slots=True)
class Topics:
    """Two pairs of topics whose records say where they came from."""

    users: tuple[str, str]
    accounts: tuple[str, str]
    control: str


@pytest.fixture
def topics(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> Topics:
    made = Topics(
        (topic_name("users"), topic_name("users")),
        (topic_name("accounts"), topic_name("accounts")),
        topic_name("control"),
    )
    for topic in (*made.users, *made.accounts, made.control):
        create_topic(broker.bootstrap_servers, topic, 1)
    for which in (0, 1):
        fill(broker.bootstrap_servers, made, which, range(20))
    return made


def fill(bootstrap: str, topics: Topics, which: int, numbers: range) -> None:
    for topic, values in records(topics, which, numbers).items():
        produce(bootstrap, topic, values)


def records(topics: Topics, which: int, numbers: range) -> dict[str, list[dict[str, Any]]]:
    users, accounts = topics.users[which], topics.accounts[which]
    return {
        users: [{"userId": f"k{i}", "name": users, "email": "e", "age": i} for i in numbers],
        accounts: [{"userId": f"k{i}", "accountType": accounts, "balance": i} for i in numbers if i % 2],
    }


def sections(topics: Topics, **more: Any) -> dict[str, Any]:
    columns = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
    users = {"topic": topics.users[0], "table": "users_ui", "key": "userId", "columns": columns}
    columns = {"userId": "string", "accountType": "string", "balance": "double"}
    accounts = {"topic": topics.accounts[0], "table": "accounts_ui", "key": "userId", "columns": columns}
    return {
        "sources": {"users": users, "accounts": accounts},
        "control": {"topic": topics.control},
        "start": "earliest",
        "swap": {"linger_seconds": 0.2, "max_linger_generations": 1},
        **more,
    }


@dataclass
class Reader:
    """Reads all tables and the status in one transaction, again and again, and notes what must not be."""

    database: Database
    reads: int = 0
    faults: list[str] = field(default_factory=list)
    generations: set[int] = field(default_factory=set)

    def run(self, stopped: threading.Event) -> None:
        # The long form looks as fast as it can, which takes a whole core.
        while not stopped.wait(0 if LONG else 0.1):
            try:
                self.look()
            except Exception as error:
                self.faults.append(f"error: {error!r}")
            self.reads += 1

    def look(self) -> None:
        with self.database.read() as cursor:
            generation, users, accounts, join = cursor.execute(
                "SELECT generation, usersTopic, accountsTopic, joinType FROM orchestrator_status"
            ).fetchone() or (0, "", "", "")
            from_users = dict(cursor.execute("SELECT name, count(*) FROM users_ui GROUP BY 1").fetchall())
            from_accounts = dict(cursor.execute("SELECT accountType, count(*) FROM accounts_ui GROUP BY 1").fetchall())
            joined = cursor.execute("SELECT name, accountType, count(*) FROM final_ui GROUP BY ALL").fetchall()
            alone = cursor.execute(
                "SELECT count(*) FROM final_ui f WHERE name IS NOT NULL AND NOT EXISTS "
                "(SELECT 1 FROM users_ui u WHERE u.userId = f.userId AND u.age = f.age)"
            ).fetchone()
        self.generations.add(generation)
        self.check(f"users {from_users} under {users}", set(from_users) == {users} and from_users[users] >= 20)
        self.check(f"accounts {from_accounts} under {accounts}", set(from_accounts) == {accounts})
        names, kinds = {row[0] for row in joined} - {None}, {row[1] for row in joined} - {None}
        self.check(f"final_ui {joined} under {users}, {accounts}", names <= {users} and kinds <= {accounts})
        self.check(f"final_ui is empty under {join}", bool(joined))
        self.check(f"{alone} rows of final_ui without their user", alone == (0,))

    def check(self, what: str, good: bool) -> None:
        if not good:
            self.faults.append(what)


@contextmanager
def reading(database: Database) -> Iterator[Reader]:
    reader = Reader(database)
    with beside(reader.run):
        yield reader


@contextmanager
def load(bootstrap: str, topics: Topics) -> Iterator[None]:
    """New records in all topics all the time."""

    def run(stopped: threading.Event) -> None:
        with writing(bootstrap) as writer:
            for number in itertools.count(20):
                # Each write is a batch of all generations that read.
                if stopped.wait(0.2 if LONG else 0.8):
                    return
                for which in (0, 1):
                    for topic, values in records(topics, which, range(number, number + 2)).items():
                        writer.write(topic, values)

    with beside(run):
        yield


def size_mb(folder: Path) -> float:
    """The size of the files below a folder in which others write and remove: what goes meanwhile counts nothing."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(path) / name).stat().st_size
    return total / 2**20


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a process holds on to."""

    threads: int
    files: int
    queries: int
    schemas: tuple[str, ...]
    checkpoints: tuple[str, ...]
    memory_mb: float
    data_mb: float

    @classmethod
    def of(cls, running: Orchestrated, spark: SparkSession) -> Footprint:
        gc.collect()
        process = psutil.Process()
        queries, schemas, checkpoints = generations_of(running, spark)
        return cls(
            threads=process.num_threads(),
            files=process.num_fds(),
            queries=queries,
            schemas=schemas,
            checkpoints=checkpoints,
            memory_mb=process.memory_info().rss / 2**20,
            data_mb=size_mb(running.settings.data_dir),
        )


def generations_of(running: Orchestrated, spark: SparkSession) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """What there is of generations: how many queries, which schemas, which checkpoints."""
    with running.database.read() as cursor:
        schemas = cursor.execute("SELECT schema_name FROM duckdb_schemas() WHERE schema_name ~ '^g[0-9]+$'").fetchall()
    folder = running.settings.data_dir / "checkpoints"
    checkpoints = tuple(sorted(path.name for path in folder.iterdir()))
    return len(spark.streams.active), tuple(sorted(name for (name,) in schemas)), checkpoints


def settled(running: Orchestrated, spark: SparkSession) -> Footprint:
    """The footprint once nothing lingers."""

    def alone() -> bool:
        # What has caught up is published, and reads on by a query, with a checkpoint, a moment later.
        queries, schemas, checkpoints = generations_of(running, spark)
        return (queries, len(schemas), len(checkpoints)) == (1, 1, 1)

    with contextlib.suppress(TimeoutError):  # what is left is told by what is asserted of the footprint
        wait_until(alone, interval=ASKED_SECONDS)
    return Footprint.of(running, spark)


def test_swaps_under_load_show_no_mixture_and_leave_nothing_behind(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections(topics)) as running:
        swap_under_load(running, broker.bootstrap_servers, topics, range(SWAPS // 2))
        before = settled(running, spark)
        swap_under_load(running, broker.bootstrap_servers, topics, range(SWAPS // 2, SWAPS))
        after = settled(running, spark)
        assert (after.queries, len(after.schemas), len(after.checkpoints)) == (1, 1, 1)
        # The threads of the load's producers end a moment after the producers, and with them their files.
        wait_until(
            lambda: no_more(Footprint.of(running, spark), before, 5), interval=ASKED_SECONDS, what="nothing left behind"
        )
    assert after.memory_mb <= before.memory_mb * 1.25 + 50
    assert after.data_mb <= before.data_mb * 1.25 + 20


def no_more(now: Footprint, before: Footprint, some: int) -> bool:
    """Whether there are hardly more threads and files: pools have some, or some less."""
    return now.threads <= before.threads + some and now.files <= before.files + some


def swap_under_load(running: Orchestrated, bootstrap: str, topics: Topics, numbers: range) -> None:
    with load(bootstrap, topics), reading(running.database) as reader:
        for number in numbers:
            answer = running.send(
                usersTopic=topics.users[(number + 1) % 2],
                accountsTopic=topics.accounts[(number // 2) % 2],
                joinType=JOINS[number % len(JOINS)],
            )
            assert answer.outcome is Outcome.APPLIED, answer
    assert reader.faults == []
    assert len(reader.generations) > len(numbers) / 2


def test_storm_of_messages_ends_in_the_combined_state(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    messages: list[Any] = []
    for number in range(STORM):
        kind = number % 5
        if kind == 0:
            messages.append({"usersTopic": topics.users[number // 5 % 2], "requestId": str(number)})
        elif kind == 1:
            messages.append({"joinType": JOINS[number % len(JOINS)], "requestId": str(number)})
        elif kind == 2:
            messages.append({"accountsTopic": topics.accounts[1], "requestId": str(number)})
        elif kind == 3:
            messages.append({"requestId": str(number)})
        else:
            messages.append(f'{{"broken {number}')
    messages[-5:] = [{"usersTopic": topics.users[1], "joinType": "inner", "requestId": "last"}]
    acks = f"{topics.control}-acks"
    create_topic(bootstrap, acks, 1)
    with orchestrated(
        tmp_path, spark, bootstrap, **sections(topics, control={"topic": topics.control, "ack_topic": acks})
    ) as running:
        produce(bootstrap, topics.control, messages)
        wait_until(
            lambda: len(rows := running.rows("control_raw")) == len(messages) and all(r["outcome"] for r in rows),
            interval=ASKED_SECONDS,
            what="an outcome for every message",
        )
        status = running.orchestrator.status()
        assert (status["usersTopic"], status["accountsTopic"]) == (topics.users[1], topics.accounts[1])
        assert status["joinType"] == "inner"
        rows = running.rows("control_raw")
        assert [row["offset"] for row in rows] == list(range(len(messages)))
        outcomes = Counter(row["outcome"] for row in rows)
        assert outcomes["rejected"] == sum(isinstance(message, str) for message in messages)
        assert outcomes["failed"] == 0
        assert outcomes["applied"] == len(running.rows("swaps")) - 1 <= 20
        assert sum(outcomes.values()) == len(messages)


def test_empty_data_folder_takes_its_plan_from_the_control_topic(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    messages = [
        {"usersTopic": topics.users[1], "requestId": "a"},
        {"joinType": "inner", "requestId": "b"},
        {"accountsTopic": "gone-since", "requestId": "c"},
        {"action": "rollback", "requestId": "d"},
        {"joinType": "sideways", "requestId": "e"},
    ]
    produce(broker.bootstrap_servers, topics.control, messages)
    for life in ("first", "second"):
        with orchestrated(tmp_path / life, spark, broker.bootstrap_servers, **sections(topics)) as running:
            status = running.orchestrator.status()
            assert (status["usersTopic"], status["accountsTopic"]) == (topics.users[1], topics.accounts[0])
            assert (status["joinType"], status["generation"]) == ("inner", 1)
            assert {row["name"] for row in running.rows("final_ui")} == {topics.users[1]}
            outcomes = {row["requestId"]: row["outcome"] for row in running.rows("control_raw")}
            assert outcomes == {
                "a": "superseded",
                "b": "superseded",
                "c": "superseded",
                "d": "applied",
                "e": "rejected",
            }


def test_rollback_is_immediate_while_the_old_generation_lingers(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    slow = {"linger_seconds": 600, "max_linger_generations": 2}
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections(topics, swap=slow)) as running:
        assert running.send(usersTopic=topics.users[1]).generation == 2
        fill(broker.bootstrap_servers, topics, 0, range(20, 25))
        back = running.send(action="rollback")
        assert (back.outcome, back.generation) == (Outcome.ROLLED_BACK, 1)
        wait_until(lambda: len(running.rows("users_ui")) == 25, what="the old generation to go on reading")
        again = running.send(action="rollback")
        assert (again.outcome, again.generation) == (Outcome.ROLLED_BACK, 2)
        assert {row["name"] for row in running.rows("users_ui")} == {topics.users[1]}
        assert [row["outcome"] for row in running.rows("swaps")] == ["applied", "applied", "rolled_back", "rolled_back"]


def test_swap_is_logged_undone_by_a_build_followed_by_one_from_the_latest_records_and_by_a_restart(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    with orchestrated(tmp_path, spark, bootstrap, **sections(topics)) as running:
        assert running.send(action="rollback").outcome is Outcome.REJECTED, "there is nothing before it"
        raw: dict[str, Any] = {"usersTopic": topics.users[1], "surprise": 1}
        running.send(**raw)
        settled(running, spark)
        assert_log_tells_the_story_of_the_swap(running, raw)

        # After the linger time a rollback is an ordinary build.
        back = running.send(action="rollback")
        assert (back.outcome, back.generation) == (Outcome.ROLLED_BACK, 3)
        assert {row["name"] for row in running.rows("users_ui")} == {topics.users[0]}

        # From the latest records there is nothing to catch up on; what comes is read.
        answer = running.send(usersTopic=topics.users[1], joinType="full", start="latest")
        assert (answer.outcome, answer.generation) == (Outcome.APPLIED, 4)
        assert (running.rows("users_ui"), running.rows("final_ui")) == ([], [])
        fill(bootstrap, topics, 1, range(30, 34))
        wait_until(lambda: len(running.rows("final_ui")) == 4, what="what comes")
        shown = running.rows("final_ui")
        assert {row["name"] for row in shown} == {topics.users[1]}

    fill(bootstrap, topics, 1, range(20, 24))
    with orchestrated(tmp_path, spark, bootstrap, **sections(topics)) as running:
        status = running.orchestrator.status()
        assert (status["generation"], status["usersTopic"], status["joinType"]) == (4, topics.users[1], "full")
        assert running.rows("final_ui")[: len(shown)] == shown
        wait_until(lambda: len(running.rows("users_ui")) == 8, what="what came meanwhile")


def assert_log_tells_the_story_of_the_swap(running: Orchestrated, raw: dict[str, Any]) -> None:
    wait_until(lambda: "closed generation 1" in [r["msg"] for r in running.rows("orchestrator_logs")])
    lines = [row["msg"] for row in running.rows("orchestrator_logs")]
    for start in ("control message raw: ", "building generation 2: ", "topics set: ", "swapped generation 1 "):
        assert sum(line.startswith(start) for line in lines) >= 1, start
    assert any(json.dumps(raw) in line and "changed: true" in line for line in lines)
    assert any("surprise" in line for line in lines), "an unknown field is warned about"


def reserve(bootstrap: str, topic: str) -> None:
    """Let somebody else read the topic, and so nobody but them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rule = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:somebody-else",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(patience())


def test_messages_that_change_nothing_or_cannot_be_done_build_nothing_and_leave_nothing_behind(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    bootstrap = broker.bootstrap_servers
    garbage, sealed = topic_name("garbage"), topic_name("sealed")
    create_topic(bootstrap, garbage, 1)
    create_topic(bootstrap, sealed, 1)
    reserve(bootstrap, sealed)
    produce(bootstrap, garbage, [b"\x00\x01", "nope", "[]", "<xml/>"])
    with orchestrated(tmp_path, spark, bootstrap, **sections(topics)) as running:
        # Counted without the load, whose producers have threads and files of their own.
        before = settled(running, spark)
        send_a_dry_run(running, topics)
        send_what_is_so_already(running, topics)
        with load(bootstrap, topics):
            send_what_cannot_be_done(running, topics, garbage, sealed)
        assert running.orchestrator.status()["generation"] == 1
        assert len(running.rows("swaps")) == 1
        after = settled(running, spark)
        assert (after.queries, after.schemas, after.checkpoints) == (before.queries, ("g1",), before.checkpoints)
        # The threads of the load's producers end a moment after the producers.
        wait_until(
            lambda: Footprint.of(running, spark).threads <= before.threads + 3,
            interval=ASKED_SECONDS,
            what="no thread left behind",
        )


def send_a_dry_run(running: Orchestrated, topics: Topics) -> None:
    """It reports what a swap would do."""
    answer = running.send(usersTopic=topics.users[1], joinType="inner", dryRun=True)
    assert answer.outcome is Outcome.UNCHANGED
    assert answer.report is not None
    assert answer.report["changes"] is True
    assert answer.report["records"] == {"users": 20, "accounts": 0}
    assert answer.report["sources"] == {"users": {"read": 20}, "accounts": {"kept": 10, "read": 0}}
    assert list(answer.report["columns"]["final_ui"]) == [
        "userId",
        "name",
        "email",
        "age",
        "accountType",
        "balance",
    ]
    assert answer.report["sampleUnmatched"]["final_ui"][0] == "k0"
    assert running.orchestrator.status()["generation"] == 1
    assert len(running.rows("swaps")) == 1


def send_what_is_so_already(running: Orchestrated, topics: Topics) -> None:
    """It changes when a message was applied last, and by which, and nothing else."""
    before = running.orchestrator.status()["lastApplied"]
    time.sleep(0.01)
    answer = running.send(usersTopic=f" {topics.users[0]} ", joinType="LEFT OUTER", accountsTopic="", requestId="same")
    assert answer.outcome is Outcome.UNCHANGED
    status = running.orchestrator.status()
    assert status["lastApplied"] > before
    assert (status["generation"], status["requestId"]) == (1, "same")
    lines = [row["msg"] for row in running.rows("orchestrator_logs")]
    assert any("changed: false" in line for line in lines)
    assert any(line.startswith("no change") for line in lines)


def send_what_cannot_be_done(running: Orchestrated, topics: Topics, garbage: str, sealed: str) -> None:
    seen = len(running.rows("users_ui"))
    missing = running.send(usersTopic="not-there", requestId="a")
    bad = running.send(usersTopic=garbage, requestId="b")
    stale = running.send(usersTopic=topics.users[1], expectedGeneration=7)
    join = running.send(joinType="sideways")
    forbidden = running.send(usersTopic=sealed)
    assert [a.outcome for a in (missing, bad, stale, join, forbidden)] == [Outcome.REJECTED] * 5
    assert f"topic '{sealed}' may not be read" in forbidden.detail
    assert "does not exist; create it or name another" in missing.detail
    assert "none of its newest 4 records is a row of source 'users'" in bad.detail
    assert stale.error is not None
    assert stale.error.status == 409
    assert "known: left, natural" in join.detail
    wait_until(lambda: len(running.rows("users_ui")) > seen, what="the old generation to go on reading")


def test_build_that_times_out_is_cleaned_up(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    hasty = {"linger_seconds": 0.2, "catch_up_timeout_seconds": 0.001}
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections(topics, swap=hasty)) as running:
        answer = running.send(usersTopic=topics.users[1])
        assert answer.outcome is Outcome.FAILED
        assert "raise swap.catch_up_timeout_seconds" in answer.detail
        footprint = settled(running, spark)
        assert (footprint.queries, footprint.schemas, footprint.checkpoints) == (1, ("g1",), ("g1",))
        assert running.rows("swaps")[-1]["outcome"] == "failed"
        fill(broker.bootstrap_servers, topics, 0, range(20, 21))
        wait_until(lambda: len(running.rows("users_ui")) == 21, what="the old generation to go on reading")
