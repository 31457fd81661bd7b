"""Records through Spark's Kafka source, in the JVM: a batch of the stream, or a range of offsets.

Spark brings keys, values, offsets and times as they are, and plans nothing but a projection; the driver decodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from turnout.decode.shape import RAW, Decoded
from turnout.plan.offsets import OFFSET_BITS, Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.java_errors import is_disconnected

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


def read_batch(frame: DataFrame, decoder: RecordDecoder, start: Offsets) -> Decoded | None:
    """Read the batch of the stream that Spark gives as a frame; None where some record does not come as it is."""
    records = _collected(frame)
    return None if records is None else decoder.decode(unread(records, decoder.topics, start))


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


def read_source(
    session: SparkSession,
    options: Callable[[], Mapping[str, str]],
    decoder: RecordDecoder,
    start: Offsets,
    end: Offsets,
) -> Decoded | None:
    """Read the partitions of `start`, from there to `end`, by Spark's batch source for Kafka, in one task.

    None where some record does not come as it is, and where Spark fails, as for a topic that is deleted meanwhile.
    """
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(start.next):
        partitions.setdefault(topic, []).append(partition)
    try:
        frame = (
            session.read.format("kafka")
            .options(**FETCH)
            .options(**options())
            .option("assign", json.dumps(partitions))
            .option("startingOffsets", start.to_json())
            .option("endingOffsets", Offsets({place: end.next[place] for place in start.next}).to_json())
            .load()
        )
        records = _collected(raw_records(frame, decoder.topics).coalesce(1))
    except Exception as error:
        if is_disconnected(error):
            raise
        return None
    return None if records is None else decoder.decode(records)
