"""A look at a few records of each topic before anything is built on them: do they decode with the declared columns?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from turnout.decoders import Decoder
from turnout.layout import Layout, SourceTable
from turnout.spark.completing import decoded
from turnout.spark.decode import readings_of

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


def take_samples(
    session: SparkSession,
    layout: Layout,
    values: Mapping[str, Sequence[bytes | None]],
    decoders: Mapping[str, Decoder] = MappingProxyType({}),
) -> list[Sample]:
    """Decode the sampled `values` of each topic as the generation would; the session is one for few rows."""
    sampled = [(topic, value) for topic, some in values.items() for value in some if value is not None]
    if not sampled:
        return [Sample(source.source, source.topic, 0, [], []) for source in layout.sources]
    count, now = len(sampled), datetime.now(UTC)
    places = [[topic for topic, _ in sampled], [0] * count, list(range(count)), [now] * count]
    frame = session.createDataFrame(
        pa.table([[None] * count, [value for _, value in sampled], *places], schema=KAFKA_SCHEMA)
    )
    found = decoded(frame.coalesce(1), readings_of(layout, decoders)).to_pylist()
    return [_sample(index, source, found) for index, source in enumerate(layout.sources)]


def _sample(index: int, source: SourceTable, found: Sequence[dict[str, Any]]) -> Sample:
    own = [record for record in found if record["topic"] == source.topic]
    rows = [record[f"row_{index}"] for record in own if record[f"row_{index}"] is not None]
    faults = [fault | {"value": record["_text"]} for record in own for fault in record[f"faults_{index}"] or []]
    return Sample(source.source, source.topic, len(own), rows, faults)
