"""The live stream of a generation: Spark's Kafka source brings records as they came, batch after batch.

Nothing is decoded here. While one batch is stored the next is read: the offsets in the store decide what counts, so
Spark's checkpoint is made anew at every start. A stream that has nothing to read costs next to nothing: Spark's own
loop asks Kafka and plans without a pause, so it is held inside its last batch until there is something new.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from turnout.decode.shape import RAW, Decoded
from turnout.plan.joins import OFFSET_BITS
from turnout.plan.offsets import EARLIEST, Offsets
from turnout.spark.folders import Folder
from turnout.spark.py4j_sockets import CallbackConnections
from turnout.spark.session import pool

FEW_RECORDS = 20_000
"""Up to so many records one task is faster than several, and Spark's source faster than a Python worker starts."""

# Spark turns Kafka's milliseconds into microseconds, of which the calendar before 1582 is another.
_LEAST_MILLISECONDS = -12_219_292_800_000 + 20 * 86_400_000

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
    # A topic that is deleted, or records that retention took, end nothing; what is lost is found and told.
    "failOnDataLoss": "false",
}

MANY_RECORDS = 40_000
"""A batch of more records is read in bulk: they would take longer through the JVM than workers take to start."""

STEADY_RECORDS = 8_000
"""The same of a batch after one that had more, too: a record takes 9 us of processor time through the JVM, and 2 in
workers, which run by then or pay for their start."""

CALM_RATE = 100.0
CALM_SECONDS = 0.6
"""With fewer records a second, batches begin no sooner after each other: each costs as much as 1,000 records."""

BUSY_SECONDS = 0.15
"""How soon otherwise: batches that follow each other without a pause take the cores from each other."""


def raw_records(frame: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Records of Spark's Kafka source as `RAW` has them; nothing for Spark to plan but a projection."""
    # Names of topics have no characters that a literal would have to escape.
    numbers = " ".join(f"WHEN '{topic}' THEN {number}" for number, topic in enumerate(topics))
    return frame.selectExpr(
        f"CAST(CASE topic {numbers} END AS INT) AS _topic",
        f"(CAST(`partition` AS BIGINT) << {OFFSET_BITS}) | `offset` AS _id",
        "unix_millis(timestamp) AS _ts",
        "key",
        "value",
    )


def as_they_came(frame: DataFrame) -> pa.Table | None:
    """The records of `raw_records`; None where Spark's source cannot give some of them as they are."""
    try:
        records: pa.Table = frame.toArrow()
    except Exception as error:
        if "overflow" not in str(error):
            raise
        return None
    if records.num_rows and pc.min(records["_ts"]).as_py() < _LEAST_MILLISECONDS:
        return None
    return records.cast(RAW)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What was read up to `end`: raw records, or decoded ones where there were many."""

    batch_id: int
    end: Offsets
    records: pa.Table | Decoded

    @property
    def count(self) -> int:
        return int(self.records.records if isinstance(self.records, Decoded) else self.records.num_rows)


WaitForMore = Callable[[Sequence[str], Offsets, threading.Event], None]
"""Returns when one of the topics has more than was read, or other partitions; or when the event is set."""


class LiveStream:
    """The streaming query of one generation; `take` gets what arrives, on a thread of its own, in order."""

    def __init__(
        self,
        session: SparkSession,
        name: str,
        topics: tuple[str, ...],
        read_many: Callable[[Offsets, Offsets], Decoded],
        wait_for_more: WaitForMore,
        denied: Callable[[str, Offsets], bool],
        take: Callable[[Arrival], None],
    ) -> None:
        """`denied` says whether a topic that was read is there, but may not be seen."""
        self._session = session
        self._name = name
        self._topics = topics
        self._read_many = read_many
        self._wait_for_more = wait_for_more
        self._denied = denied
        self._take = take
        self._read = Offsets({})
        self._checkpoint: Folder | None = None
        self._query: StreamingQuery | None = None
        self._callbacks = CallbackConnections(session)
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
            self._session.readStream.format("kafka")
            .options(**FETCH)
            .options(**kafka)
            # A pattern, because a subscription to a list ends when one of its topics is deleted.
            .option("subscribePattern", f"^({pattern})$")
            .option("startingOffsets", start.to_json())
            .option("maxOffsetsPerTrigger", most)
            .load()
        )
        threading.Thread(target=self._store, name=f"store-{self._name}", daemon=True).start()
        with pool(self._session, self._name):
            self._query = (
                raw_records(stream, self._topics)
                .writeStream.queryName(self._name)
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
        # The log that Spark wrote before the batch began tells where it ends.
        end = Offsets.from_json(self._checkpoint.read(f"offsets/{batch_id}").splitlines()[-1])
        # A topic that may not be seen any more looks deleted; what was read of it is remembered.
        end = end.keeping(self._read, self._denied)
        arrival = self._arrival(frame, batch_id, end)
        self._read = end
        self._hand_over(arrival)
        self._hold(arrival.count, began)

    def _arrival(self, frame: DataFrame, batch_id: int, end: Offsets) -> Arrival:
        behind = self._read.behind(end)
        anew = self._read.made_anew(end)
        most = STEADY_RECORDS if self._count > STEADY_RECORDS else MANY_RECORDS
        self._count = behind
        if behind <= most and not anew:
            records = as_they_came(frame.coalesce(1) if behind <= FEW_RECORDS else frame)
            if records is not None:
                return Arrival(batch_id, end, self._unread(records))
        start = self._read.up_to(end)
        if anew:
            # Spark skips to the end of a topic that was deleted and made anew between two batches.
            start = Offsets({**start.next, **dict.fromkeys(anew.next, EARLIEST)})
        return Arrival(batch_id, end, self._read_many(start, end))

    def _unread(self, records: pa.Table) -> pa.Table:
        """Without what was read before: Spark reads a topic that it may see again from its start."""
        places = pa.table({"topic": records["_topic"], "at": pc.shift_right(records["_id"], OFFSET_BITS)})
        least = places.append_column("_id", records["_id"]).group_by(["topic", "at"]).aggregate([("_id", "min")])
        for row in least.to_pylist():
            following = self._read.next.get((self._topics[row["topic"]], row["at"]), 0)
            if row["_id_min"] & ((1 << OFFSET_BITS) - 1) < following:
                same = pc.and_(pc.equal(places["topic"], row["topic"]), pc.equal(places["at"], row["at"]))
                before = pc.less(records["_id"], row["at"] << OFFSET_BITS | following)
                kept = pc.invert(pc.and_(same, before))
                records, places = records.filter(kept), places.filter(kept)
        return records

    def _hand_over(self, arrival: Arrival) -> None:
        """Leave it to the storing thread; wait while much is there already."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped.is_set() or not _are_many(self._waiting))
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
        """The storing thread: takes what waits, all of it that is raw at once."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped.is_set() or bool(self._waiting))
                if self._stopped.is_set():
                    return
                arrival, self._waiting = _first(self._waiting)
                self._storing = True
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
    """The first arrivals as one, as far as they are raw; and the others."""
    together = waiting[:1]
    for one in waiting[1:]:
        before = together[-1]
        # A partition that came, went or was made anew between the two is told with its own batch.
        same = before.end.next.keys() == one.end.next.keys() and before.end.made_anew(one.end) is None
        if isinstance(before.records, Decoded) or isinstance(one.records, Decoded) or not same:
            break
        together.append(one)
    rest, last = waiting[len(together) :], together[-1]
    if len(together) == 1:
        return last, rest
    return Arrival(last.batch_id, last.end, pa.concat_tables([one.records for one in together])), rest


def _are_many(waiting: list[Arrival]) -> bool:
    return any(isinstance(one.records, Decoded) for one in waiting) or sum(one.count for one in waiting) > FEW_RECORDS
