"""Spark's Kafka source: how it fetches, and its records as they came."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from turnout.decode import RAW
from turnout.plan.joins import OFFSET_BITS
from turnout.plan.offsets import Offsets

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


def raw_records(frame: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Records of Spark's Kafka source as `RAW` has them; nothing for Spark to plan but a projection."""
    numbers = " ".join(f"WHEN {_literal(topic)} THEN {number}" for number, topic in enumerate(topics))
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


def read_few(
    session: SparkSession, kafka: Mapping[str, str], topics: Sequence[str], start: Offsets, end: Offsets
) -> pa.Table | None:
    """The records of the partitions of `start`, from there to `end`; None as above.

    `kafka` are options of the source.
    """
    places: dict[str, list[int]] = {}
    for topic, partition in sorted(start.next):
        places.setdefault(topic, []).append(partition)
    found = (
        session.read.format("kafka")
        .options(**FETCH)
        .options(**kafka)
        .option("assign", json.dumps(places))
        .option("startingOffsets", start.to_json())
        .option("endingOffsets", Offsets({place: end.next[place] for place in start.next}).to_json())
        .load()
    )
    return as_they_came(raw_records(found, topics).coalesce(1))


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
