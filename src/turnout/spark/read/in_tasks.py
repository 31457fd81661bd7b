"""Ranges of offsets as one Spark job, whose tasks read Kafka by librdkafka and decode (`task`)."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import astuple
from pathlib import Path
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
from turnout.spark.jvm.session import scratch
from turnout.spark.read import task
from turnout.spark.read.task import Range, TaskResult
from turnout_client import arrow_columns, column_types, iso_times

TASK_RECORDS = 125_000
"""How many records a task reads at most: the jobs of other generations wait for the end of one."""

SMALLEST_TASK = 5_000
"""A task reads at least so many records, if there are."""

ONE_BATCH = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
"""With care: a fetch brings one batch, which may be much when it is unpacked; the next comes when that is taken."""

_NUMBERS = itertools.count()


def carry_code() -> None:
    """Send the code of tasks with them, for workers that have no Turnout."""
    for module in (task, turnout.decode, unpacking, offsets, times, arrow_columns, column_types, iso_times):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def read_in_tasks(
    session: SparkSession,
    name: str,
    decoder: RecordDecoder,
    properties: Mapping[str, Any],
    start: Offsets,
    end: Offsets,
) -> Decoded:
    """Read the partitions of `start`, from there to `end`; TurnoutError where Kafka does not give them.

    `name` is in the name of the folder for rows. Workers that are elsewhere get the code, and have no such folder.
    """
    here = runs_here(session)
    if not here:
        carry_code()
    ranges = split(decoder.topics, start, end, int(session.sparkContext.defaultParallelism))
    if not ranges:
        return Decoded({})
    with _folder(scratch(session) / f"bulk-{name}-{next(_NUMBERS)}") if here else nullcontext() as folder:
        job = task.task(properties, decoder.for_workers(), folder, decoder.largest_bytes)
        plain = session.sparkContext.parallelize([astuple(one) for one in ranges], len(ranges))
        # A file can be removed once it is mapped: its rows stay as long as somebody has them.
        return decoder.complete(merge(decoded_parts([TaskResult(*one) for one in plain.mapPartitions(job).collect()])))


def decoded_parts(results: Sequence[TaskResult]) -> list[Decoded]:
    """The rows that tasks left; TurnoutError where one of them could not read."""
    errors = dict.fromkeys(one.error for one in results if one.error is not None)
    if errors:
        raise TurnoutError(code="kafka_unreadable", message="; ".join(errors), status=503)
    return [read_file(one.file or one.data or b"") for one in results]


@contextmanager
def _folder(folder: Path) -> Iterator[str]:
    """Make a folder for a block."""
    folder.mkdir(parents=True)
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
