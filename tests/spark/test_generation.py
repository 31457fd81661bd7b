"""A generation that is stopped stays stopped, however late its catch-up ends, or its stream starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest

from fed_generation import Quiet
from filled_store import Filling, _joined
from turnout.decode.decoder import Decoded
from turnout.decode.shape import RAW
from turnout.plan.offsets import Offsets
from turnout.plan.tables import ViewTable
from turnout.schemas.record_decoder import RecordDecoder
from turnout.store.database import Database
from turnout.store.generation_tables import GenerationTables
from turnout.testing import patience, wait_until

if TYPE_CHECKING:
    from turnout.spark.generation import GenerationQuery

START = Offsets({("users", 0): 0, ("accounts", 0): 0})


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


class Reader:
    """Reads nothing, as there is nothing."""

    cores = 2

    def __init__(self, session: object, name: str, decoder: RecordDecoder, *properties: object) -> None:
        self._decoder = decoder

    def read(self, start: Offsets, end: Offsets) -> Decoded:
        return self._decoder.decode(RAW.empty_table())

    def cancel(self) -> None: ...


class Views:
    """A view's SQL in DuckDB, which understands the same text."""

    def __init__(self, session: object) -> None: ...

    def over_rows(self, view: ViewTable, rows: dict[str, pa.Table], *, unique: bool) -> pa.Table:
        return _joined(view, rows)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GenerationTables]:
    monkeypatch.setattr("turnout.spark.generation.LiveStream", Stream)
    monkeypatch.setattr("turnout.spark.generation.KafkaReaders", Reader)
    monkeypatch.setattr("turnout.spark.writing.view_runner", Views)
    Stream.deeds.clear()
    database = Database.open(tmp_path)
    made = Filling(database).generation()
    with database.write() as cursor:
        cursor.execute("UPDATE g1.progress SET views_built = false")
    yield made
    database.close()


def query_of(tables: GenerationTables, folder: Path, ends: Callable[[Sequence[str]], Offsets]) -> GenerationQuery:
    from turnout.spark.generation import GenerationQuery, Kafka
    from turnout.spark.jvm.checkpoints import LocalFolder
    from turnout.spark.writing import Reading

    kafka = Kafka(java=dict, librdkafka=dict, ends=ends, wait_for_more=Still().wait_for_more)
    session: Any = None
    reading = Reading(START, START, LocalFolder(folder), 10)
    return GenerationQuery(session, tables, reading, kafka, Quiet())


def test_catch_up_that_ends_after_a_stop_starts_no_stream(tables: GenerationTables, tmp_path: Path) -> None:
    gate = Gate()

    def ends(topics: Sequence[str]) -> Offsets:
        if tables.progress().views_built:  # the question before the stream starts
            gate.passed()
        return START

    query = query_of(tables, tmp_path / "stream", ends)
    query.start()
    assert gate.reached.wait(patience())
    assert not query.stop(timeout_seconds=0.1)
    gate.opened.set()
    catch_up = query._catch_up
    assert catch_up is not None
    wait_until(lambda: not catch_up.running, what="the catch-up to end")
    assert Stream.deeds == []


def test_stream_that_starts_while_a_stop_gives_up_is_stopped(
    tables: GenerationTables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    numbered = tables.number_from_start

    def slowly() -> None:
        gate.passed()
        numbered()

    monkeypatch.setattr(tables, "number_from_start", slowly)
    query = query_of(tables, tmp_path / "stream", lambda topics: START)
    query.start()
    assert gate.reached.wait(patience())
    assert not query.stop(timeout_seconds=0.1)
    gate.opened.set()
    catch_up = query._catch_up
    assert catch_up is not None
    wait_until(lambda: not catch_up.running, what="the catch-up to end")
    assert Stream.deeds == ["started", "stopped"]
