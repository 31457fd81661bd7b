"""Swaps that keep what was read: a message reads only what it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import test_applies

from in_process_orchestrator import Orchestrated, orchestrated
from lengths import KEEPING_HISTORIES, KEEPING_STEPS
from live_socket import Socket
from random_swaps import COLUMNS, RandomSwaps
from turnout.local.broker import EmbeddedBroker
from turnout.plan.control import Outcome
from turnout.testing import create_topic, delete_topic, produce, wait_until
from turnout_client.messages import WindowRows
from turnout_process import ASKED_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = {"userId": "string", "name": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}


class Topics:
    """Two topics of users and one of accounts, whose records say where they came from."""

    def __init__(self, bootstrap: str, topic_name: Callable[[str], str]) -> None:
        self.bootstrap = bootstrap
        self.users, self.others, self.accounts = topic_name("users"), topic_name("users"), topic_name("accounts")
        self.control = topic_name("control")
        for topic in (self.users, self.others, self.accounts, self.control):
            create_topic(bootstrap, topic, 2)

    def add(self, topic: str, numbers: range) -> None:
        values = [{"userId": f"k{n}", "name": topic, "age": n, "accountType": topic, "balance": n} for n in numbers]
        produce(self.bootstrap, topic, values)

    def sections(self, **more: Any) -> dict[str, Any]:
        users = {"topic": self.users, "table": "users_ui", "key": "userId", "columns": USERS}
        accounts = {"topic": self.accounts, "table": "accounts_ui", "key": "userId", "columns": ACCOUNTS}
        view = {"left": "users", "right": "accounts", "on": "userId"}
        return {
            "sources": {"users": users, "accounts": accounts},
            "views": {"final_ui": view},
            "control": {"topic": self.control},
            "swap": {"linger_seconds": 0.2, "max_linger_generations": 1},
            **more,
        }


@pytest.fixture
def topics(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> Topics:
    return Topics(broker.bootstrap_servers, topic_name)


def wait_rows(running: Orchestrated, **tables: int) -> None:
    def counts() -> dict[str, int]:
        return {table: len(running.rows(table)) for table in tables}

    wait_until(lambda: counts() == tables, interval=ASKED_SECONDS, what=lambda: f"{tables}; there are {counts()}")


def last_swap(running: Orchestrated) -> dict[str, Any]:
    row = running.rows("swaps")[-1]
    return {**row, "sources": json.loads(row["sources"])}


def test_another_join_keeps_every_row_that_was_shown(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **topics.sections()) as running:
        topics.add(topics.users, range(6))
        topics.add(topics.accounts, range(3))
        produce(broker.bootstrap_servers, topics.users, [b"nope"])
        wait_rows(running, users_ui=6, accounts_ui=3, final_ui=6, bad_records=1)
        users, bad = running.rows("users_ui"), running.rows("bad_records")
        report = running.send(joinType="inner", dryRun=True).report
        assert report is not None
        assert report["sources"] == {"users": {"kept": 6, "read": 0}, "accounts": {"kept": 3, "read": 0}}
        answer = running.send(joinType="inner")
        assert (answer.outcome, answer.generation) == (Outcome.APPLIED, 2)
        assert (running.rows("users_ui"), running.rows("bad_records")) == (users, bad)
        assert len(running.rows("final_ui")) == 3
        assert last_swap(running)["sources"] == report["sources"]
        # It reads on where the generation before it stopped.
        topics.add(topics.accounts, range(3, 5))
        wait_rows(running, users_ui=6, accounts_ui=5, final_ui=5)
        running.send(joinType="anti")
        assert sorted(row["userId"] for row in running.rows("final_ui")) == ["k5"]
        # A rollback after the linger time keeps rows, too.
        wait_until(lambda: not running.orchestrator.status()["lingering"], what="the end of the linger time")
        assert running.send(action="rollback").outcome is Outcome.ROLLED_BACK
        wait_rows(running, users_ui=6, accounts_ui=5, final_ui=5, bad_records=1)


def test_another_topic_keeps_the_sources_that_the_message_does_not_name(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **topics.sections()) as running:
        topics.add(topics.others, range(10))
        topics.add(topics.users, range(6))
        topics.add(topics.accounts, range(3))
        wait_rows(running, users_ui=6, accounts_ui=3)
        running.send(usersTopic=topics.others)
        assert last_swap(running)["sources"] == {"users": {"read": 0}, "accounts": {"kept": 3, "read": 0}}
        assert (running.rows("users_ui"), len(running.rows("accounts_ui"))) == ([], 3)
        # A start for one source reads that one alone.
        running.send(start={"users": "earliest"})
        assert last_swap(running)["sources"] == {"users": {"read": 10}, "accounts": {"kept": 3, "read": 0}}
        assert {row["name"] for row in running.rows("users_ui")} == {topics.others}
        assert (len(running.rows("users_ui")), len(running.rows("final_ui"))) == (10, 10)
        # A start for all reads all.
        running.send(start="earliest", joinType="inner")
        assert last_swap(running)["sources"] == {"users": {"read": 10}, "accounts": {"read": 3}}
        wait_rows(running, users_ui=10, accounts_ui=3, final_ui=3)


def test_topic_that_was_made_anew_is_read_not_kept(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    with orchestrated(tmp_path, spark, bootstrap, **topics.sections(start="earliest")) as running:
        topics.add(topics.users, range(6))
        topics.add(topics.accounts, range(3))
        wait_rows(running, users_ui=6, accounts_ui=3)
        delete_topic(bootstrap, topics.users)
        create_topic(bootstrap, topics.users, 2)
        topics.add(topics.users, range(10, 12))
        # Whether the published generation has noticed it by now or not.
        assert running.send(joinType="inner").outcome is Outcome.APPLIED
        assert last_swap(running)["sources"] == {"users": {"read": 2}, "accounts": {"kept": 3, "read": 0}}
        wait_rows(running, users_ui=2, accounts_ui=3)


def test_changed_file_keeps_rows_over_a_restart(
    broker: EmbeddedBroker, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **topics.sections()) as running:
        topics.add(topics.users, range(6))
        topics.add(topics.accounts, range(3))
        wait_rows(running, users_ui=6, accounts_ui=3)
    view = {"left": "users", "right": "accounts", "on": "userId"}
    more = {"views": {"final_ui": view, "paired_ui": view | {"join": "inner"}}}
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **topics.sections(**more)) as running:
        wait_rows(running, users_ui=6, accounts_ui=3, final_ui=6, paired_ui=3)


def test_viewer_of_a_kept_source_sees_no_change_of_its_rows(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    made = test_applies.Topics(broker.bootstrap_servers, topic_name)
    with (
        test_applies.served(tmp_path, spark, made.document(tmp_path)) as server,
        Socket(server.url) as socket,
    ):
        asked = {"type": "window", "table": "users_ui", "sort": "age"}
        viewer = test_applies.Viewer(socket, users=asked, joined={"type": "window", "table": "final_ui"})
        viewer.until(viewer.all_at(1, "users", "joined"))
        first = viewer.take(WindowRows)["users"][-1]
        assert len(first.rows) == 20
        # A message that changes the join, and a file with a view more: both read nothing.
        assert server.running.send(joinType="inner").generation == 2
        viewer.until(viewer.all_at(2, "users", "joined"))
        view = {"left": "users", "right": "accounts", "on": "userId"}
        assert server.apply(views={"final_ui": view, "alone_ui": view | {"join": "anti"}})["generation"] == 3
        viewer.until(viewer.all_at(3, "users", "joined"))
        sent = viewer.take(WindowRows)
        assert [(one.total, one.rows) for one in sent["users"]] == [(first.total, first.rows)] * len(sent["users"])
        assert [one.total for one in sent["joined"]][-1] == 10
        assert len(server.running.rows("alone_ui")) == 10
        assert last_swap(server.running)["sources"] == {
            "users": {"kept": 20, "read": 0},
            "accounts": {"kept": 10, "read": 0},
        }


STEPS = (
    *("join", "users", "accounts", "branches", "all", "same", "start all", "start one", "apply", "apply"),
    *("restart", "rollback", "rollback", "late rollback", "retention", "retention"),
)
"""The kinds of steps of a random history: a long one has them all, in any order."""


class History:
    """One random history: each step is done to Turnout and to the model, and then both are compared."""

    def __init__(self, swaps: RandomSwaps, folder: Path, spark: SparkSession, ends: ExitStack) -> None:
        self.swaps = swaps
        self.done: list[str] = []
        self._folder = folder
        self._spark = spark
        self._ends = ends
        self._file = {**swaps.sections(["final_ui"]), "data_dir": str(folder / "data")}
        self._start()

    def _start(self) -> None:
        self._server = self._ends.enter_context(test_applies.served(self._folder, self._spark, self._file))

    def play(self) -> None:
        steps = self.swaps.random.sample(STEPS, KEEPING_STEPS)
        for step in steps:
            # The published generation may have read these by the time of the step, or not.
            self.swaps.write()
            self.done.append(step)
            self._play(step)
            self.swaps.wait_equal(self._server.running)

    def _play(self, step: str) -> None:
        if step == "restart":
            self._ends.close()
            self.swaps.lingers = False
            self._start()
        elif step == "retention":
            # What a generation has not read yet would be lost to it.
            self.swaps.wait_equal(self._server.running)
            self._wait_read()
            self.swaps.remove_old_records()
        elif step == "apply":
            views = self.swaps.sections(self.swaps.apply())["views"]
            self._server.apply(views=views)
        elif step == "rollback":
            self._send({"action": "rollback"}, self.swaps.roll_back())
        elif step == "late rollback":
            self._end_linger_time()
            self._send({"action": "rollback"}, self.swaps.roll_back())
        else:
            self._send(*self.swaps.message(step))

    def _send(self, message: dict[str, Any], expected: Outcome) -> None:
        self.done[-1] += f" {json.dumps(message)}"
        answer = self._server.running.send(**message)
        assert answer.outcome is expected, answer

    def _wait_read(self) -> None:
        """Return when generations that linger have read everything: a rollback may show them again."""
        lingering = list(self._server.running.orchestrator._lifecycle.lingering)
        ends = self.swaps.end_offsets()
        wait_until(lambda: all(one.offsets.reached(ends) for one in lingering), what="all is read")

    def _end_linger_time(self) -> None:
        orchestrator = self._server.running.orchestrator
        for generation in list(orchestrator._lifecycle.lingering):
            generation.lingering_since = float("-inf")
        wait_until(lambda: not orchestrator.status()["lingering"], what="the end of the linger time")
        self.swaps.lingers = False


@pytest.mark.parametrize("seed", range(KEEPING_HISTORIES))
def test_tables_after_any_swaps_equal_a_plain_computation(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, topic_name: Callable[[str], str], seed: int
) -> None:
    topics = {source: (topic_name(source), topic_name(source)) for source in COLUMNS}
    swaps = RandomSwaps(broker.bootstrap_servers, seed, topics, topic_name("control"))
    with ExitStack() as ends:
        history = History(swaps, tmp_path, spark, ends)
        try:
            history.play()
        except BaseException as error:
            error.add_note(f"seed {seed}; steps: {history.done}")
            raise
