"""Rows as Avro: the schema of a table, registered for the sink's topic, and values in the registry's wire format."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import orjson

from turnout.decode.registry import SchemaRegistry
from turnout.plan.arrow_columns import decimal_digits
from turnout.plan.columns import ColumnType
from turnout.plan.times import parse_date, parse_moment
from turnout.sink.topic_reader import FINGERPRINT
from turnout.sink.topic_writer import Header
from turnout.sink.values import Encode
from turnout.sink.waiting import ShownTable

_PLAIN = {
    "string": "string",
    "boolean": "boolean",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
}
_MAGIC = b"\0"


def schema_of(table: str, columns: Mapping[str, ColumnType], *, logical: bool = True) -> dict[str, Any]:
    """The Avro schema of a table: every column may be null.

    Without `logical` types it is what values are written by: the bytes are the same, and the library's own dates and
    times end at the year 9999.
    """
    fields = [
        {"name": name, "type": ["null", _type(kind.name, logical=logical)], "default": None}
        for name, kind in columns.items()
    ]
    return {"type": "record", "name": table, "namespace": "turnout", "fields": fields}


def _type(kind: str, *, logical: bool) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "date":
        return {"type": "int", "logicalType": "date"} if logical else "int"
    if kind == "timestamp":
        return {"type": "long", "logicalType": "timestamp-micros"} if logical else "long"
    precision, scale = decimal_digits(kind) or (38, 0)
    sized = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return sized if logical else "bytes"


class AvroValues:
    """Encodes rows by a schema that the registry knows under the topic's subject."""

    needs_fingerprint = True

    def __init__(self, registry: SchemaRegistry, topic: str) -> None:
        self._registry = registry
        self._subject = f"{topic}-value"
        self._known: tuple[str, int] | None = None

    def encoder(self, shown: ShownTable) -> Encode:
        import fastavro

        text = json.dumps(schema_of(shown.table, shown.columns))
        if self._known is None or self._known[0] != text:
            self._known = text, self._registry.register(self._subject, text)
        start = _MAGIC + struct.pack(">I", self._known[1])
        written_by: Any = fastavro.parse_schema(schema_of(shown.table, shown.columns, logical=False))
        numbered = {name: convert for name, kind in shown.columns.items() if (convert := _converter(kind.name))}

        def encode(row: str | None, fingerprint: str | None) -> tuple[bytes | None, list[Header]]:
            if row is None:
                return None, []
            values = orjson.loads(row)
            for name, convert in numbered.items():
                if values[name] is not None:
                    values[name] = convert(values[name])
            stream = io.BytesIO(start)
            stream.seek(len(start))
            fastavro.schemaless_writer(stream, written_by, values)
            return stream.getvalue(), [(FINGERPRINT, fingerprint)]

        return encode


def _converter(kind: str) -> Callable[[str], object] | None:
    """From the value in JSON to the one in Avro, for types that JSON has as texts."""
    if kind == "date":
        return parse_date
    if kind == "timestamp":
        return parse_moment
    digits = decimal_digits(kind)
    return (lambda text: _decimal(text, digits[1])) if digits else None


def _decimal(text: str, scale: int) -> bytes:
    number = int(Decimal(text).scaleb(scale).to_integral_exact())
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
