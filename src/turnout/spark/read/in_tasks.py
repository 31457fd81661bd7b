"""Ranges of offsets as one Spark job, whose tasks read Kafka by librdkafka and decode (`task`)."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import turnout.decode
from turnout.decode.shape import Decoded, merge
from turnout.decode.shape import read as read_file
from turnout.errors import TurnoutError
from turnout.kafka import unpacking
from turnout.plan import offsets, times
from turnout.plan.offsets import Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.cluster import runs_here
from turnout.spark.jvm.session import pool, scratch
from turnout.spark.read import task
from turnout.spark.read.task import Range, TaskResult
from turnout_client import arrow_columns, column_types, iso_times

TASK_RECORDS = 125_000
"""How many records a task reads at most: the jobs of other generations wait for the end of one."""

SMALLEST_TASK = 5_000
"""A task reads at least so many records, if there are."""

_ONE_BATCH = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
"""A fetch brings one batch, which may be much when it is unpacked; the next comes when that is taken."""

_NUMBERS = itertools.count()


def carry_code() -> None:
    """Send the code of tasks with them, for workers that have no Turnout."""
    for module in (task, turnout.decode, unpacking, offsets, times, arrow_columns, column_types, iso_times):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Reads any range, by librdkafka in Spark's tasks. Its jobs have the tag and the pool `name`."""

    session: SparkSession
    name: str
    decoder: RecordDecoder
    properties: Callable[[], Mapping[str, Any]]
    careful: bool = False
    """Whether a fetch brings one batch only."""

    def __post_init__(self) -> None:
        if not runs_here(self.session):
            carry_code()

    def read(self, start: Offsets, end: Offsets) -> Decoded:
        """Read the partitions of `start`, from there to `end`; TurnoutError where Kafka does not give them."""
        ranges = split(self.decoder.topics, start, end, self.cores)
        if not ranges:
            return Decoded({})
        with self._folder() as folder:
            properties = {**self.properties(), **(_ONE_BATCH if self.careful else {})}
            job = task.task(properties, self.decoder.for_workers(), folder, self.decoder.largest_bytes)
            self.session.sparkContext.addJobTag(self.name)
            with pool(self.session, self.name):
                plain = self.session.sparkContext.parallelize([astuple(one) for one in ranges], len(ranges))
                results = [TaskResult(*fields) for fields in plain.mapPartitions(job).collect()]
            return self._decoded(results)

    def _decoded(self, results: Sequence[TaskResult]) -> Decoded:
        errors = dict.fromkeys(one.error for one in results if one.error is not None)
        if errors:
            raise TurnoutError(code="kafka_unreadable", message="; ".join(errors), status=503)
        # A file can be removed once it is mapped: its rows stay as long as somebody has them.
        parts = [read_file(one.file or one.data or b"") for one in results]
        return self.decoder.complete(merge(parts))

    @contextlib.contextmanager
    def _folder(self) -> Iterator[str | None]:
        """Give a folder that tasks see too, for a block; None where they are on other machines."""
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
        """End the jobs that read."""
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
