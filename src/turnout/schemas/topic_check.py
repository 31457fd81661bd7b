"""A look at the newest records of each topic before anything is built on them: do they decode with the columns?"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turnout.decode.decoder import LARGEST_BYTES
from turnout.decode.shape import Decoded
from turnout.plan.tables import Layout, SourceTable
from turnout.schemas.record_decoder import RecordDecoder, raw
from turnout.schemas.source_schemas import Schemas


@dataclass(frozen=True, slots=True)
class Sample:
    """What the newest records of a source's topic look like."""

    source: str
    topic: str
    records: int
    useful: int
    """How many give a row with a value in it."""
    keys: frozenset[Any]
    """The keys of these rows; times as text."""
    values: Mapping[str, frozenset[Any]]
    """The values of all columns that views join by."""
    faults: list[dict[str, Any]]

    def complaint(self) -> str | None:
        """Why a generation should not be built on this topic; None where nothing speaks against it."""
        if not self.records or self.useful:
            return None
        reasons = dict.fromkeys(fault["reason"] for fault in self.faults)
        why = f" ({', '.join(reasons)})" if reasons else " (none has a declared column)"
        return (
            f"topic '{self.topic}': none of its newest {self.records} records is a row of source '{self.source}'{why}"
        )


def take_samples(
    layout: Layout,
    values: Mapping[str, Sequence[bytes | None]],
    schemas: Mapping[str, Schemas] = MappingProxyType({}),
    largest_bytes: int = LARGEST_BYTES,
) -> list[Sample]:
    """Decode the sampled `values` of each topic as the generation would; tombstones say nothing."""
    decoder = RecordDecoder.of(layout, schemas, largest_bytes)
    counts = {topic: sum(value is not None for value in some) for topic, some in values.items()}
    sampled = [(decoder.topics.index(t), value) for t, some in values.items() for value in some if value is not None]
    decoded = decoder.decode(raw([value for _, value in sampled], [topic for topic, _ in sampled]))
    return [_sample(index, source, decoded, counts[source.topic]) for index, source in enumerate(layout.sources)]


def _sample(index: int, source: SourceTable, decoded: Decoded, records: int) -> Sample:
    rows = decoded.rows[index]
    useful = functools.reduce(pc.or_, (pc.is_valid(rows[column]) for column in source.columns))
    values = {name: _values(rows[name]) for name in (source.key, *source.hashed)}
    faults: list[dict[str, Any]] = []
    if decoded.faults is not None:
        own = decoded.faults.filter(pc.equal(decoded.faults["source"], index))
        faults = own.select(["field", "reason", "text"]).rename_columns(["field", "reason", "value"]).to_pylist()
    return Sample(source.source, source.topic, records, pc.sum(useful).as_py() or 0, values[source.key], values, faults)


def _values(column: pa.ChunkedArray) -> frozenset[Any]:
    # Python cannot hold every moment that a column can.
    return frozenset((pc.cast(column, pa.string()) if pa.types.is_temporal(column.type) else column).to_pylist())
