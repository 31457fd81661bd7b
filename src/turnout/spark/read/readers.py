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

A way that cannot give all records of a range as they are gives None; then tasks read them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from turnout.decode.shape import Decoded
from turnout.plan.offsets import Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.session import pool
from turnout.spark.read.in_tasks import ONE_BATCH, read_in_tasks
from turnout.spark.read.through_jvm import read_batch, read_source

FEW_RECORDS = 20_000
MANY_RECORDS = 40_000

STEADY_RECORDS = 8_000
"""After a batch of more than this, the next one is read by tasks from this size on: their workers run by then, or soon
pay for their start."""


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
            decoded = read_batch(batch.coalesce(1) if records <= FEW_RECORDS else batch, self.decoder, start)
            if decoded is not None:
                return decoded
        self.session.sparkContext.addJobTag(self.name)
        with pool(self.session, self.name):
            if way is Way.SOURCE:
                decoded = read_source(self.session, self.options, self.decoder, start, end)
                if decoded is not None:
                    return decoded
            properties = {**self.properties(), **(ONE_BATCH if self.careful else {})}
            return read_in_tasks(self.session, self.name, self.decoder, properties, start, end)

    @property
    def cores(self) -> int:
        """How many tasks can run at once now."""
        return int(self.session.sparkContext.defaultParallelism)

    def cancel(self) -> None:
        """End the jobs that read."""
        with contextlib.suppress(Exception):  # a JVM that is gone has no jobs
            self.session.sparkContext.cancelJobsWithTag(self.name)
