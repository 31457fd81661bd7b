"""Many records at once: ranges of offsets read from Kafka and decoded on Spark, in one job each.

What workers read (`json_rows`, and `formats` for sources that are not JSON) comes back as rows of each source; the few
records that they leave over are decoded by `decode` and `completing`. Where a source of JSON has a column of a type
that only Spark reads, those read everything.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from turnout import formats
from turnout.formats.rows import opened
from turnout.joins import OFFSET_BITS
from turnout.offsets import Offsets
from turnout.records import Decoded
from turnout.spark import json_rows
from turnout.spark.cluster import runs_here
from turnout.spark.completing import decoded
from turnout.spark.decode import ID, SourceReading, sql_string
from turnout.spark.folders import scratch
from turnout.spark.session import pool
from turnout.spark.source import read_range

# Workers get the code itself: nothing of Turnout has to be installed where they run.
for _code in (json_rows, formats):
    cloudpickle.register_pickle_by_value(_code)  # type: ignore[no-untyped-call]

_LARGE = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
    # Records that go to Spark again are decoded by its tasks: as a local relation they would be decoded while the query
    # is planned, in one thread, without code generation, at a quarter of the rate.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}

FEW = 40_000
"""Up to this many records Spark's own reader is faster than the start of a Python worker."""

TASK_RECORDS = 60_000
"""About how many records a task reads: the jobs of other generations wait for the end of one."""


class BulkReader:
    """Ranges of offsets, read for one generation: its jobs have the tag and the pool `name`."""

    def __init__(self, session: SparkSession, name: str, sources: Sequence[SourceReading]) -> None:
        self._context = session.sparkContext
        self._name = name
        self._sources = sources
        self._parent = session

    @cached_property
    def _session(self) -> SparkSession:
        return bulk_session(self._parent)

    def read(self, kafka: Mapping[str, str], start: Offsets, end: Offsets, records: int) -> Decoded:
        """The partitions of `start`, from there to `end`: about `records` records."""
        if not start.next:
            return Decoded()
        self._context.addJobTag(self._name)
        # Large partitions are split, so that every core has something to read. Spark keeps consumers by their group
        # (which they never join): with a new name for each range, those of all ranges would hold their buffers.
        group = {"kafka.group.id": f"turnout-bulk-{self._name}"}
        tasks = max(self.cores, records // TASK_RECORDS)
        options = {**group, **kafka, "minPartitions": str(tasks)}
        ends = Offsets({place: end.next[place] for place in start.next})
        with pool(self._session, self._name):
            found = read_range(self._session, options, start, ends)
            if records <= FEW:
                return Decoded(decoded(found, self._sources))
            if not runs_here(self._session):
                return decode_bulk(found, self._sources)
            with tempfile.TemporaryDirectory(prefix="bulk-", dir=scratch(self._session)) as folder:
                return decode_bulk(found, self._sources, folder)

    @property
    def cores(self) -> int:
        """How many tasks can run at once now."""
        return int(self._context.defaultParallelism)

    def cancel(self) -> None:
        """End what is being read."""
        with contextlib.suppress(Exception):  # a JVM that is gone has no jobs
            self._context.cancelJobsWithTag(self._name)


def bulk_session(session: SparkSession) -> SparkSession:
    """A session for large batches, of Python workers and of what goes to Spark."""
    large = session.newSession()
    for name, value in _LARGE.items():
        large.conf.set(name, value)
    return large


def decode_bulk(records: DataFrame, sources: Sequence[SourceReading], folder: str | None = None) -> Decoded:
    """Records of Kafka, decoded; the frame belongs to a `bulk_session`. In `folder` workers and driver see one file."""
    if any(k.name not in json_rows.TYPES for s in sources if s.decoder is None for k in s.columns.values()):
        return Decoded(decoded(records, sources))
    topics = list(dict.fromkeys(source.topic for source in sources))
    json = {topic: {source.decoder is None for source in sources if source.topic == topic} for topic in topics}
    # A topic that is JSON to one source and something else to another is left over whole.
    wanted = {
        number: (
            topics.index(source.topic),
            pa.schema([(c, json_rows.TYPES[kind.name]) for c, kind in source.columns.items()]),
        )
        for number, source in enumerate(sources)
        if json[source.topic] == {True}
    }
    others = {
        number: partial(opened, [s.decoder.wanted(i) for i, s in enumerate(sources) if s.topic == topic and s.decoder])
        for number, topic in enumerate(topics)
        if json[topic] == {False}
    }
    numbers = " ".join(f"WHEN {sql_string(topic)} THEN {number}" for number, topic in enumerate(topics))
    raw = records.selectExpr(f"CASE topic {numbers} END AS _topic", f"{ID} AS _id", "timestamp AS _ts", "key", "value")
    packed = raw.mapInArrow(json_rows.worker(wanted, others, folder), json_rows.PACKED).toArrow()
    rows = json_rows.unpack(packed)
    left_over = rows.pop(json_rows.LEFT_OVER, None)
    if left_over is None:
        return Decoded(None, rows)
    return Decoded(decoded(_again(records.sparkSession, left_over, topics), sources), rows)


def _again(session: SparkSession, left_over: pa.Table, topics: Sequence[str]) -> DataFrame:
    """Records that were left over, with the columns that they had."""
    names = ", ".join(sql_string(topic) for topic in topics)
    return session.createDataFrame(left_over).selectExpr(
        "key",
        "value",
        f"array({names})[_topic] AS topic",
        f"CAST(_id >> {OFFSET_BITS} AS INT) AS `partition`",
        f"_id & {(1 << OFFSET_BITS) - 1}L AS `offset`",
        "_ts AS timestamp",
    )
