"""The one place that decides how records come in. Each way is a function: a range of offsets -> decoded rows.

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
import itertools
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import turnout.decode
from turnout.decode.decoder import Decoded, merge
from turnout.decode.shape import RAW
from turnout.errors import TurnoutError
from turnout.kafka import unpacking
from turnout.plan import offsets, times
from turnout.plan.offsets import OFFSET_BITS, Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.cluster import runs_here
from turnout.spark.jvm.java_errors import is_disconnected
from turnout.spark.jvm.session import TaskSize, pool, scratch
from turnout.spark.read import task
from turnout.spark.read.task import Range, TaskResult
from turnout.spark.read.task import read as read_file
from turnout_client import arrow_columns, column_types, iso_times

FEW_RECORDS = 20_000
MANY_RECORDS = 40_000

STEADY_RECORDS = 8_000
"""After a batch of more than this, the next one is read by tasks from this size on: their workers run by then, or soon
pay for their start."""

TASK_RECORDS = TaskSize(125_000, short=50_000)
"""How many records a task reads: the jobs of other generations wait for the end of one."""

SMALLEST_TASK = 5_000
"""A task reads at least so many records, if there are."""

ONE_BATCH = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
"""With care: a fetch brings one batch, which may be much when it is unpacked; the next comes when that is taken."""

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
        """Read by librdkafka in Spark's tasks of up to `most` records; TurnoutError where Kafka does not give them.

        Workers that are elsewhere get the code, and have no folder to leave rows in.
        """
        here, decoder = runs_here(self.session), self.decoder
        if not here:
            carry_code()
        properties = {**self.properties(), **(ONE_BATCH if self.careful else {})}
        ranges = split(decoder.topics, start, end, self.cores, most)
        made = partial(tempfile.TemporaryDirectory, dir=scratch(self.session), ignore_cleanup_errors=True)
        with made(prefix=f"bulk-{self.name}-") if here else contextlib.nullcontext() as folder:
            job = task.task(properties, decoder.for_workers(), folder, decoder.largest_bytes)
            plain = self.session.sparkContext.parallelize([astuple(one) for one in ranges], len(ranges))
            results = plain.mapPartitions(job).collect()
            # A file can be removed once it is mapped: its rows stay as long as somebody has them.
            return decoder.complete(merge(decoded_parts(results)))

    @property
    def cores(self) -> int:
        """How many tasks can run at once now."""
        return int(self.session.sparkContext.defaultParallelism)

    def cancel(self) -> None:
        """End the jobs that read."""
        with contextlib.suppress(Exception):  # a JVM that is gone has no jobs
            self.session.sparkContext.cancelJobsWithTag(self.name)


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


def carry_code() -> None:
    """Send the code of tasks with them, for workers that have no Turnout."""
    for module in (task, turnout.decode, unpacking, offsets, times, arrow_columns, column_types, iso_times):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def decoded_parts(results: Sequence[TaskResult]) -> list[Decoded]:
    """The rows that tasks left; TurnoutError where one of them could not read."""
    errors = dict.fromkeys(error for _, error in results if error is not None)
    if errors:
        raise TurnoutError(code="kafka_unreadable", message="; ".join(errors), status=503)
    return [read_file(rows) for rows, _ in results]


def split(
    topics: Sequence[str], start: Offsets, end: Offsets, cores: int, most: int = TASK_RECORDS.usual
) -> list[Range]:
    """The ranges of a job's tasks: up to `most` records each, or less where some cores would have nothing to do."""
    total = sum(max(0, end.next[place] - max(0, first)) for place, first in start.next.items())
    most = max(SMALLEST_TASK, min(most, -(-total // cores)))
    ranges = []
    for (topic, partition), first in start.next.items():
        until = end.next[topic, partition]
        count = max(1, until - max(0, first))
        size = -(-count // -(-count // most))  # evenly: what a task takes for itself, it takes for few, too
        edges = [first, *range(max(0, first) + size, until, size), until]
        ranges += [
            Range(topic, topics.index(topic), partition, a, b) for a, b in itertools.pairwise(edges) if max(a, 0) < b
        ]
    return ranges
