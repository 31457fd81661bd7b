"""Bulk reads by Spark's tasks, as the driver sees them: ranges and code go out, rows come back. See also `task.py`."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import turnout.decode
from turnout.decode.decoder import Decoded, merge
from turnout.errors import TurnoutError
from turnout.kafka import unpacking
from turnout.plan import offsets, times
from turnout.plan.offsets import Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.cluster import runs_here
from turnout.spark.jvm.session import TaskSize, scratch
from turnout.spark.read import task
from turnout.spark.read.task import Range, TaskResult, read
from turnout_client import arrow_columns, column_types, iso_times

TASK_RECORDS = TaskSize(125_000, short=50_000)
"""How many records a task reads: the jobs of other generations wait for the end of one."""

SMALLEST_TASK = 5_000
"""A task reads at least so many records, if there are."""

ONE_BATCH = {"fetch.message.max.bytes": 1, "queued.min.messages": 1}
"""With care: a fetch brings one batch, which may be much when it is unpacked; the next comes when that is taken."""


def read_in_tasks(
    session: SparkSession, name: str, decoder: RecordDecoder, properties: Mapping[str, Any], ranges: Sequence[Range]
) -> Decoded:
    """Read each range in a task; TurnoutError where Kafka does not give one.

    Workers that are elsewhere get the code, and have no folder to leave rows in.
    """
    here = runs_here(session)
    if not here:
        carry_code()
    made = partial(tempfile.TemporaryDirectory, dir=scratch(session), ignore_cleanup_errors=True)
    with made(prefix=f"bulk-{name}-") if here else contextlib.nullcontext() as folder:
        job = task.task(properties, decoder.for_workers(), folder, decoder.largest_bytes)
        results = session.sparkContext.parallelize([astuple(one) for one in ranges], len(ranges)).mapPartitions(job)
        # A file can be removed once it is mapped: its rows stay as long as somebody has them.
        return decoder.complete(merge(decoded_parts(results.collect())))


def carry_code() -> None:
    """Send the code of tasks with them, for workers that have no Turnout."""
    for module in (task, turnout.decode, unpacking, offsets, times, arrow_columns, column_types, iso_times):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def decoded_parts(results: Sequence[TaskResult]) -> list[Decoded]:
    """The rows that tasks left; TurnoutError where one of them could not read."""
    errors = dict.fromkeys(error for _, error in results if error is not None)
    if errors:
        raise TurnoutError(code="kafka_unreadable", message="; ".join(errors), status=503)
    return [read(rows) for rows, _ in results]


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
