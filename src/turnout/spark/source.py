"""Spark's Kafka source: how it fetches, and a range of offsets as a frame."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from turnout.offsets import Offsets

FETCH = {
    # Three times the rate of the defaults; see docs/architecture.md.
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    # A fetch never waits for records that are not there yet: Spark asks for each partition's first and last offset
    # after every fetch, and the broker answers only when the fetch ahead of that question is answered.
    "kafka.fetch.max.wait.ms": "0",
    "kafka.allow.auto.create.topics": "false",
    # A topic that is deleted between two questions is asked for until this time is over (a minute by default), and
    # the other topics wait as long. Kafka wants the second not to be longer than the first.
    "kafka.default.api.timeout.ms": "10000",
    "kafka.request.timeout.ms": "10000",
    "fetchOffset.numRetries": "2",
    "fetchOffset.retryIntervalMs": "500",
    # A topic that is deleted, or records that retention took, end nothing; what is lost is found and told.
    "failOnDataLoss": "false",
}


def read_range(session: SparkSession, kafka: Mapping[str, str], start: Offsets, end: Offsets) -> DataFrame:
    """The records of the partitions of `end` up to it, from `start`; `kafka` are options of the source."""
    places: dict[str, list[int]] = {}
    for topic, partition in sorted(end.next):
        places.setdefault(topic, []).append(partition)
    return (
        session.read.format("kafka")
        .options(**FETCH)
        .options(**kafka)
        .option("assign", json.dumps(places))
        .option("startingOffsets", start.to_json())
        .option("endingOffsets", end.to_json())
        .load()
    )
