"""Rows as Avro: the schema of a table, registered for the sink's topic, and values in the registry's wire format."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import orjson

from turnout.kafka.clients import Header
from turnout.schemas.registry import SchemaRegistry
from turnout.sink.records import Encode, PublishedTable
from turnout.sink.topic_channel import FINGERPRINT
from turnout_client.column_types import ColumnType
from turnout_client.iso_times import parse_date, parse_moment

_MAGIC = b"\0"


def schema_of(table: str, columns: Mapping[str, ColumnType], *, logical: bool = True) -> dict[str, Any]:
    """The Avro schema of a table: every column may be null.

    Without `logical` types it is what values are written by: the bytes are the same, and the library's own dates and
    times end at the year 9999.
    """
    fields = [
        {"name": name, "type": ["null", _type(kind, logical=logical)], "default": None}
        for name, kind in columns.items()
    ]
    return {"type": "record", "name": table, "namespace": "turnout", "fields": fields}


def _type(kind: ColumnType, *, logical: bool) -> Any:
    if kind.avro_logical is None or not logical:
        return kind.avro
    sized = {"precision": kind.digits[0], "scale": kind.digits[1]} if kind.digits else {}
    return {"type": kind.avro, "logicalType": kind.avro_logical, **sized}


class AvroValues:
    """Encodes rows by a schema that the registry knows under the topic's subject."""

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry = registry
        self._subject = f"{topic}-value"
        self._known: tuple[str, int] | None = None

    def encoder(self, table: PublishedTable) -> Encode:
        import fastavro

        text = json.dumps(schema_of(table.table, table.columns))
        if self._known is None or self._known[0] != text:
            self._known = text, self._registry.register(self._subject, text)
        start = _MAGIC + struct.pack(">I", self._known[1])
        written_by: Any = fastavro.parse_schema(schema_of(table.table, table.columns, logical=False))
        numbered = {name: convert for name, kind in table.columns.items() if (convert := _converter(kind))}

        def encode(row: str | None, fingerprint: int | None) -> tuple[bytes | None, list[Header]]:
            if row is None:
                return None, []
            values = orjson.loads(row)
            for name, convert in numbered.items():
                if values[name] is not None:
                    values[name] = convert(values[name])
            stream = io.BytesIO(start)
            stream.seek(len(start))
            fastavro.schemaless_writer(stream, written_by, values)
            return stream.getvalue(), [(FINGERPRINT, str(fingerprint))]

        return encode


def _converter(kind: ColumnType) -> Callable[[str], object] | None:
    """From the value in JSON to the one in Avro, for types that Avro has a logical type for; JSON has them as texts."""
    if kind.avro_logical is None:
        return None
    return partial(_decimal, kind.digits[1]) if kind.digits else _NUMBERS[kind.family]


_NUMBERS: Mapping[str, Callable[[str], object]] = {"date": parse_date, "timestamp": parse_moment}


def _decimal(scale: int, text: str) -> bytes:
    number = int(Decimal(text).scaleb(scale).to_integral_exact())
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
