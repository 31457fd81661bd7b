"""The decoder's input and output: sources, raw records, rows and faults; in memory, as bytes or in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnout_client.arrow_columns import arrow_type

_FAULTS, _LEFT_OVER = "faults", "left_over"
_PARTS, _RECORDS = b"parts", b"records"

Definition = Any
"""What a schema is to the reader of its format; it can be pickled."""

RAW = pa.schema(
    [
        ("_topic", pa.int32()),
        ("_id", pa.int64()),
        ("_ts", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""Records as Kafka has them. `_topic` is a number, `_id` is `partition << 44 | offset`, `_ts` milliseconds."""

FAULTS = pa.schema(
    [
        ("source", pa.int32()),
        ("_id", pa.int64()),
        ("_ts", pa.int64()),
        ("field", pa.string()),
        ("reason", pa.string()),
        ("text", pa.string()),
        ("whole", pa.bool_()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""What is wrong with records. `whole`: the record gave no row; only then `key` and `value` are kept."""


@dataclass(frozen=True, slots=True)
class SourceShape:
    """How the records of one topic become rows of one source."""

    name: str
    topic: int
    """The number of its topic in the list of topics."""
    key: str
    columns: Mapping[str, str]
    """Columns and the names of their types: `string`, `int64`, `decimal(10,2)`, ..."""
    tombstones: bool
    """Whether a null value removes a row (`rows: latest`), or is a fault."""
    form: str = "json"
    """`json`, `avro` or `protobuf`."""
    schemas: Mapping[int, Definition] = field(default_factory=dict)
    """Known schemas by id; where records carry no id, the one schema under 0."""
    framed: bool = False
    """Whether each record begins with the id of its schema."""
    unusable: Mapping[int, str] = field(default_factory=dict)
    """Ids of schemas that cannot be used, and why."""
    complete: bool = True
    """Whether a record of a schema in neither mapping is a fault; otherwise it is left over."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        fields = [(name, arrow_type(kind)) for name, kind in self.columns.items()]
        own = [("_id", pa.int64()), ("_ts", pa.int64()), *([("_deleted", pa.bool_())] if self.tombstones else [])]
        return pa.schema([*fields, *own])


@dataclass(slots=True)
class Decoded:
    """The rows and faults of some records."""

    rows: dict[int, pa.Table]
    """By the position of the source, every source: declared columns, `_id`, `_ts`, and `_deleted` where tombstones
    remove rows (such a row has only its key). The order is not that of the records."""
    faults: pa.Table | None = None
    left_over: pa.RecordBatch | None = None
    """Records of schemas that were not given; they are in no rows and no faults."""
    records: int = 0
    """How many records were decoded, without those left over."""

    @property
    def tables(self) -> list[pa.Table]:
        """The tables of rows and of faults."""
        return [*self.rows.values(), *([] if self.faults is None else [self.faults])]


def merge(parts: Sequence[Decoded]) -> Decoded:
    """Merge several results of the same sources."""
    rows: dict[int, list[pa.Table]] = {}
    for part in parts:
        for number, table in part.rows.items():
            rows.setdefault(number, []).append(table)
    faults = [part.faults for part in parts if part.faults is not None]
    left = [part.left_over for part in parts if part.left_over is not None]
    return Decoded(
        {number: pa.concat_tables(tables) for number, tables in rows.items()},
        pa.concat_tables(faults) if faults else None,
        joined_batches(left),
        sum(part.records for part in parts),
    )


def joined_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Join batches to one; None where they have no record."""
    [whole] = pa.Table.from_batches(batches, RAW).combine_chunks().to_batches() or [None]
    return whole


def write(decoded: Decoded, sink: pa.NativeFile) -> None:
    """Write to an open sink: Arrow streams, one after the other; the first, which has no rows, names the others."""
    parts = {str(number): table for number, table in decoded.rows.items()}
    if decoded.faults is not None:
        parts[_FAULTS] = decoded.faults
    if decoded.left_over is not None:
        parts[_LEFT_OVER] = pa.Table.from_batches([decoded.left_over])
    header = pa.schema([]).with_metadata({_PARTS: " ".join(parts), _RECORDS: str(decoded.records)})
    for table in (header.empty_table(), *parts.values()):
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)


def read(source: str | Path | bytes) -> Decoded:
    """Read what `write` wrote: a file, or its bytes.

    A file is mapped: it may be removed at once, its rows stay as long as they are used. Rows share the memory of bytes.
    """
    opened = pa.BufferReader(source) if isinstance(source, bytes) else pa.memory_map(str(source))
    header = _next_table(opened).schema.metadata
    parts = {name: _next_table(opened) for name in header[_PARTS].decode().split()}
    faults, left_over = parts.pop(_FAULTS, None), parts.pop(_LEFT_OVER, None)
    return Decoded(
        {int(number): table for number, table in parts.items()},
        faults,
        joined_batches(left_over.to_batches()) if left_over is not None else None,
        int(header[_RECORDS]),
    )


def _next_table(opened: pa.NativeFile) -> pa.Table:
    with pa.ipc.open_stream(opened) as stream:
        return stream.read_all()
