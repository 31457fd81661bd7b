"""A generation that tests feed with batches, through the code of the streaming query, without Kafka and stream."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from hypothesis import strategies as st

from lengths import CUTS
from oracle import Sent, numbered
from turnout.config import Settings
from turnout.config.tables import first_plan, layout_of
from turnout.decode.decoder import Decoded
from turnout.decode.shape import RAW
from turnout.plan.offsets import OFFSET_BITS, Lost, Offsets
from turnout.plan.tables import Layout, ViewTable
from turnout.schemas.record_decoder import RecordDecoder
from turnout.store.database import Database
from turnout.store.generation_tables import GenerationTables
from turnout.store.kept_sources import KeptTopics
from turnout.store.query.windows import Window, read_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turnout.spark.writing import BatchReport


class Quiet:
    """A listener that does nothing."""

    def batch_done(self, report: BatchReport) -> None: ...

    def building_views(self, done: float) -> None: ...

    def lost(self, lost: Lost) -> None: ...

    def gaps(self, found: Sequence[tuple[str, int, int, int]]) -> None: ...

    def denied(self, topic: str, read: Offsets) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Course:
    """A random run: its records, the sizes of its batches, its restarts, and the batch that catches up."""

    records: list[Sent]
    cuts: list[int]
    restarts: set[int]
    caught_up_after: int

    def batches(self, start: Offsets) -> Iterator[tuple[int, list[Sent], Offsets]]:
        """Yield the number, the records and the end offsets of each batch."""
        ends = dict(start.next)
        for number, (begin, end) in enumerate(pairwise([0, *self.cuts, len(self.records)])):
            part = self.records[begin:end]
            for record in part:
                ends[record.topic, record.partition] = record.offset + 1
            yield number, part, Offsets(dict(ends))

    def target(self, start: Offsets) -> Offsets:
        """Return the offsets at which the run has caught up."""
        return list(self.batches(start))[self.caught_up_after - 1][2] if self.caught_up_after else start

    def play(self, fed: FedGeneration, start: Offsets, compare: Compare, *, replays: bool = True) -> None:
        """Feed batch after batch, and compare after each; a stream replays the batch before a restart."""
        seen: list[Sent] = []
        built = self.caught_up_after == 0
        for number, records, end in self.batches(start):
            fed.feed(number, records, end)
            if number in self.restarts:
                fed.restart()
                if replays:
                    fed.feed(number, records, end)
            seen += records
            built = built or end.reached(fed.target)
            compare(seen, views=built)
        fed.database.close()


def places(draw: st.DrawFn, sources: Collection[str]) -> Iterator[tuple[str, int, int]]:
    """Draw the positions of up to 24 records: source, partition and offset."""
    ends: dict[tuple[str, int], int] = {}
    for _ in range(draw(st.integers(0, 24))):
        source, partition = draw(st.sampled_from(list(sources))), draw(st.integers(0, 1))
        offset = ends.get((source, partition), 0)
        ends[source, partition] = offset + 1
        yield source, partition, offset


@st.composite
def courses(draw: st.DrawFn, records: st.SearchStrategy[list[Sent]]) -> Course:
    sent = draw(records)
    cuts = sorted(draw(st.lists(st.integers(0, len(sent)), max_size=CUTS)))
    restarts = draw(st.sets(st.integers(0, CUTS + 1), max_size=2))
    return Course(sent, cuts, restarts, caught_up_after=draw(st.integers(0, len(cuts) + 1)))


class Compare(Protocol):
    """A function that compares the tables with their expected contents after these records."""

    def __call__(self, seen: list[Sent], *, views: bool) -> None: ...


class KeptSources(KeptTopics):
    """Kept topics without kept views."""

    def views(self, layout: Layout) -> list[ViewTable]:
        return []


class FedGeneration:
    """A published generation, which has caught up once a batch reaches `target`."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path, start: Offsets, target: Offsets) -> None:
        self.target = target
        self._spark = spark
        self._folder = folder
        self._layout = layout_of(settings, first_plan(settings))
        self._number = 1
        self.start = start
        self._open()
        with self.database.write() as cursor:
            self.tables.create(cursor, views_built=start.reached(target))
            self.tables.publish(cursor)

    def _open(self) -> None:
        self.database = Database.open(self._folder)
        self._take_up()

    def _take_up(self) -> None:
        from turnout.spark.jvm.checkpoints import LocalFolder
        from turnout.spark.writing import Reading, Writer

        self.tables = GenerationTables(self.database, self._number, self._layout)
        self.decoder = RecordDecoder(self._layout.sources)
        self.writer = Writer(
            self._spark,
            self.tables,
            Reading(self.start, self.target, LocalFolder(self._folder / "checkpoint"), 1000),
            self.decoder,
            None,
            Quiet(),
        )

    def restart(self) -> None:
        self.database.close()
        self._open()

    def swap(self, settings: Settings, target: Offsets | None = None) -> None:
        """Publish a generation with other views that keeps all sources; views that are not kept wait for `target`."""
        before = self.tables
        self._number, self._layout = self._number + 1, layout_of(settings, first_plan(settings))
        self.start = self.read()
        self.target = target or self.start
        self._take_up()
        with self.database.transaction() as cursor:
            self.tables.create(cursor, views_built=False)
            KeptTopics(before, topics=frozenset(self._layout.topics)).copy(cursor, self.tables)
        if target is None:
            self._build()
        with self.database.write() as cursor:
            self.tables.publish(cursor)
            before.drop(cursor)

    def _build(self) -> None:
        """Build the views that are not kept."""
        self.writer.take(self._nothing(), self.read(), None, caught_up=True)

    def _nothing(self) -> Decoded:
        return self.decoder.decode(self.raw([]))

    def other_than_built(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows, with hidden columns, that differ from a generation that builds all views again."""
        built = GenerationTables(self.database, 1_000_000 + self._number, self._layout)
        with self.database.transaction() as cursor:
            built.create(cursor, views_built=False)
            KeptSources(self.tables, topics=frozenset(self._layout.topics)).copy(cursor, built)
        replace(self.writer, tables=built).take(self._nothing(), self.read(), None, caught_up=True)
        with self.database.transaction() as cursor:
            other = {}
            for table in (*self._layout.tables, "left_out"):
                sides = self.tables.table(table), built.table(table)
                rows = [f"(FROM {one} EXCEPT ALL FROM {two})" for one, two in permutations(sides)]
                other[table] = cursor.execute(" UNION ALL ".join(rows)).fetchall()
            built.drop(cursor)
        return {table: rows for table, rows in other.items() if rows}

    def feed(self, number: int, records: list[Sent], end: Offsets) -> None:
        decoded = self.decoder.decode(self.raw(records))
        self.writer.take(decoded, end, number, caught_up=end.reached(self.target))

    def raw(self, records: list[Sent]) -> pa.Table:
        """Return records in the format of the stream."""
        columns = [
            [self._layout.topics.index(r.topic) for r in records],
            [r.partition << OFFSET_BITS | r.offset for r in records],
            [r.timestamp_ms for r in records],
            [r.key for r in records],
            [r.value for r in records],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW, strict=True)]
        return pa.table(arrays, schema=RAW)

    def read(self) -> Offsets:
        """Return the offsets that the store has read."""
        return Offsets.kept(self.tables.progress().offsets, self.start)

    def identities(self, table: str) -> int:
        """Return the number of distinct row ids of a table."""
        with self.database.read() as cursor:
            [(count,)] = cursor.execute(f"SELECT count(DISTINCT _row) FROM {table}").fetchall()
            return int(count)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table, with times as numbers, because Python cannot represent all years."""
        return numbered(read_window(self.database, Window(table)).rows)
