"""A training run of Spark's JVM: each way that Turnout uses Spark, over a few made-up records.

Run as a program, with an option by which the JVM archives its classes at its end.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.config import Settings, SparkSettings
from turnout.config.tables import first_plan, layout_of
from turnout.java.class_archive import TRAINING_SECONDS
from turnout.plan.joins import KEY
from turnout.plan.tables import Layout, ViewTable
from turnout.spark.jvm.session import start_session
from turnout.spark.read.arrivals import FETCH, raw_records
from turnout.spark.views.runner import view_runner
from turnout.store.views.parts import write_rows

_NO_KAFKA = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.default.api.timeout.ms": "300",
    "kafka.request.timeout.ms": "300",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "10",
}


def train(option: str) -> None:
    """Run this module in a process of its own, which takes half a minute; CalledProcessError has what it printed."""
    command = [sys.executable, "-m", __name__, option]
    subprocess.run(command, capture_output=True, text=True, timeout=TRAINING_SECONDS, check=True)


def use_spark(session: SparkSession, folder: Path) -> None:
    """Use Spark in each way that Turnout does, once."""
    settings = Settings()
    layout = layout_of(settings, first_plan(settings))
    session.sparkContext.parallelize([1], 1).mapPartitions(list).collect()
    for view in layout.views:
        _view(session, view, folder)
    _stream(session, layout, folder)
    _kafka(session, layout)


def _view(session: SparkSession, view: ViewTable, folder: Path) -> None:
    runner = view_runner(session)
    row = pa.table({name: pa.nulls(1, pa.int64()) for name in (KEY, "_id", "_ts")})
    rows = dict.fromkeys(view.relations, row)
    runner.over_rows(view, rows)
    files = write_rows(rows, folder)
    for sql in (view.narrow_sql, view.narrow_sql_if_unique):
        list(runner.over_parts(sql, [files], "training"))


def _stream(session: SparkSession, layout: Layout, folder: Path) -> None:
    """Run a stream of another source, as that of Kafka needs a Kafka."""
    source = session.readStream.format("rate").option("rowsPerSecond", 10).load()
    topic = layout.topics[0]
    records = source.selectExpr(
        "CAST(NULL AS BINARY) AS key",
        "CAST('{}' AS BINARY) AS value",
        f"'{topic}' AS topic",
        "0 AS `partition`",
        "value AS `offset`",
        "timestamp",
    )
    query = (
        raw_records(records, layout.topics)
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(lambda frame, _: frame.coalesce(1).toArrow())
        .start()
    )
    query.processAllAvailable()
    query.stop()


def _kafka(session: SparkSession, layout: Layout) -> None:
    """Use Kafka's clients, as far as they go when no broker answers."""
    reader = session.read.format("kafka").options(**FETCH).options(**_NO_KAFKA)
    with contextlib.suppress(PySparkException, Py4JError):
        raw_records(reader.option("subscribe", layout.topics[0]).load(), layout.topics).toArrow()
    jvm: Any = session.sparkContext._jvm
    properties = {name.removeprefix("kafka."): value for name, value in _NO_KAFKA.items()}
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    properties |= {"key.deserializer": deserializer, "value.deserializer": deserializer}
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
    consumer.assign([jvm.org.apache.kafka.common.TopicPartition(layout.topics[0], 0)])
    consumer.poll(jvm.java.time.Duration.ofMillis(300))
    consumer.close()


def main(option: str) -> None:
    with tempfile.TemporaryDirectory(prefix="turnout-training-") as folder:
        conf = {"spark.driver.extraJavaOptions": shlex.quote(option)}
        session = start_session(SparkSettings(conf=conf), Path(folder) / "spark")
        java: Any = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        use_spark(session, Path(folder))
        session.stop()
        java.stdin.close()
        java.wait(TRAINING_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
