"""The live stream of a generation: Spark's Structured Streaming brings records, batch after batch.

While one batch is stored the next is read and decoded (`readers`): the offsets in the store decide what counts, so
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

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from turnout.decode.decoder import Decoded, merge
from turnout.errors import TurnoutError
from turnout.plan.offsets import EARLIEST, Offsets
from turnout.spark.jvm.callbacks import CallbackConnections
from turnout.spark.jvm.checkpoints import Folder
from turnout.spark.jvm.session import pool
from turnout.spark.read.readers import FETCH, FEW_RECORDS, KafkaReaders, raw_records

CALM_RATE = 100.0
CALM_SECONDS = 0.6
"""With fewer records a second, batches begin no sooner after each other: each costs as much as 1,000 records."""

BUSY_SECONDS = 0.15
"""How soon otherwise: batches that follow each other without a pause take the cores from each other."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """The rows of all records up to `end`."""

    batch_id: int
    end: Offsets
    decoded: Decoded


WaitForMore = Callable[[Sequence[str], Offsets, threading.Event], None]
"""Returns when one of the topics has more than was read, or other partitions; or when the event is set."""


class LiveStream:
    """The streaming query of one generation; `take` gets what arrives, on a thread of its own, in order."""

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
