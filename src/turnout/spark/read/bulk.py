"""Bulk reads: ranges of offsets as one Spark job, whose tasks read Kafka by librdkafka and decode (`task`)."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import turnout.decode
from turnout.decode.record_decoder import RecordDecoder
from turnout.decode.shape import Decoded, merge
from turnout.decode.shape import read as read_file
from turnout.errors import TurnoutError
from turnout.kafka import unpacking
from turnout.plan import arrow_columns, times
from turnout.plan.offsets import Offsets
from turnout.spark.cluster import runs_here
from turnout.spark.engine import is_disconnected
from turnout.spark.folders import scratch
from turnout.spark.read import task
from turnout.spark.read.live import FETCH, FEW_RECORDS, as_they_came, raw_records
from turnout.spark.read.task import Left, Range
from turnout.spark.session import pool

TASK_RECORDS = 125_000
"""How many records a task reads at most: the jobs of other generations wait for the end of one."""

SMALLEST_TASK = 5_000
"""Fewer records are not worth a task of their own."""

_ONE_BATCH = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
"""A fetch brings one batch, which may be much when it is unpacked; the next comes when that is taken."""

_NUMBERS = itertools.count()


def carry_code() -> None:
    """Send the code of tasks with them, for workers that have no Turnout."""
    for module in (task, turnout.decode, unpacking, arrow_columns, times):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class BulkReader:
    """Reads ranges of offsets for one generation: its jobs have the tag and the pool `name`.

    `properties` are those of librdkafka's consumer, `options` those of Spark's source for the same Kafka. Both are
    asked for at each read: files that they come from may change. A `careful` reader is slow, and no record ends it:
    none passes the JVM, and workers take one batch after the other.
    """

    session: SparkSession
    name: str
    decoder: RecordDecoder
    properties: Callable[[], Mapping[str, Any]]
    options: Callable[[], Mapping[str, str]]
    careful: bool = False
    _decoding: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not runs_here(self.session):
            carry_code()

    def with_care(self) -> BulkReader:
        """The careful one."""
        return replace(self, careful=True)

    def read(self, start: Offsets, end: Offsets) -> Decoded:
        """The records of the partitions of `start`, from there to `end`."""
        ranges = split(self.decoder.topics, start, end, self.cores)
        if not ranges:
            return Decoded({})
        if not self.careful and sum(one.end - max(0, one.start) for one in ranges) <= FEW_RECORDS:
            decoded = self._read_few(start, end)
            if decoded is not None:
                return decoded
        with self._folder() as folder:
            properties = {**self.properties(), **(_ONE_BATCH if self.careful else {})}
            job = task.task(properties, self.decoder.for_workers(), folder, self.decoder.largest_bytes)
            self.session.sparkContext.addJobTag(self.name)
            with pool(self.session, self.name):
                plain = self.session.sparkContext.parallelize([astuple(one) for one in ranges], len(ranges))
                left = [Left(*fields) for fields in plain.mapPartitions(job).collect()]
            return self._taken(left)

    def _read_few(self, start: Offsets, end: Offsets) -> Decoded | None:
        """Through Spark's own source; None where it cannot give the records, or a topic is gone meanwhile."""
        places: dict[str, list[int]] = {}
        for topic, partition in sorted(start.next):
            places.setdefault(topic, []).append(partition)
        self.session.sparkContext.addJobTag(self.name)
        try:
            with pool(self.session, self.name):
                found = (
                    self.session.read.format("kafka")
                    .options(**FETCH)
                    .options(**self.options())
                    .option("assign", json.dumps(places))
                    .option("startingOffsets", start.to_json())
                    .option("endingOffsets", Offsets({place: end.next[place] for place in start.next}).to_json())
                    .load()
                )
                records = as_they_came(raw_records(found, self.decoder.topics).coalesce(1))
        except Exception as error:
            if is_disconnected(error):
                raise
            return None
        if records is None:
            return None
        with self._decoding:
            return self.decoder.decode(records)

    def _taken(self, left: Sequence[Left]) -> Decoded:
        errors = dict.fromkeys(one.error for one in left if one.error is not None)
        if errors:
            raise TurnoutError(code="kafka_unreadable", message="; ".join(errors), status=503)
        # A file can be removed once it is mapped: its rows stay as long as somebody has them.
        parts = [read_file(one.file or one.data or b"") for one in left]
        with self._decoding:
            return self.decoder.complete(merge(parts))

    @contextlib.contextmanager
    def _folder(self) -> Iterator[str | None]:
        """A folder that tasks see too, for a block; None where they are on other machines."""
        if not runs_here(self.session):
            yield None
            return
        folder = scratch(self.session) / f"bulk-{self.name}-{next(_NUMBERS)}"
        folder.mkdir(parents=True)
        try:
            yield str(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def cores(self) -> int:
        """How many tasks can run at once now."""
        return int(self.session.sparkContext.defaultParallelism)

    def cancel(self) -> None:
        """End what is being read."""
        with contextlib.suppress(Exception):  # a JVM that is gone has no jobs
            self.session.sparkContext.cancelJobsWithTag(self.name)


def split(topics: Sequence[str], start: Offsets, end: Offsets, cores: int) -> list[Range]:
    """The ranges of a job's tasks: up to `TASK_RECORDS` each, or less where some cores would have nothing to do."""
    total = sum(max(0, end.next[place] - max(0, first)) for place, first in start.next.items())
    most = max(SMALLEST_TASK, min(TASK_RECORDS, -(-total // cores)))
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
