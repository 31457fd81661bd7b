"""What a generation read -> its tables: decoded records and views in one transaction of the store a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from turnout.decode.decoder import Decoded
from turnout.plan.offsets import Gap, Lost, Offsets
from turnout.plan.tables import ViewTable
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.checkpoints import Folder
from turnout.spark.jvm.session import TaskSize
from turnout.spark.read.arrivals import Arrival
from turnout.spark.views.row_files import view_folder
from turnout.spark.views.runner import view_runner
from turnout.store.batches import Batch
from turnout.store.generation_tables import GenerationTables
from turnout.store.views.parts import Files, PartRunner

SMALL_BATCH = 20_000
"""Up to this many records, or rows of a view's sides, a plan that is kept is faster than files."""

PART_ROWS = TaskSize(1_200_000, short=400_000)
"""About how many rows of both sides one task joins while a view is built: of keys and ids."""


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


class Listener(Protocol):
    """Hears of batches and losses after their transaction, on the thread that stores; must not block."""

    def batch_done(self, report: BatchReport) -> None: ...

    def building_views(self, done: float) -> None:
        """Hear which share of the views is built, while they are built for the first time."""

    def lost(self, lost: Lost) -> None: ...

    def gaps(self, found: Sequence[Gap]) -> None: ...

    def denied(self, topic: str, read: Offsets) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """What a generation reads: where from, where to at least, and how much at a time."""

    start: Offsets
    target: Offsets
    checkpoint: Folder
    """Also for files on their way to views."""
    max_records_per_batch: int
    shared: bool = False
    """Whether executors see the folder of the checkpoint by its path."""
    careful: bool = False
    """Whether Spark has ended by itself before, perhaps by a record: then all that waits is read with care."""


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
        """Write what the live stream brought."""
        self.take(arrival.decoded, arrival.end, arrival.batch_id, caught_up=True)

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
            views = self.tables.layout.views if caught_up else batch.filled
            for index, view in enumerate(views):
                # The share of all views that is built, when `done` of this one is.
                self._write(batch, view, lambda done, index=index: (index + done) / len(views))  # type: ignore[misc]
            batch.finish(batch_id, end.to_json(), views_built=caught_up)
        for one in lost:
            self.listener.lost(one)
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

    def _write(self, batch: Batch, view: ViewTable, share: Callable[[float], float]) -> None:
        """Run the SQL of a view over the rows that a batch touches, or over all: few in memory, many through files.

        Few go through a plan that is kept. Many go in parts of their keys, of which none needs much memory.
        """
        rows, runner = batch.view(view), view_runner(self.session)
        if rows.state.whole:
            self.listener.building_views(share(0))
        if not rows.touched():
            return
        if (few := rows.few(SMALL_BATCH)) is not None:
            batch.replace(view, [runner.over_rows(view, few, unique=True)])
            return
        with view_folder(self.session, self.reading.checkpoint, shared=self.reading.shared) as (folder, frame):
            over = partial(runner.over_parts, name=self.tables.schema, frame=frame, own=view.own_sql)
            # A chain runs one step after the other, and cannot tell which share one part is.
            over = partial(self._told, over, share) if view.by_key and rows.state.whole else over
            cores = self.session.sparkContext.defaultParallelism
            part_rows = PART_ROWS.most(live=runner.live)
            batch.replace(view, rows.in_parts(PartRunner(folder, cores, part_rows, over)))

    def _told(
        self,
        over: Callable[[str, Sequence[Files]], Iterable[pa.Table]],
        share: Callable[[float], float],
        sql: str,
        parts: Sequence[Files],
    ) -> Iterator[pa.Table]:
        """The parts of a view; the listener hears of each. The store has about as much to do after the last one."""
        for number, part in enumerate(over(sql, parts), start=1):
            self.listener.building_views(share(number / (2 * len(parts))))
            yield part

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
