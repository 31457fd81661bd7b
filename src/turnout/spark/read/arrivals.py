"""How records come in: by Spark's stream, batch after batch, and by ranges of offsets. There are three ways to read.

| way | when | why |
|---|---|---|
| `STREAM`: the batch of Spark's stream | live, up to `MANY_RECORDS` | Structured Streaming is the live path. A batch \
needs no Python worker, and Spark has its offsets already. A record takes 9 us of processor time through the JVM. |
| `SOURCE`: Spark's batch source | other ranges of up to `FEW_RECORDS` | a start with few records needs no Python \
worker: 9.1 instead of 9.9 processor seconds, and 200 MB less. (With workers that run already tasks would be cheaper: \
0.13 instead of 0.35 s for 2,000 records.) |
| `TASKS`: librdkafka in Spark's tasks | more records, and each range that the JVM cannot carry or must not see | 2 us \
a record, on all cores. No record passes the JVM: so any timestamp comes as it is, and no batch can end it. |

Spark's source brings keys, values, offsets and times as they are, and plans nothing but a projection; the driver
decodes. A task reads and decodes by itself (`task.py`). A way that cannot give all records of a range as they are gives
None; then tasks read them.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from turnout.decode.decoder import Decoded, merge
from turnout.decode.shape import RAW
from turnout.errors import TurnoutError
from turnout.plan.offsets import EARLIEST, OFFSET_BITS, Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.callbacks import CallbackConnections
from turnout.spark.jvm.checkpoints import Folder
from turnout.spark.jvm.java_errors import is_disconnected
from turnout.spark.jvm.session import pool
from turnout.spark.read.bulk import ONE_BATCH, TASK_RECORDS, read_in_tasks, split

FEW_RECORDS = 20_000
MANY_RECORDS = 40_000

STEADY_RECORDS = 8_000
"""After a batch of more than this, the next one is read by tasks from this size on: their workers run by then, or soon
pay for their start."""

# Spark turns Kafka's milliseconds into microseconds, of which the calendar before 1582 is another.
_LEAST_MILLISECONDS = -12_219_292_800_000 + 20 * 86_400_000
_LARGEST_OFFSET = (1 << OFFSET_BITS) - 1

FETCH = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    # A fetch never waits for records that are not there yet: Spark asks for each partition's first and last offset
    # after every fetch, and the broker answers only when the fetch ahead of that question is answered.
    "kafka.fetch.max.wait.ms": "0",
    "kafka.allow.auto.create.topics": "false",
    # Records of a transaction are read when it is committed, and never if it is aborted.
    "kafka.isolation.level": "read_committed",
    # A topic that is deleted between two questions is asked for until this time is over (a minute by default), and
    # the other topics wait as long. Kafka wants the second not to be longer than the first.
    "kafka.default.api.timeout.ms": "10000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "2",
    "fetchOffset.retryIntervalMs": "500",
    # A topic that is deleted, or records that retention took, end nothing; a loss is detected and reported.
    "failOnDataLoss": "false",
}

CALM_RATE = 100.0
CALM_SECONDS = 0.6
"""With fewer records a second, batches begin no sooner after each other: each costs as much as 1,000 records."""

BUSY_SECONDS = 0.15
"""How soon otherwise: batches that follow each other without a pause take the cores from each other."""


class Way(Enum):
    """How a range is read; the module's head says why."""

    STREAM = auto()
    SOURCE = auto()
    TASKS = auto()


def choose(records: int, *, streamed: bool, before: int = 0, careful: bool = False) -> Way:
    """How to read so many records. `streamed`: they are a batch of the stream, after one of `before` records.

    `careful`: a record may have ended the JVM.
    """
    if careful:
        return Way.TASKS
    if streamed:
        return Way.STREAM if records <= (STEADY_RECORDS if before > STEADY_RECORDS else MANY_RECORDS) else Way.TASKS
    return Way.SOURCE if records <= FEW_RECORDS else Way.TASKS


@dataclass(frozen=True, slots=True)
class KafkaReaders:
    """All ways to read for one generation, whose jobs have the tag and the pool `name`. Any thread may read.

    `properties` are those of librdkafka's consumer, `options` those of Spark's source for the same Kafka. Both are
    asked for at each read: files that they come from may change. With `careful`, reading is slow, and no record ends
    it: workers take one batch after the other.
    """

    session: SparkSession
    name: str
    decoder: RecordDecoder
    properties: Callable[[], Mapping[str, Any]]
    options: Callable[[], Mapping[str, str]]
    live: Callable[[], bool] = lambda: False
    """Whether small batches of any generation come: then what is no batch is read in short tasks."""
    careful: bool = False

    def with_care(self) -> KafkaReaders:
        """KafkaReaders that are careful."""
        return replace(self, careful=True)

    def read(self, start: Offsets, end: Offsets, batch: DataFrame | None = None, before: int = 0) -> Decoded:
        """Read the partitions of `start`, from there to `end`.

        `batch`: the range is this batch of the stream, after one of `before` records.
        """
        records = sum(max(0, end.next[place] - max(0, first)) for place, first in start.next.items())
        if not records:
            return Decoded({})
        way = choose(records, streamed=batch is not None, before=before, careful=self.careful)
        if way is Way.STREAM and batch is not None:
            streamed = _collected(batch.coalesce(1) if records <= FEW_RECORDS else batch)
            if streamed is not None:
                return self.decoder.decode(unread(streamed, self.decoder.topics, start))
        self.session.sparkContext.addJobTag(self.name)
        with pool(self.session, self.name):
            if way is Way.SOURCE:
                decoded = self._by_source(start, end)
                if decoded is not None:
                    return decoded
            return self._in_tasks(start, end, TASK_RECORDS.most(live=batch is None and self.live()))

    def _by_source(self, start: Offsets, end: Offsets) -> Decoded | None:
        """Read by Spark's batch source for Kafka, in one task.

        None where some record does not come as it is, and where Spark fails, as for a topic that is deleted meanwhile.
        """
        partitions: dict[str, list[int]] = {}
        for topic, partition in sorted(start.next):
            partitions.setdefault(topic, []).append(partition)
        try:
            frame = (
                self.session.read.format("kafka")
                .options(**FETCH)
                .options(**self.options())
                .option("assign", json.dumps(partitions))
                .option("startingOffsets", start.to_json())
                .option("endingOffsets", Offsets({place: end.next[place] for place in start.next}).to_json())
                .load()
            )
            records = _collected(raw_records(frame, self.decoder.topics).coalesce(1))
        except Exception as error:
            if is_disconnected(error):
                raise
            return None
        return None if records is None else self.decoder.decode(records)

    def _in_tasks(self, start: Offsets, end: Offsets, most: int) -> Decoded:
        """Read by librdkafka in Spark's tasks of up to `most` records."""
        properties = {**self.properties(), **(ONE_BATCH if self.careful else {})}
        ranges = split(self.decoder.topics, start, end, self.cores, most)
        return read_in_tasks(self.session, self.name, self.decoder, properties, ranges)

    @property
    def cores(self) -> int:
        """How many tasks can run at once now."""
        return int(self.session.sparkContext.defaultParallelism)

    def cancel(self) -> None:
        """End the jobs that read."""
        with contextlib.suppress(Exception):  # a JVM that is gone has no jobs
            self.session.sparkContext.cancelJobsWithTag(self.name)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The rows of all records up to `end`."""

    batch_id: int
    end: Offsets
    decoded: Decoded


WaitForMore = Callable[[Sequence[str], Offsets, threading.Event], None]
"""Returns when one of the topics has more than was read, or other partitions; or when the event is set."""


class LiveStream:
    """The streaming query of one generation; `take` gets what arrives, on a thread of its own, in order.

    While one batch is stored the next is read and decoded: the offsets in the store decide what counts, so Spark's
    checkpoint is made anew at every start. A stream that has nothing to read costs next to nothing: Spark's own loop
    asks Kafka and plans without a pause, so it is held inside its last batch until there is something new.
    """

    def __init__(
        self,
        readers: KafkaReaders,
        wait_for_more: WaitForMore,
        denied: Callable[[str, Offsets], bool],
        take: Callable[[Arrival], None],
    ) -> None:
        """`denied` says whether a topic that was read is there, but may not be seen."""
        self._readers = readers
        self._topics = readers.decoder.topics
        self._wait_for_more = wait_for_more
        self._denied = denied
        self._take = take
        self._read = Offsets({})
        self._checkpoint: Folder | None = None
        self._query: StreamingQuery | None = None
        self._callbacks = CallbackConnections(readers.session)
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._waiting: list[Arrival] = []
        self._storing = False
        self._last, self._count = 0.0, 0
        self.held = False
        """Whether everything that Kafka has is read."""
        self.failure: Exception | None = None
        """What `take` raised: it ended the stream."""

    def start(self, kafka: Mapping[str, str], checkpoint: Folder, read: Offsets, start: Offsets, most: int) -> None:
        """Begin to read, after what was `read` of all partitions; the checkpoint is made anew.

        Spark begins at `start`, in exactly the partitions that it sees, and reads `most` records a batch at most.
        """
        checkpoint.clear()
        self._checkpoint, self._read = checkpoint, read
        pattern = "|".join(re.escape(topic) for topic in self._topics)
        stream = (
            self._readers.session.readStream.format("kafka")
            .options(**FETCH)
            .options(**kafka)
            # A pattern, because a subscription to a list ends when one of its topics is deleted.
            .option("subscribePattern", f"^({pattern})$")
            .option("startingOffsets", start.to_json())
            .option("maxOffsetsPerTrigger", most)
            .load()
        )
        threading.Thread(target=self._store, name=f"store-{self._readers.name}", daemon=True).start()
        with pool(self._readers.session, self._readers.name):
            self._query = (
                raw_records(stream, self._topics)
                .writeStream.queryName(self._readers.name)
                .option("checkpointLocation", checkpoint.location)
                .foreachBatch(self._on_batch)
                .start()
            )

    @property
    def running(self) -> bool:
        query = self._query
        return query is not None and query.isActive

    @property
    def idle(self) -> bool:
        """Whether Kafka has said that there is nothing new to read, and all that was read is stored."""
        query = self._query
        if self._waiting or self._storing:
            return False
        return self.held or (query is not None and str(query.status["message"]).startswith("Waiting for"))

    def exception(self) -> Any:
        """What ended the query, as the JVM has it; None where nothing did."""
        found = self._query._jsq.exception() if self._query is not None else None
        return found.get() if found is not None and found.isDefined() else None

    def stop(self, timeout_seconds: float) -> bool:
        """End after what is being stored, waiting a bounded time; whether it ended in that time."""
        with self._changed:
            self._stopped.set()
            self._changed.notify_all()
            ended = self._changed.wait_for(lambda: not self._storing, timeout_seconds)
        try:
            if self._query is not None:
                self._query.stop()
        finally:
            # The JVM holds what is called for a batch, and that would hold the query: neither could ever go. One that
            # did not stop in time was told to, and goes when it has ended.
            self._query = None
            self._callbacks.close()
        return ended

    def _on_batch(self, frame: DataFrame, batch_id: int) -> None:
        self._callbacks.note()
        if self._stopped.is_set():
            raise RuntimeError("the generation is stopping")
        began = time.monotonic()
        assert self._checkpoint is not None
        # It names a file.
        if type(batch_id) is not int or batch_id < 0:
            raise ValueError(f"a batch has a number, got {batch_id!r}")
        # The log that Spark wrote before the batch began tells where it ends.
        end = Offsets.from_json(self._checkpoint.read(f"offsets/{batch_id}").splitlines()[-1])
        # A topic that may not be seen any more looks deleted; what was read of it is remembered.
        end = end.keeping(self._read, self._denied)
        try:
            decoded = self._decoded(frame, end)
        except TurnoutError as error:
            self.failure = error  # what comes back from the JVM is text alone
            raise
        self._read = end
        self._hand_over(Arrival(batch_id, end, decoded))
        self._hold(decoded.records, began)

    def _decoded(self, frame: DataFrame, end: Offsets) -> Decoded:
        """The rows of a batch."""
        start = self._read.up_to(end)
        before, self._count = self._count, self._read.behind(end)
        anew = self._read.made_anew(end)
        if anew is None:
            return self._readers.read(start, end, frame, before)
        # Spark skips to the end of a topic that was deleted and created again between two batches.
        return self._readers.read(Offsets({**start.next, **dict.fromkeys(anew.next, EARLIEST)}), end)

    def _hand_over(self, arrival: Arrival) -> None:
        """Leave it to the storing thread; wait while much is there already."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped.is_set() or _records(self._waiting) <= FEW_RECORDS)
            if self._stopped.is_set():
                raise self.failure or RuntimeError("the generation is stopping")
            self._waiting.append(arrival)
            self._changed.notify_all()

    def _hold(self, records: int, began: float) -> None:
        """Return to Spark when there is more to read, and not too soon where few records come."""
        now = time.monotonic()
        calm = records < CALM_RATE * (now - self._last)
        self._last = now
        self._stopped.wait(max(0.0, began + (CALM_SECONDS if calm else BUSY_SECONDS) - now))
        self.held = True
        self._wait_for_more(self._topics, self._read, self._stopped)
        self.held = False

    def _store(self) -> None:
        """The storing thread: takes what waits, several small batches as one."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped.is_set() or bool(self._waiting))
                if self._stopped.is_set():
                    return
                # In this order: `idle` looks without the lock.
                self._storing = True
                arrival, self._waiting = _first(self._waiting)
                self._changed.notify_all()
            try:
                self._take(arrival)
            except Exception as error:
                self.failure = error
                self._stopped.set()
            finally:
                with self._changed:
                    self._storing = False
                    self._changed.notify_all()
            query = self._query
            if self.failure is not None and query is not None:
                query.stop()


def _first(waiting: list[Arrival]) -> tuple[Arrival, list[Arrival]]:
    """The first arrivals as one, if they are few; and the others."""
    together = waiting[:1]
    for one in waiting[1:]:
        before = together[-1]
        # A partition that came, went or was made anew between the two is told with its own batch.
        same = before.end.next.keys() == one.end.next.keys() and before.end.made_anew(one.end) is None
        if not same or _records([*together, one]) > FEW_RECORDS:
            break
        together.append(one)
    last = together[-1]
    if len(together) > 1:
        last = Arrival(last.batch_id, last.end, merge([one.decoded for one in together]))
    return last, waiting[len(together) :]


def _records(arrivals: list[Arrival]) -> int:
    return sum(one.decoded.records for one in arrivals)


def raw_records(frame: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Records of Spark's Kafka source as `RAW` has them."""
    # Names of topics have no characters that a literal would have to escape.
    numbers = " ".join(f"WHEN '{topic}' THEN {number}" for number, topic in enumerate(topics))
    return frame.selectExpr(
        f"CAST(CASE topic {numbers} END AS INT) AS _topic",
        f"(CAST(`partition` AS BIGINT) << {OFFSET_BITS}) | `offset` AS _id",
        "unix_millis(timestamp) AS _ts",
        "key",
        "value",
    )


def _collected(frame: DataFrame) -> pa.Table | None:
    """The records of `raw_records`; None where a timestamp is one that Spark's source cannot carry."""
    try:
        records: pa.Table = frame.toArrow()
    except Exception as error:
        if "overflow" not in str(error):
            raise
        return None
    if records.num_rows and pc.min(records["_ts"]).as_py() < _LEAST_MILLISECONDS:
        return None
    return records.cast(RAW)


def unread(records: pa.Table, topics: Sequence[str], start: Offsets) -> pa.Table:
    """The records at `start` or behind it: Spark reads a topic that it may see again from its first record."""
    places = pa.table({"topic": records["_topic"], "at": pc.shift_right(records["_id"], OFFSET_BITS)})
    least = places.append_column("_id", records["_id"]).group_by(["topic", "at"]).aggregate([("_id", "min")])
    for row in least.to_pylist():
        # Of a partition without a start nothing is left to read.
        first = start.next.get((topics[row["topic"]], row["at"]), _LARGEST_OFFSET)
        if row["_id_min"] & _LARGEST_OFFSET < first:
            same = pc.and_(pc.equal(places["topic"], row["topic"]), pc.equal(places["at"], row["at"]))
            before = pc.less(records["_id"], row["at"] << OFFSET_BITS | first)
            kept = pc.invert(pc.and_(same, before))
            records, places = records.filter(kept), places.filter(kept)
    return records
