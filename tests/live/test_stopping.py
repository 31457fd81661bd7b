"""A generation that is stopped stays stopped, however late its catch-up ends, or its stream starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from test_exactness import Case, Runner

from fed import Quiet
from turnout.joins import Duplicates, Join
from turnout.offsets import Offsets
from turnout.testing import patience, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turnout.spark.generation import GenerationQuery

CASE = Case([], [], set(), 0, ("all", "all"), None, Duplicates.LATEST, [Join.LEFT, Join.FULL])


class Gate:
    """Something slow: whoever comes waits inside until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def passed(self) -> None:
        self.reached.set()
        assert self.opened.wait(patience())


class Still:
    """A Kafka in which nothing happens."""

    def wait_for_more(self, topics: Sequence[str], read: Offsets, stopped: threading.Event) -> None:
        stopped.wait()


class Stream:
    """Stands where Spark's stream does: one without Kafka ends by itself, and so would show nothing."""

    deeds: ClassVar[list[str]] = []
    failure = None

    def __init__(self, *parts: object) -> None:
        self.running = False

    def start(self, *settings: object) -> None:
        self.running = True
        self.deeds.append("started")

    def stop(self, timeout_seconds: float) -> bool:
        self.running = False
        self.deeds.append("stopped")
        return True


@pytest.fixture
def runner(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.setattr("turnout.spark.generation.LiveStream", Stream)
    Stream.deeds.clear()
    made = Runner(spark, CASE, tmp_path)
    with made.database.write() as cursor:
        cursor.execute("UPDATE g1.progress SET views_built = false")
    yield made
    made.database.close()


def query_of(
    runner: Runner, spark: SparkSession, folder: Path, ends: Callable[[Sequence[str]], Offsets]
) -> GenerationQuery:
    from turnout.spark.generation import GenerationQuery, Kafka, Reading

    kafka = Kafka(java=lambda: {"bootstrap.servers": "127.0.0.1:9"}, librdkafka=dict, ends=ends, watch=Still())
    return GenerationQuery(spark, runner.tables, Reading(runner.start, runner.start, folder, 10), kafka, Quiet())


def test_catch_up_that_ends_after_a_stop_starts_no_stream(spark: SparkSession, runner: Runner, tmp_path: Path) -> None:
    gate = Gate()

    def ends(topics: Sequence[str]) -> Offsets:
        if runner.tables.progress().views_built:  # the question before the stream starts
            gate.passed()
        return runner.start

    query = query_of(runner, spark, tmp_path / "stream", ends)
    query.start()
    assert gate.reached.wait(patience())
    assert not query.stop(timeout_seconds=0.1)
    gate.opened.set()
    wait_until(lambda: not query.running, what="the catch-up to end")
    assert Stream.deeds == []


def test_stream_that_starts_while_a_stop_gives_up_is_stopped(
    spark: SparkSession, runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    numbered = runner.tables.number_from_start

    def slowly() -> None:
        gate.passed()
        numbered()

    monkeypatch.setattr(runner.tables, "number_from_start", slowly)
    query = query_of(runner, spark, tmp_path / "stream", lambda topics: runner.start)
    query.start()
    assert gate.reached.wait(patience())
    assert not query.stop(timeout_seconds=0.1)
    gate.opened.set()
    wait_until(lambda: not query.running, what="the stream to be stopped")
    assert Stream.deeds == ["started", "stopped"]
