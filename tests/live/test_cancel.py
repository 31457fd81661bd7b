"""Builds under way: how far they are, and how they are cancelled while what is published goes on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from in_process_orchestrator import Orchestrated, orchestrated
from kafka_log import read_all
from turnout.config import parse
from turnout.decode.decoder import Decoded
from turnout.kafka.topics import Topics, TopicSample
from turnout.local.broker import EmbeddedBroker
from turnout.plan.control import ApplyRequest, Outcome
from turnout.spark.generation import GenerationQuery
from turnout.spark.read.catch_up import Piece
from turnout.swap.build_progress import BuildMeter
from turnout.swap.control_queue import QueuedMessage, Reply
from turnout.testing import create_topic, patience, produce, wait_until
from turnout_process import ASKED_SECONDS
from two_topics import account, sections, user

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 20


@dataclass(frozen=True, slots=True)
class Names:
    """The topics of a test: two of users, one of accounts, one for acknowledgements."""

    bootstrap: str
    users: str
    users2: str
    accounts: str
    acks: str

    def sections(self, **more: Any) -> dict[str, Any]:
        found = sections(self.users, self.accounts, **more)
        return found | {"control": found["control"] | {"ack_topic": self.acks}, "swap": {"linger_seconds": 0.2}}

    @property
    def control(self) -> str:
        return f"{self.users}-control"


@pytest.fixture
def names(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> Names:
    made = Names(broker.bootstrap_servers, *map(topic_name, ("users", "users", "accounts", "acks")))
    for topic in (made.users, made.users2, made.accounts, made.acks, made.control):
        create_topic(made.bootstrap, topic, 1)
    for topic in (made.users, made.users2):
        produce(made.bootstrap, topic, [user(number) | {"name": topic} for number in range(RECORDS)])
    produce(made.bootstrap, made.accounts, [account(number) for number in range(RECORDS)])
    return made


@pytest.fixture
def go_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, no generation stores a piece that it read; a stop ends the wait."""
    released, take_piece = threading.Event(), GenerationQuery.take_piece

    def held(self: GenerationQuery, piece: Piece, decoded: Decoded) -> None:
        while not (self._stopping or released.wait(0.01)):
            pass
        take_piece(self, piece, decoded)

    released.set()
    monkeypatch.setattr(GenerationQuery, "take_piece", held)
    yield released
    released.set()


@dataclass(frozen=True, slots=True)
class Building:
    """An orchestrator in the middle of a build, and the message that asked for it."""

    running: Orchestrated
    message: QueuedMessage

    def submit(self, **fields: Any) -> QueuedMessage:
        return self.running.orchestrator.queue.submit(json.dumps(fields), "test")

    def outcomes(self) -> list[str | None]:
        return [row["outcome"] for row in self.running.rows("control_raw")]

    def assert_untouched(self, topic: str) -> None:
        """Generation 1 is published, with its rows, and there is nothing of another."""
        status = self.running.orchestrator.status()
        assert (status["generation"], status["state"], status["progress"]) == (1, "live", None)
        assert {row["name"] for row in self.running.rows("users_ui")} == {topic}
        assert generations_of(self.running) == (["g1"], ["g1"])


def generations_of(running: Orchestrated) -> tuple[list[str], list[str]]:
    """The schemas and the checkpoints of generations."""
    with running.database.read() as cursor:
        rows = cursor.execute("SELECT schema_name FROM duckdb_schemas() WHERE schema_name ~ '^g[0-9]+$'").fetchall()
    folder = running.settings.data_dir / "checkpoints"
    return sorted(name for (name,) in rows), sorted(path.name for path in folder.iterdir())


def answer_of(message: QueuedMessage) -> Reply:
    assert message.done.wait(patience())
    assert message.answer is not None
    return message.answer


@contextmanager
def building(folder: Path, spark: SparkSession, names: Names, go_on: threading.Event) -> Iterator[Building]:
    """Publish generation 1, and begin to build one of the second topic."""
    with orchestrated(folder, spark, names.bootstrap, **names.sections()) as running:
        go_on.clear()
        message = running.orchestrator.queue.submit(json.dumps({"usersTopic": names.users2}), "test")
        wait_until(lambda: running.orchestrator.status()["state"] == "catching_up", what="a build")
        yield Building(running, message)


def test_cancel_ends_the_build_and_another_swap_follows(
    names: Names, spark: SparkSession, tmp_path: Path, go_on: threading.Event
) -> None:
    with building(tmp_path, spark, names, go_on) as built:
        produce(names.bootstrap, names.control, [{"action": "cancel", "requestId": "stop"}])
        answer = answer_of(built.message)
        assert (answer.outcome, answer.detail, answer.generation) == (Outcome.CANCELLED, "cancelled by topic", 1)
        built.assert_untouched(names.users)
        assert built.outcomes() == ["cancelled", "applied"]
        assert [row["outcome"] for row in built.running.rows("swaps")] == ["applied", "cancelled"]
        [acknowledged] = [row for row in acks(names, 2) if row["requestId"] == "stop"]
        assert acknowledged["outcome"] == "applied"
        assert acknowledged["detail"].startswith(f"cancelled the build of users={names.users2} ")

        late = built.running.send(action="cancel")
        assert late.error is not None and (late.outcome, late.error.code) == (Outcome.REJECTED, "nothing_to_cancel")
        go_on.set()
        again = built.running.send(usersTopic=names.users2)
        assert (again.outcome, again.generation) == (Outcome.APPLIED, 3)
        assert {row["name"] for row in built.running.rows("users_ui")} == {names.users2}


def acks(names: Names, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def all_there() -> bool:
        found[:] = [json.loads(record.value or b"") for record in read_all(names.bootstrap, [names.acks])]
        return len(found) >= count

    wait_until(all_there, interval=ASKED_SECONDS, what="acknowledgements")
    return found


def test_rollback_during_a_build_stays_with_what_is_published(
    names: Names, spark: SparkSession, tmp_path: Path, go_on: threading.Event
) -> None:
    with building(tmp_path, spark, names, go_on) as built:
        wrong = answer_of(built.submit(action="cancel", expectedGeneration=2))
        assert wrong.error is not None and wrong.error.code == "generation_conflict", "at once, and the build goes on"
        assert built.running.orchestrator.status()["progress"] is not None
        back = built.running.send(action="rollback", expectedGeneration=1)
        assert (back.outcome, back.generation) == (Outcome.ROLLED_BACK, 1)
        assert back.detail.endswith("; generation 1 stays published")
        assert answer_of(built.message).outcome is Outcome.CANCELLED
        built.assert_untouched(names.users)
        nothing = built.running.send(action="rollback")
        assert nothing.error is not None and nothing.error.code == "nothing_to_roll_back"


def test_cancel_concerns_the_build_under_way_and_not_what_waits(
    names: Names, spark: SparkSession, tmp_path: Path, go_on: threading.Event
) -> None:
    with building(tmp_path, spark, names, go_on) as built:
        waits = built.submit(joinType="inner")
        cancels = [built.submit(action="cancel") for _ in range(2)]
        assert answer_of(built.message).outcome is Outcome.CANCELLED
        go_on.set()
        assert (answer_of(waits).outcome, answer_of(waits).generation) == (Outcome.APPLIED, 3)
        status = built.running.orchestrator.status()
        assert (status["usersTopic"], status["joinType"]) == (names.users, "inner")
        assert answer_of(cancels[0]).outcome is Outcome.APPLIED
        assert built.outcomes()[0] == "cancelled" and all(built.outcomes())


def test_validation_and_an_apply_can_be_cancelled(
    names: Names, spark: SparkSession, tmp_path: Path, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled, look = threading.Event(), Topics.look

    def held(self: Topics, topic: str, count: int) -> TopicSample:
        assert sampled.wait(patience())
        return look(self, topic, count)

    document = yaml.safe_dump(
        {"kafka": {"bootstrap_servers": names.bootstrap}, "data_dir": str(tmp_path / "data"), **names.sections()},
        sort_keys=False,
    )
    with orchestrated(tmp_path, spark, names.bootstrap, **names.sections()) as running:
        monkeypatch.setattr(Topics, "look", held)
        asked = running.orchestrator.queue.submit(json.dumps({"usersTopic": names.users2}), "test")
        wait_until(lambda: running.orchestrator.status()["state"] == "validating", what="validation")
        progress = running.orchestrator.status()["progress"]
        assert (progress["generation"], progress["step"], progress["state"]) == (2, "validating", "validating")
        assert running.send(action="cancel").outcome is Outcome.APPLIED
        assert answer_of(asked).outcome is Outcome.CANCELLED
        Building(running, asked).assert_untouched(names.users)
        sampled.set()

        go_on.clear()
        changed = document.replace("age: int64", "age: double")
        before = running.orchestrator.configuration.settings
        applied = running.orchestrator.apply(ApplyRequest(changed), "test")
        wait_until(lambda: running.orchestrator.status()["state"] == "catching_up", what="a build")
        assert running.send(action="cancel").outcome is Outcome.APPLIED
        answer = answer_of(applied)
        assert answer.outcome is Outcome.CANCELLED and answer.report is not None
        assert [change["path"] for change in answer.report["changes"]] == ["sources.users.columns.age"]
        assert running.orchestrator.configuration.settings is before, "nothing of the file is in force"
        Building(running, applied).assert_untouched(names.users)


def test_progress_moves_while_records_are_read_and_covers_the_views(
    names: Names, spark: SparkSession, tmp_path: Path, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the view is built in parts.
    monkeypatch.setattr("turnout.spark.writing.SMALL_BATCH", 0)
    shares: list[float] = []
    views = BuildMeter.views

    def noted(self: BuildMeter, done: float) -> None:
        shares.append(done)
        views(self, done)

    monkeypatch.setattr(BuildMeter, "views", noted)
    with building(tmp_path, spark, names, go_on) as built:
        shares.clear()
        first = built.running.orchestrator.status()["progress"]
        assert (first["step"], first["recordsToRead"], first["lag"]) == ("reading", RECORDS, RECORDS), (
            "accounts are kept"
        )
        assert first["secondsLeft"] is None
        wait_until(
            lambda: built.running.orchestrator.status()["progress"]["percent"] > first["percent"],
            what="a percentage that moves although nothing is stored",
        )
        go_on.set()
        assert answer_of(built.message).outcome is Outcome.APPLIED
        assert shares == sorted(shares) and shares[0] == 0 and 0 < shares[-1] < 1, "parts of the view"
        assert built.running.orchestrator.status()["progress"] is None


def test_first_build_is_not_cancelled_and_one_in_the_middle_of_it_is_told_at_once(
    names: Names, spark: SparkSession, tmp_path: Path, go_on: threading.Event
) -> None:
    go_on.clear()
    document = {"kafka": {"bootstrap_servers": names.bootstrap}, "data_dir": str(tmp_path / "data"), **names.sections()}
    running = Orchestrated(parse(document, tmp_path, {}), spark)
    running.orchestrator.start()
    try:
        wait_until(lambda: running.orchestrator.status()["progress"], what="the first build")
        early = running.send(action="cancel")
        assert early.error is not None and (early.outcome, early.error.code) == (Outcome.REJECTED, "nothing_to_cancel")
        assert early.detail.startswith("the first build cannot be cancelled")
        go_on.set()
        running.wait_ready()
        assert len(running.rows("users_ui")) == RECORDS
    finally:
        running.orchestrator.stop()
        running.database.close()


def test_cancel_that_a_stop_interrupts_is_done_after_the_next_start(
    names: Names, spark: SparkSession, tmp_path: Path, go_on: threading.Event
) -> None:
    with building(tmp_path, spark, names, go_on) as built:
        built.running.orchestrator.stop()
        built.submit(action="cancel", requestId="kept")
        assert built.outcomes() == [None, None]
    go_on.set()
    with orchestrated(tmp_path, spark, names.bootstrap, **names.sections()) as running:
        restarted = Building(running, built.message)
        wait_until(lambda: all(restarted.outcomes()), what="both outcomes")
        assert restarted.outcomes() == ["cancelled", "applied"]
        restarted.assert_untouched(names.users)
        assert [row["outcome"] for row in running.rows("swaps")] == ["applied", "cancelled"]
