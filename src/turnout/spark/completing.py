"""Records that `decode` handed on as bytes -> rows and faults, in the table that it gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from turnout.decoders import Decoder, shown
from turnout.formats.rows import Rows
from turnout.spark.decode import SourceReading, decode


def decoded(records: DataFrame, sources: Sequence[SourceReading]) -> pa.Table:
    """Records of Kafka, decoded whatever their format."""
    return completed(decode(records, sources).toArrow(), sources)


def completed(records: pa.Table, sources: Sequence[SourceReading]) -> pa.Table:
    """What `decode` gave, with the rows and faults of sources that are not JSON.

    TurnoutError where a schema registry does not answer: then nothing is known of these records.
    """
    handed_on = False
    for index, source in enumerate(sources):
        if source.decoder is None:
            continue
        own = pc.and_(pc.equal(records["topic"], source.topic), pc.invert(records["_deleted"]))
        places = np.flatnonzero(own.to_numpy())
        if len(places):
            records = _completed(records, index, places, source.decoder)
            handed_on = True
    return _without_values(records, len(sources)) if handed_on else records


def _completed(records: pa.Table, index: int, places: np.ndarray[Any, Any], decoder: Decoder) -> pa.Table:
    values = records["_value"].take(pa.array(places)).to_pylist()
    rows = decoder.read(values)
    faults = [[{"field": field, "reason": reason} for field, reason in some] if some else None for some in rows.faults]
    known = records["_text"].take(pa.array(places)).to_pylist()
    texts = [shown(v) if some else text for v, some, text in zip(values, rows.faults, known, strict=True)]
    for name, found in (
        (f"row_{index}", _structs(rows, records.schema.field(f"row_{index}").type)),
        (f"faults_{index}", pa.array(faults, records.schema.field(f"faults_{index}").type)),
        ("_text", pa.array(texts, records.schema.field("_text").type)),
    ):
        column = _replaced(records[name], places, found)
        records = records.set_column(records.schema.get_field_index(name), name, column)
    return records


def _structs(rows: Rows, kind: pa.StructType) -> pa.StructArray:
    columns = [pa.array(rows.columns[field.name], field.type) for field in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pa.array([not whole for whole in rows.whole]))


def _replaced(column: pa.ChunkedArray, places: np.ndarray[Any, Any], found: pa.Array) -> pa.ChunkedArray:
    """The column with other values at some places."""
    order = np.arange(len(column))
    order[places] = len(column) + np.arange(len(places))
    return pa.chunked_array([*column.chunks, found], column.type).take(pa.array(order))


def _without_values(records: pa.Table, sources: int) -> pa.Table:
    """Without the bytes of records of which all is known."""
    wrong = pa.array(np.zeros(records.num_rows, dtype=bool))
    for index in range(sources):
        wrong = pc.or_(wrong, pc.is_valid(records[f"faults_{index}"]))
    for name in ("_key", "_value"):
        kept = pc.if_else(wrong, records[name], pa.scalar(None, records.schema.field(name).type))
        records = records.set_column(records.schema.get_field_index(name), name, kept)
    return records
