"""Avro: a record's bytes -> its fields, by the schema that it was written with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro

NOT_A_RECORD = "not an Avro record"

Definition = tuple[str, ...]
"""The texts of a schema and of those that it refers to, itself last."""


def reader(definition: Definition, columns: Sequence[str]) -> Callable[[bytes], Mapping[str, Any] | str]:
    """What reads records of this schema; ValueError where it is none. A reason stands in place of a bad record."""
    named: dict[str, Any] = {}
    try:
        for text in definition:
            schema = fastavro.parse_schema(json.loads(text), named)
    except Exception as error:  # fastavro and json have no base in common, and a schema can be anything
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from None

    def read(payload: bytes) -> Mapping[str, Any] | str:
        stream = io.BytesIO(payload)
        record: Any = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(payload):
            raise ValueError("bytes are left over")
        return record if isinstance(record, dict) else NOT_A_RECORD

    return read
