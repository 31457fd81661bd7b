"""A look at a few records of each topic before anything is built on them: do they decode with the declared columns?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.layout import Layout, SourceTable
from turnout.spark.decode import SourceReading, decode

KAFKA_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the newest records of a source's topic look like."""

    source: str
    topic: str
    records: int
    rows: list[dict[str, Any]]
    faults: list[dict[str, Any]]

    def complaint(self) -> str | None:
        """Why a generation should not be built on this topic; None where nothing speaks against it."""
        useful = [row for row in self.rows if any(value is not None for value in row.values())]
        if not self.records or useful:
            return None
        reasons = dict.fromkeys(fault["reason"] for fault in self.faults)
        why = f" ({', '.join(reasons)})" if reasons else " (none has a declared column)"
        return (
            f"topic '{self.topic}': none of its newest {self.records} records is a row of source '{self.source}'{why}"
        )


def take_samples(session: SparkSession, layout: Layout, values: Mapping[str, Sequence[bytes | None]]) -> list[Sample]:
    """Decode the sampled `values` of each topic as the generation would."""
    return [_sample(session, source, [v for v in values[source.topic] if v is not None]) for source in layout.sources]


def _sample(session: SparkSession, source: SourceTable, values: Sequence[bytes]) -> Sample:
    if not values:
        return Sample(source.source, source.topic, 0, [], [])
    count, now = len(values), datetime.now(UTC)
    places = [[source.topic] * count, [0] * count, list(range(count)), [now] * count]
    frame = session.createDataFrame(pa.table([[None] * count, list(values), *places], schema=KAFKA_SCHEMA))
    reading = SourceReading(source.source, source.topic, source.key, source.columns, tombstones=False)
    found = decode(frame.coalesce(1), [reading]).toArrow().to_pylist()
    rows = [record["row_0"] for record in found if record["row_0"] is not None]
    faults = [fault | {"value": record["_text"]} for record in found for fault in record["faults_0"] or []]
    return Sample(source.source, source.topic, count, rows, faults)
