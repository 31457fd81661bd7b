"""A generation that is fed by hand, with the code that the streaming query calls: no Kafka, no stream."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from oracle import Sent
from turnout.config import Settings
from turnout.layout import Layout
from turnout.offsets import Lost, Offsets
from turnout.plan import Plan
from turnout.store.database import Database
from turnout.store.generations import GenerationTables
from turnout.store.windows import Window, read_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turnout.spark.generation import BatchReport


class Quiet:
    """A listener that keeps silent."""

    def batch_done(self, report: BatchReport) -> None: ...

    def lost(self, generation: int, lost: Lost) -> None: ...

    def gaps(self, found: Sequence[tuple[str, int, int, int]]) -> None: ...

    def denied(self, topic: str, read: Offsets) -> bool:
        return False


class FedGeneration:
    """A published generation; it has caught up once a batch reaches `target`."""

    def __init__(self, spark: SparkSession, settings: Settings, folder: Path, start: Offsets, target: Offsets) -> None:
        self.target = target
        self._spark = spark
        self._folder = folder
        self._layout = Layout.of(settings, Plan.from_settings(settings))
        self._start = start
        self._open()
        with self.database.write() as cursor:
            self.tables.create(cursor, views_built=start.reached(target))
            self.tables.publish(cursor)

    def _open(self) -> None:
        from turnout.spark.generation import GenerationQuery, Reading

        self.database = Database.open(self._folder)
        self.tables = GenerationTables(self.database, 1, self._layout)
        reading = Reading(dict, self._start, self.target, self._folder / "checkpoint", 1000)
        self._query = GenerationQuery(self._spark, self.tables, reading, Quiet())

    def restart(self) -> None:
        self.database.close()
        self._open()

    def feed(self, number: int, records: list[Sent], end: Offsets) -> None:
        from turnout.spark.decode import decode, readings_of
        from turnout.spark.sampling import KAFKA_SCHEMA

        rows = [
            (r.key, r.value, r.topic, r.partition, r.offset, datetime.fromtimestamp(r.timestamp_ms / 1000, UTC))
            for r in records
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in KAFKA_SCHEMA]
        frame = self._spark.createDataFrame(pa.table(columns, schema=KAFKA_SCHEMA))
        self._query.process_frame(decode(frame, readings_of(self._layout)), number, end)

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_window(self.database, Window(table)).rows.to_pylist()
        return rows
