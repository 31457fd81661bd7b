"""One generation at work: a streaming query that reads all its topics, decodes, joins and fills its tables.

The query keeps no state of its own besides Spark's checkpoint of offsets; everything shown is in the store, in one
transaction a batch. When it starts and stops is the orchestrator's decision.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.streaming.query import StreamingQuery

from turnout.decoders import Decoder
from turnout.errors import first_line
from turnout.layout import Layout, ViewTable
from turnout.offsets import EARLIEST, Lost, Offsets
from turnout.records import Decoded
from turnout.spark.bulk import FEW, BulkReader
from turnout.spark.callbacks import CallbackConnections
from turnout.spark.catch_up import CatchUp, Piece, next_piece
from turnout.spark.completing import completed
from turnout.spark.decode import decode, readings_of
from turnout.spark.folders import folder_at, room
from turnout.spark.java_errors import words_of, words_of_error
from turnout.spark.session import pool
from turnout.spark.source import FETCH, read_range
from turnout.spark.views import ViewRunner
from turnout.store.batches import Batch
from turnout.store.generations import GenerationTables

log = logging.getLogger("turnout")

SMALL_BATCH = 20_000
"""Up to this many records one task is faster than several."""

PART_ROWS = 600_000
"""About how many rows of both sides one task joins while a view is built, at most."""

MOST_ROWS_HELD = 4_800_000
"""About how many rows of both sides all tasks together join at once: the driver has their results in memory."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a generation reads: where from, where to at least, and how much at a time."""

    kafka: Callable[[], Mapping[str, str]]
    """The properties of Kafka's Java client, asked for at every start: files that they come from may change."""
    start: Offsets
    target: Offsets
    checkpoint: Path | str
    """A path, or a URL of a file system that Spark knows."""
    max_records_per_batch: int
    dead_letter_topic: str | None = None
    explain: Callable[[Sequence[str]], str] = lambda words: words[-1]
    """A failure in words for people, from those of an exception and its causes."""
    ends: Callable[[Sequence[str]], Offsets] = lambda topics: Offsets({})
    """Where topics end now; those that are gone are left out."""
    decoders: Mapping[str, Decoder] = field(default_factory=dict)
    """What reads the sources that are not JSON."""
    shared: bool = False
    """Whether executors see the folder of the checkpoint by its path."""


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One finished batch."""

    generation: int
    batch_id: int | None
    """None while catching up, which has no stream."""
    records: int
    bad: int
    evicted: Mapping[str, int]
    offsets: Offsets
    views_built: bool
    seconds: float
    newest_record: datetime | None = None


class Listener(Protocol):
    """Who hears of batches and losses; called on the query's thread, must not block."""

    def batch_done(self, report: BatchReport) -> None: ...

    def lost(self, generation: int, lost: Lost) -> None: ...

    def low_watermark(self, topic: str, partition: int) -> int | None: ...

    def denied(self, topic: str, read: Offsets) -> bool: ...


class GenerationQuery:
    """The streaming query of one generation."""

    def __init__(self, session: SparkSession, tables: GenerationTables, reading: Reading, listener: Listener) -> None:
        self.generation = tables.generation
        self._session = session
        self._tables = tables
        self._layout: Layout = tables.layout
        self._reading = reading
        self._kafka = self._options()
        self._listener = listener
        self._views = ViewRunner(session)
        self._busy = threading.Lock()
        self._stopping = False
        self._query: StreamingQuery | None = None
        self._catch_up: CatchUp | None = None
        self._failure: Exception | None = None
        self._callbacks = CallbackConnections(session)
        self._readings = readings_of(self._layout, reading.decoders)
        self._bulk = BulkReader(session, f"g{self.generation}", self._readings)
        self._checkpoint = folder_at(session, reading.checkpoint)

    def start(self) -> None:
        """Start to read, or go on: with catching up where the store says, after that where the checkpoint says."""
        self._stopping, self._failure, self._catch_up = False, None, None
        self._kafka = self._options()
        if self._tables.progress().views_built:
            self._start_stream()
            return
        # What a stream has left there knows nothing of how far the store is.
        self._checkpoint.clear()
        self._catch_up = CatchUp(
            f"g{self.generation}",
            self._bulk,
            self._kafka,
            self._read_so_far(),
            self._plan,
            self.take_piece,
            then=self._start_stream,
        )
        self._catch_up.start()

    def _read_so_far(self) -> Offsets:
        return Offsets.kept(self._tables.progress().offsets, self._reading.start)

    def _start_stream(self) -> None:
        start = self._read_so_far()
        if not any(name.isdigit() for name in self._checkpoint.below("offsets").names()):
            self._tables.number_from_start()
            start = start.for_start(self._reading.ends(self._layout.topics))
        pattern = "|".join(re.escape(topic) for topic in self._layout.topics)
        stream = (
            self._session.readStream.format("kafka")
            .options(**FETCH)
            .options(**self._kafka)
            # A pattern, because a subscription to a list ends when one of its topics is deleted.
            .option("subscribePattern", f"^({pattern})$")
            .option("startingOffsets", start.to_json())
            .option("maxOffsetsPerTrigger", self._reading.max_records_per_batch)
            .load()
        )
        with pool(self._session, f"g{self.generation}"):
            self._query = (
                decode(stream, self._readings)
                .writeStream.queryName(f"g{self.generation}")
                .option("checkpointLocation", self._checkpoint.location)
                .foreachBatch(self._on_batch)
                .start()
            )

    def _options(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in self._reading.kafka().items()}

    @property
    def running(self) -> bool:
        catching_up, query = self._catch_up is not None and self._catch_up.running, self._query
        return catching_up or (query is not None and query.isActive)

    @property
    def idle(self) -> bool:
        """Whether Kafka has told that there is nothing new to read."""
        query = self._query
        return query is not None and str(query.status["message"]).startswith("Waiting for")

    def failure(self) -> str | None:
        """Why the query ended by itself, in one line; None while it runs or when it was stopped."""
        if self.running or self._stopping:
            return None
        if self._failure is not None:
            return first_line(self._failure)
        if self._catch_up is not None and self._catch_up.error is not None:
            return self._reading.explain(words_of_error(self._catch_up.error)).splitlines()[0]
        if (query := self._query) is None:
            return None
        error = query._jsq.exception()
        if not error.isDefined():
            return "the query ended without an error"
        return self._reading.explain(words_of(error.get())).splitlines()[0]

    @property
    def error(self) -> Exception | None:
        """The error that the last batch raised on our side, such as one of the store."""
        return self._failure

    def stop(self, timeout_seconds: float = 10.0) -> bool:
        """Stop after the batch under way, waiting a bounded time; whether it ended in that time.

        The lock is let go before the query is stopped: a batch that begins meanwhile must be able to see that it
        should not, or Spark would wait for it and it for us.
        """
        self._stopping = True
        ended = self._catch_up is None or self._catch_up.stop(timeout_seconds)
        if ended and (ended := self._busy.acquire(timeout=timeout_seconds)):
            self._busy.release()
        try:
            if self._query is not None:
                self._query.stop()
        except Exception as error:
            log.warning("generation %s did not stop as it should: %s", self.generation, first_line(error))
            ended = False
        # The JVM holds what is called for a batch, and that would hold the query: neither could ever go. One that did
        # not stop in time was told to, and goes when it has ended.
        self._query = None
        self._callbacks.close()
        return ended

    def _on_batch(self, frame: DataFrame, batch_id: int) -> None:
        self._callbacks.note()
        with self._busy:
            if self._stopping:
                raise RuntimeError("the generation is stopping")
            try:
                self.process_frame(frame, batch_id, self._offsets_of(batch_id))
            except Exception as error:
                self._failure = error
                raise

    def process_frame(self, frame: DataFrame, batch_id: int, end: Offsets) -> None:
        """Take the decoded records of one batch, which ends at `end`, in one transaction of the store.

        A large batch is read in bulk, and the frame is left as it is.
        """
        started = time.monotonic()
        with self._tables.batch(batch_id) as batch:
            if batch is None:
                return
            before = Offsets.kept(batch.offsets, self._reading.start)
            # A topic that may not be seen any more looks deleted; what was read of it is remembered.
            end = end.keeping(before, self._listener.denied)
            anew = before.made_anew(end)
            if before.behind(end) > FEW and not anew and self._is_there(before, end):
                decoded = self._bulk.read(self._kafka, before.up_to(end), end, before.behind(end))
            else:
                decoded = self._decoded(frame, before, end, anew)
            caught_up = batch.views_built or end.reached(self._reading.target)
            self._write(batch, decoded, before, end, caught_up=caught_up)
            batch.finish(batch_id, end.to_json(), views_built=caught_up)
        self._report(batch, batch_id, decoded, end, caught_up, started)

    def _is_there(self, before: Offsets, end: Offsets) -> bool:
        """Whether Kafka has all between the two, as far as its ends can tell: only a stream reads past a gone topic."""
        ends = self._reading.ends(self._layout.topics)
        return all(ends.next.get(place, 0) >= end.next[place] for place in before.up_to(end).next)

    def _decoded(self, frame: DataFrame, before: Offsets, end: Offsets, anew: Offsets | None) -> Decoded:
        if anew:
            # Spark skips to the end of a topic that was deleted and made anew between two batches.
            frame = frame.unionByName(decode(self._from_start(anew), self._readings))
        if before.behind(end) <= SMALL_BATCH:
            frame = frame.coalesce(1)
        return Decoded(completed(_unread(frame.toArrow(), before, anew), self._readings))

    def _plan(self, at: Offsets, records: int) -> Piece:
        """The next piece to catch up on."""
        ends = self._reading.ends(self._layout.topics)
        piece = next_piece(at, self._reading.target, ends, records)
        # The views have to be built, even if there was nothing to read.
        return piece or Piece(at, Offsets({}), at, last=True)

    def take_piece(self, piece: Piece, decoded: Decoded) -> None:
        """Take a piece in one transaction of the store; after the last one the views are there."""
        started = time.monotonic()
        with self._busy:
            if self._stopping:
                raise RuntimeError("the generation is stopping")
            try:
                with self._tables.batch(None) as batch:
                    assert batch is not None
                    self._write(batch, decoded, piece.before, piece.end, caught_up=piece.last)
                    batch.finish(None, piece.end.to_json(), views_built=piece.last)
            except Exception as error:
                self._failure = error
                raise
        self._report(batch, None, decoded, piece.end, piece.last, started)

    def _report(
        self, batch: Batch, batch_id: int | None, decoded: Decoded, end: Offsets, built: bool, started: float
    ) -> None:
        self._listener.batch_done(
            BatchReport(
                generation=self.generation,
                batch_id=batch_id,
                records=batch.result.records,
                bad=batch.result.bad,
                evicted=batch.result.evicted,
                offsets=end,
                views_built=built,
                seconds=time.monotonic() - started,
                newest_record=decoded.newest(),
            )
        )

    def _from_start(self, ends: Offsets) -> DataFrame:
        """The records of some partitions from their first one up to `ends`."""
        return read_range(self._session, self._kafka, Offsets(dict.fromkeys(ends.next, EARLIEST)), ends)

    def _write(self, batch: Batch, decoded: Decoded, before: Offsets, end: Offsets, *, caught_up: bool) -> None:
        """Write decoded records inside the batch's transaction, and the views if the generation has caught up."""
        for lost in self._lost(before, end, decoded):
            self._listener.lost(self.generation, lost)
            if lost.deleted:
                batch.begin_life(lost.topic, lost.partition)
        batch.load(decoded.records, decoded.rows)
        self._send_dead_letters(batch)
        if batch.views_built:
            for view in self._layout.views:
                self._update(batch, view)
        elif caught_up:
            for view in self._layout.views:
                self._build(batch, view)

    def _update(self, batch: Batch, view: ViewTable) -> None:
        """The view's rows of the keys that a batch touches."""
        if batch.result.records <= SMALL_BATCH:
            rows = batch.affected(view)
            if rows is not None:
                batch.replace(view, [self._views.over_rows(view, rows)])
            return
        # On all cores, without a search for the newest where no key has several rows: half the time in a large batch.
        with room(self._session, self._checkpoint, shared=self._reading.shared) as files:
            cores = self._session.sparkContext.defaultParallelism
            sql, parts = batch.export_affected(view, files.folder, cores)
            found = self._views.over_parts(sql, parts, f"g{self.generation}", files.frame, own=view.own)
            batch.replace(view, found)

    def _build(self, batch: Batch, view: ViewTable) -> None:
        """The view over everything; unless it is small, by parts of its keys, through files: none needs much memory."""
        if batch.size(view) <= SMALL_BATCH:
            batch.build(view, [self._views.over_rows(view, batch.everything(view))])
            return
        cores = self._session.sparkContext.defaultParallelism
        rows = min(PART_ROWS, MOST_ROWS_HELD // cores)
        with room(self._session, self._checkpoint, shared=self._reading.shared) as files:
            sql, parts = batch.export(view, files.folder, cores * (batch.size(view) // (cores * rows) + 1))
            batch.build(view, self._views.over_parts(sql, parts, f"g{self.generation}", files.frame, own=view.own))

    def _send_dead_letters(self, batch: Batch) -> None:
        """At least once: they are sent before the batch is kept, and again when the batch is replayed after a crash."""
        topic = self._reading.dead_letter_topic
        letters = batch.dead_letters() if topic else None
        if letters is None:
            return
        headers = [
            F.struct(
                F.lit(f"turnout.{name}").alias("key"),
                F.col(name).cast("string").cast("binary").alias("value"),
            )
            for name in ("topic", "partition", "offset", "reason")
        ]
        # In one task: several would write side by side, and the letters would not be in the order of their records.
        frame = (
            self._session.createDataFrame(letters)
            .coalesce(1)
            .select("key", "value", F.array(*headers).alias("headers"))
        )
        frame.write.format("kafka").options(**self._kafka).option("topic", topic).save()

    def _offsets_of(self, batch_id: int) -> Offsets:
        """Where the batch ends, from the log that Spark wrote before it began."""
        lines = self._checkpoint.read(f"offsets/{batch_id}").splitlines()
        return Offsets.from_json(lines[-1])

    def _lost(self, before: Offsets, end: Offsets, decoded: Decoded) -> list[Lost]:
        """Ranges that were not there any more. A gap alone says nothing: compacted topics have many."""
        first = decoded.firsts([source.topic for source in self._layout.sources])
        lost = []
        for (topic, partition), start in before.next.items():
            until = end.next.get((topic, partition))
            if until is None or until < start:
                lost.append(Lost(topic, partition, start, until))
            elif first.get((topic, partition), until) > start:
                low = self._listener.low_watermark(topic, partition)
                if low is not None and low > start:
                    lost.append(Lost(topic, partition, start, min(low, until)))
        return lost


def _unread(records: pa.Table, before: Offsets, anew: Offsets | None) -> pa.Table:
    """Without what was read before: Spark reads a topic that it may see again from its start."""
    firsts = records.group_by(["topic", "partition"]).aggregate([("offset", "min")]).to_pylist()
    for row in firsts:
        place = (row["topic"], row["partition"])
        if row["offset_min"] < before.next.get(place, 0) and (anew is None or place not in anew.next):
            same = pc.and_(pc.equal(records["topic"], place[0]), pc.equal(records["partition"], place[1]))
            records = records.filter(pc.invert(pc.and_(same, pc.less(records["offset"], before.next[place]))))
    return records
