"""Many records at once: a range of offsets read from Kafka and decoded on Spark, in one job.

What `json_rows` reads comes back as rows of each source; the few records that it leaves over are decoded by `decode`.
Where a source has a column of a type that only Spark reads, `decode` reads everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from turnout.joins import OFFSET_BITS
from turnout.records import Decoded
from turnout.spark import json_rows
from turnout.spark.decode import ID, SourceReading, decode, sql_string

# Workers get the code itself: nothing of Turnout has to be installed where they run.
cloudpickle.register_pickle_by_value(json_rows)  # type: ignore[no-untyped-call]

_WORKER_BATCH = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
}


def bulk_session(session: SparkSession) -> SparkSession:
    """A session whose Python workers get large batches."""
    large = session.newSession()
    for name, value in _WORKER_BATCH.items():
        large.conf.set(name, value)
    return large


def decode_bulk(records: DataFrame, sources: Sequence[SourceReading]) -> Decoded:
    """Records of Kafka, decoded; the frame belongs to a `bulk_session`."""
    if any(kind.name not in json_rows.TYPES for source in sources for kind in source.columns.values()):
        return Decoded(decode(records, sources).toArrow())
    topics = list(dict.fromkeys(source.topic for source in sources))
    wanted = [
        (topics.index(source.topic), pa.schema([(c, json_rows.TYPES[kind.name]) for c, kind in source.columns.items()]))
        for source in sources
    ]
    numbers = " ".join(f"WHEN {sql_string(topic)} THEN {number}" for number, topic in enumerate(topics))
    raw = records.selectExpr(f"CASE topic {numbers} END AS _topic", f"{ID} AS _id", "timestamp AS _ts", "key", "value")
    packed = raw.mapInArrow(json_rows.worker(wanted), json_rows.PACKED).toArrow()
    rows = json_rows.unpack(packed)
    left_over = rows.pop(json_rows.LEFT_OVER, None)
    if left_over is None:
        return Decoded(None, rows)
    return Decoded(decode(_again(records.sparkSession, left_over, topics), sources).toArrow(), rows)


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
