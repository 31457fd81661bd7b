"""Shared code of decoder tests: creation of raw records, and rows and faults by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from turnout.decode.decoder import Decoded
from turnout.decode.shape import RAW, SourceShape
from turnout.plan.tables import SourceTable
from turnout_client.column_types import ColumnType

Found = tuple[dict[str, Any] | None, list[tuple[str | None, str]]]
"""A row or None, and its faults as pairs of field and reason."""


def raw(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, topics: Sequence[int] | None = None
) -> pa.RecordBatch:
    """Return raw records whose ids are their indexes, and whose timestamps are the negated indexes."""
    count = len(values)
    columns = [topics or [0] * count, range(count), range(0, -count, -1), keys or [b"k"] * count, values]
    return pa.record_batch([pa.array(one, f.type) for one, f in zip(columns, RAW, strict=True)], schema=RAW)


def shape(columns: Mapping[str, str], **other: Any) -> SourceShape:
    known: dict[str, Any] = {"name": "s", "topic": 0, "key": next(iter(columns)), "tombstones": False}
    return SourceShape(**(known | other), columns=columns)


def source(columns: Mapping[str, str], form: str) -> SourceTable:
    """Return the table of a source `s` whose key is its first column."""
    kinds = {name: ColumnType.parse(kind) for name, kind in columns.items()}
    return SourceTable("s", "t", "s_ui", next(iter(columns)), kinds, latest=False, max_rows=None, form=form)


def numbers(table: pa.Table) -> pa.Table:
    """Convert dates and timestamps to integers, because Python cannot represent all of them."""
    plain = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}
    return table.cast(pa.schema([(f.name, plain.get(f.type, f.type)) for f in table.schema]))


def found(decoded: Decoded, count: int, source: int = 0) -> list[Found]:
    """Return the row and the faults of each record of a source, by its index; each record occurs once."""
    rows: dict[int, dict[str, Any]] = {}
    for row in numbers(decoded.rows[source]).to_pylist():
        number = row.pop("_id")
        assert row.pop("_ts") == -number
        assert number not in rows
        rows[number] = row
    faults: dict[int, list[tuple[str | None, str]]] = {}
    for fault in decoded.faults.to_pylist() if decoded.faults is not None else ():
        if fault["source"] == source:
            assert fault["whole"] == (fault["field"] is None) == (fault["_id"] not in rows)
            assert fault["_ts"] == -fault["_id"]
            faults.setdefault(fault["_id"], []).append((fault["field"], fault["reason"]))
    assert rows.keys() | faults.keys() == set(range(count))
    return [(rows.get(place), faults.get(place, [])) for place in range(count)]
