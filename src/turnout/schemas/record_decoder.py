"""Records -> rows of their sources, on the driver, which asks for the schemas that records name.

Few records are decoded here; of many, workers decode what they can by the schemas that are known, and the rest comes
here. Before anything is built on topics, their newest records are decoded too: do they fit the columns?
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turnout.decode.decoder import LARGEST_BYTES, Decode, Decoded, merge, open_decoder
from turnout.decode.exact_reader import HEADER, schema_id
from turnout.decode.shape import RAW, SourceShape
from turnout.plan.offsets import OFFSET_BITS
from turnout.plan.tables import Layout, SourceTable
from turnout.schemas.source_schemas import Schemas


class RecordDecoder:
    """Decodes records on the driver, by all schemas that they name. Any thread may ask."""

    def __init__(
        self,
        sources: Sequence[SourceTable],
        schemas: Mapping[str, Schemas] = MappingProxyType({}),
        largest_bytes: int = LARGEST_BYTES,
    ) -> None:
        """`schemas` are those of the sources that are not JSON, by the names of these."""
        self.largest_bytes = largest_bytes
        self.topics = tuple(dict.fromkeys(source.topic for source in sources))
        self._sources = [_shape_of(source, self.topics.index(source.topic)) for source in sources]
        self._schemas = schemas
        self._lock = threading.Lock()
        self._opened: tuple[list[SourceShape], Decode] | None = None

    def decode(self, records: pa.RecordBatch | pa.Table) -> Decoded:
        """Every record as a row or as faults; TurnoutError where the registry cannot say what a schema is."""
        with self._lock:
            shapes = [self._asked(source, records) for source in self._sources]
            if self._opened is None or self._opened[0] != shapes:
                self._opened = (shapes, open_decoder(shapes, self.largest_bytes))
            return self._opened[1](records)

    def _asked(self, source: SourceShape, records: pa.RecordBatch | pa.Table) -> SourceShape:
        own = self._schemas.get(source.name)
        if own is None:
            return source
        numbers: set[int | None] = set()
        if own.framed:
            values = records["value"].filter(pc.equal(records["_topic"], source.topic))
            numbers = set(map(schema_id, pc.binary_slice(values.drop_null(), 0, HEADER).unique().to_pylist()))
        found = own.find([number for number in numbers if number is not None])
        schemas = {number: one for number, one in found.items() if not isinstance(one, str)}
        unusable = {number: one for number, one in found.items() if isinstance(one, str)}
        return dataclasses.replace(source, schemas=schemas, framed=own.framed, unusable=unusable)

    def for_workers(self) -> list[SourceShape]:
        """The sources with the schemas that are known by now; records of others are left over."""
        return [
            dataclasses.replace(
                source, schemas=dict(own.known), framed=own.framed, unusable={}, complete=not own.framed
            )
            if (own := self._schemas.get(source.name)) is not None
            else source
            for source in self._sources
        ]

    def complete(self, decoded: Decoded) -> Decoded:
        """What workers decoded, with the records that they left over: only the driver can ask a schema registry."""
        if decoded.left_over is None:
            return decoded
        records, decoded.left_over = decoded.left_over, None
        return merge([decoded, self.decode(records)])

    def firsts(self, decoded: Decoded) -> dict[tuple[str, int], int]:
        """The first offset of each topic and partition among decoded records."""
        found: dict[tuple[str, int], int] = {}
        tables = [(number, rows["_id"]) for number, rows in decoded.rows.items()]
        if decoded.faults is not None:
            faults = decoded.faults
            tables += [
                (number, faults["_id"].filter(pc.equal(faults["source"], number)))
                for number in pc.unique(faults["source"]).to_pylist()
            ]
        for number, ids in tables:
            places = pa.table({"partition": pc.shift_right(ids, OFFSET_BITS), "_id": ids})
            least = places.group_by("partition").aggregate([("_id", "min")])
            for partition, first in zip(*(least[name].to_pylist() for name in ("partition", "_id_min")), strict=True):
                place, offset = (self.topics[self._sources[number].topic], partition), first & ((1 << OFFSET_BITS) - 1)
                found[place] = min(found.get(place, offset), offset)
        return found


def _shape_of(source: SourceTable, topic: int) -> SourceShape:
    columns = {column: kind.name for column, kind in source.columns.items()}
    return SourceShape(source.source, topic, source.key, columns, source.latest, source.form)


def raw(
    values: Sequence[bytes | None], topics: Sequence[int] | None = None, keys: Sequence[bytes | None] | None = None
) -> pa.Table:
    """Values without times as raw records, numbered from 0; of the first topic and without keys unless given."""
    count = len(values)
    columns = [topics or [0] * count, range(count), [0] * count, keys or [None] * count, values]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RAW, strict=True)], schema=RAW)


@dataclass(frozen=True, slots=True)
class Sample:
    """What the newest records of a source's topic look like."""

    source: str
    topic: str
    records: int
    useful: int
    """How many give a row with a value in it."""
    values: Mapping[str, frozenset[Any]]
    """The values of all columns that views join by; times as text."""
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
    decoder = RecordDecoder(layout.sources, schemas, largest_bytes)
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
    return Sample(source.source, source.topic, records, pc.sum(useful).as_py() or 0, values, faults)


def _values(column: pa.ChunkedArray) -> frozenset[Any]:
    # Python cannot hold every moment that a column can.
    return frozenset((pc.cast(column, pa.string()) if pa.types.is_temporal(column.type) else column).to_pylist())
