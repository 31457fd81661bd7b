"""The column types of registered schemas: what the fields of an Avro record or a Protobuf message become."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from turnout.decode import protobuf
from turnout.decode.protobuf import Definition
from turnout.schemas.registry import RegisteredSchema
from turnout_client.column_types import COLUMN_TYPES

_AVRO = {kind.avro: kind.name for kind in COLUMN_TYPES if kind.avro_logical is None}
_AVRO_LOGICAL = {
    "date": "date",
    **{f"{local}timestamp-{unit}": "timestamp" for local in ("", "local-") for unit in ("millis", "micros", "nanos")},
}
# By the C++ type of a field, which is the type that Python gets; those that are missing become strings.
_PROTOBUF = {1: "int32", 2: "int64", 3: "int64", 4: "decimal(20,0)", 5: "double", 6: "float", 7: "boolean"}
_MOST_DIGITS = 38
# Each takes the values of those before it.
_WIDER = (("int32", "int64", "decimal(20,0)", "double"), ("float", "double"), ("date", "timestamp"))


def avro_columns(schema: RegisteredSchema) -> dict[str, str] | None:
    """The columns of an Avro schema; None where it describes no record."""
    described: Any = json.loads(schema.text)
    if not isinstance(described, dict) or described.get("type") != "record":
        return None
    return {field["name"]: _avro(field["type"]) for field in described["fields"]}


def _avro(kind: Any) -> str:
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        return _avro(branches[0]) if len(branches) == 1 else "string"
    if isinstance(kind, str):
        return _AVRO.get(kind, "string")
    logical, plain = kind.get("logicalType"), kind.get("type")
    if logical == "decimal" and plain in ("bytes", "fixed"):
        digits, scale = kind.get("precision"), kind.get("scale", 0)
        usable = isinstance(digits, int) and isinstance(scale, int) and 0 <= scale <= digits <= _MOST_DIGITS
        return f"decimal({digits},{scale})" if usable and digits else "string"
    if logical in _AVRO_LOGICAL and plain in ("int", "long"):
        return _AVRO_LOGICAL[logical]
    if logical in ("time-millis", "time-micros"):
        return "string"
    return _avro(plain) if isinstance(plain, (str, dict, list)) else "string"


def protobuf_columns(definition: Definition, payload: bytes) -> dict[str, str]:
    """The columns of the message that a record's payload is of; it raises as a reader does."""
    return {field.name: _protobuf(field) for field in protobuf.fields_of(definition, payload)}


def _protobuf(field: Any) -> str:
    if field.is_repeated or field.enum_type is not None:
        return "string"
    message = field.message_type
    if message is None:
        return _PROTOBUF.get(field.cpp_type, "string")
    if protobuf.is_timestamp(message.full_name):
        return "timestamp"
    return _protobuf(message.fields_by_name["value"]) if protobuf.is_wrapper(message.full_name) else "string"


def merged(schemas: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The columns of several schemas of one topic, with types that take the values of each."""
    found: dict[str, str] = {}
    for columns in schemas:
        for name, kind in columns.items():
            found[name] = _both(found.get(name, kind), kind)
    return found


def _both(one: str, other: str) -> str:
    for chain in _WIDER:
        if one in chain and other in chain:
            return max(one, other, key=chain.index)
    return one if one == other else "double" if {one, other} <= {"int32", "int64", "float", "double"} else "string"
