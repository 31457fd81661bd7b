"""What a generation read -> its tables: decoded records and views in one transaction of the store a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from turnout.decode.record_decoder import RecordDecoder
from turnout.decode.shape import Decoded
from turnout.plan.offsets import Lost, Offsets
from turnout.plan.tables import ViewTable
from turnout.spark.folders import Frame, folder_at, room
from turnout.spark.read.live import Arrival
from turnout.spark.views.runner import view_runner
from turnout.store.batches import Batch
from turnout.store.chain_files import Work
from turnout.store.generation_tables import GenerationTables
from turnout.store.view_files import write_rows

SMALL_BATCH = 20_000
"""Up to this many records, or rows of a view's sides, a plan that is kept is faster than files."""

PART_ROWS = 1_200_000
"""About how many rows of both sides one task joins while a view is built, at most: of keys and ids. Where it has SQL of
its own, and gets all columns, half of that."""

MOST_ROWS_HELD = 4_800_000
"""About how many rows of both sides all tasks together join at once: the driver has their results in memory."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One finished batch."""

    records: int
    bad: int
    evicted: Mapping[str, int]
    left_out: Mapping[str, Sequence[str]]
    """The keys that are left out from now on, by view, or step of a chain."""
    shown_again: Mapping[str, Sequence[str]]
    offsets: Offsets
    views_built: bool
    seconds: float
    newest_record: int | None
    """Milliseconds since 1970."""


Gap = tuple[str, int, int, int]
"""Topic, partition, and the offsets from the first to the second, not with it, that no record was read of."""


class Listener(Protocol):
    """Hears of batches and losses after their transaction, on the thread that stores; must not block."""

    def batch_done(self, report: BatchReport) -> None: ...

    def lost(self, generation: int, lost: Lost) -> None: ...

    def gaps(self, found: Sequence[Gap]) -> None: ...

    def denied(self, topic: str, read: Offsets) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What a generation reads: where from, where to at least, and how much at a time."""

    start: Offsets
    target: Offsets
    checkpoint: Path | str
    """A path, or a URL of a file system that Spark knows: also for files on their way to views."""
    max_records_per_batch: int
    shared: bool = False
    """Whether executors see the folder of the checkpoint by its path."""
    careful: bool = False
    """Whether Spark has ended by itself before, perhaps by a record: then all that waits is read with care."""


def send_dead_letters(session: SparkSession, topic: str, kafka: Mapping[str, str], letters: pa.Table) -> None:
    """Send bad records to a topic of their own, with headers that say where each came from."""
    headers = [
        F.struct(F.lit(f"turnout.{name}").alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
        for name in ("topic", "partition", "offset", "reason")
    ]
    # In one task: several would write side by side, and the letters would not be in the order of their records.
    frame = session.createDataFrame(letters).coalesce(1).select("key", "value", F.array(*headers).alias("headers"))
    frame.write.format("kafka").options(**kafka).option("topic", topic).save()


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes what one generation read; one thread at a time."""

    session: SparkSession
    tables: GenerationTables
    reading: Reading
    decoder: RecordDecoder
    send_dead_letters: Callable[[pa.Table], None] | None
    listener: Listener

    def store(self, arrival: Arrival) -> None:
        """Decode and write what the live stream brought."""
        records = arrival.records
        decoded = records if isinstance(records, Decoded) else self.decoder.decode(records)
        self.take(decoded, arrival.end, arrival.batch_id, caught_up=True)

    def take(self, decoded: Decoded, end: Offsets, batch_id: int | None, *, caught_up: bool) -> None:
        """Write records up to `end`; the views are built with the first batch that has caught up."""
        began = time.monotonic()
        with self.tables.batch(batch_id) as batch:
            if batch is None:
                return
            lost, gaps = self._missing(Offsets.kept(batch.offsets, self.reading.start), end, decoded)
            caught_up = batch.views_built or caught_up
            for one in lost:
                if one.deleted:
                    batch.begin_life(one.topic, one.partition)
            batch.load(decoded)
            # Before the batch is kept, so at least once: a batch that is read again after a crash sends them again.
            if self.send_dead_letters is not None and (letters := batch.dead_letters()) is not None:
                self.send_dead_letters(letters)
            for view in self.tables.layout.views:
                if batch.views_built:
                    self._update(batch, view)
                elif caught_up:
                    self._build(batch, view)
            batch.finish(batch_id, end.to_json(), views_built=caught_up)
        for one in lost:
            self.listener.lost(self.tables.generation, one)
        if gaps:
            self.listener.gaps(gaps)
        self.listener.batch_done(
            BatchReport(
                records=batch.records,
                bad=batch.bad,
                evicted=batch.evicted,
                left_out=batch.left_out.came,
                shown_again=batch.left_out.back,
                offsets=end,
                views_built=caught_up,
                seconds=time.monotonic() - began,
                newest_record=max((pc.max(t["_ts"]).as_py() for t in decoded.tables if t.num_rows), default=None),
            )
        )

    def _update(self, batch: Batch, view: ViewTable) -> None:
        """The view's rows of the keys that a batch touches: few through a plan that is kept, many through files."""
        if view.chain is not None:
            self._update_chain(batch, view)
            return
        few = not view.own or batch.records <= SMALL_BATCH
        rows = batch.affected(view) if few else {}
        if rows is None:
            return
        if few and sum(table.num_rows for table in rows.values()) <= SMALL_BATCH:
            batch.replace(view, [view_runner(self.session).over_rows(view, rows, unique=True)])
            return
        with self._room() as (folder, frame):
            if few:
                # On one core, because planning takes longer than all of the rows.
                sql, parts = view.narrow_sql_if_unique, [write_rows(rows, folder)]
            else:
                cores = self.session.sparkContext.defaultParallelism
                sql, parts = batch.export(view, folder, cores)
            found = view_runner(self.session).over_parts(sql, parts, self.tables.schema, frame, own=view.own)
            batch.replace(view, found)

    def _update_chain(self, batch: Batch, view: ViewTable) -> None:
        """The rows of a chain that a batch changes: few through a plan that is kept, many step by step."""
        rows = batch.affected(view, SMALL_BATCH)
        if rows is None:
            return
        if rows:
            batch.replace(view, [view_runner(self.session).over_rows(view, rows, unique=True)])
        else:
            self._join_steps(batch, view)
            batch.replace(view, [])

    def _join_steps(self, batch: Batch, view: ViewTable) -> None:
        with self._room() as (folder, frame):
            run = partial(view_runner(self.session).over_parts, name=self.tables.schema, frame=frame)
            batch.join_steps(view, Work(folder, self._parts, run))

    def _parts(self, size: int, part_rows: int | None = None) -> int:
        """In how many parts so many rows of both sides of a join are joined."""
        cores = self.session.sparkContext.defaultParallelism
        rows = min(part_rows or PART_ROWS, MOST_ROWS_HELD // cores)
        return cores * (size // (cores * rows) + 1)

    def _build(self, batch: Batch, view: ViewTable) -> None:
        """The view over everything; unless it is small, by parts of its keys, through files: none needs much memory."""
        if batch.size(view) <= SMALL_BATCH:
            batch.build(view, [view_runner(self.session).over_rows(view, batch.everything(view), unique=True)])
            return
        if view.chain is not None:
            self._join_steps(batch, view)
            batch.build(view, [])
            return
        with self._room() as (folder, frame):
            rows = PART_ROWS // (2 if view.own else 1)
            sql, parts = batch.export(view, folder, self._parts(batch.size(view), rows))
            found = view_runner(self.session).over_parts(sql, parts, self.tables.schema, frame, own=view.own)
            batch.build(view, found)

    def _room(self) -> AbstractContextManager[tuple[Path, Frame]]:
        return room(self.session, folder_at(self.session, self.reading.checkpoint), shared=self.reading.shared)

    def _missing(self, before: Offsets, end: Offsets, decoded: Decoded) -> tuple[list[Lost], list[Gap]]:
        """Partitions that were deleted, and ranges without a record, which may be lost: compaction leaves them too."""
        first = self.decoder.firsts(decoded)
        lost: list[Lost] = []
        gaps: list[Gap] = []
        for (topic, partition), start in before.next.items():
            until = end.next.get((topic, partition))
            if until is None or until < start:
                lost.append(Lost(topic, partition, start, until))
            elif (found := first.get((topic, partition), until)) > start:
                gaps.append((topic, partition, start, found))
        return lost, gaps
