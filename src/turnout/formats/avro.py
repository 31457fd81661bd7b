"""Avro: a record's bytes -> its fields, by the schema that it was written with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    if any(_takes_no_bytes(items) for items in _items(schema)):
        raise ValueError("it has an array of nothing, which can be of any length")
    read_one = _careful_reader() if is_recursive(named) else fastavro.schemaless_reader

    def read(payload: bytes) -> Mapping[str, Any] | str:
        stream = io.BytesIO(payload)
        record: Any = read_one(stream, schema, None)
        if stream.tell() != len(payload):
            raise ValueError("bytes are left over")
        return record if isinstance(record, dict) else NOT_A_RECORD

    return read


def _careful_reader() -> Callable[..., Any]:
    """fastavro in plain Python: a record of a hundred thousand levels is an error to it, and ends its C form."""
    from fastavro import _read_py

    return _read_py.schemaless_reader


def is_recursive(named: Mapping[str, Any]) -> bool:
    """Whether a type of these is part of itself."""
    parts = {name: set(_names(schema, own=name)) & named.keys() for name, schema in named.items()}
    while plain := [name for name, used in parts.items() if not used & parts.keys()]:
        for name in plain:
            del parts[name]
    return bool(parts)


def _names(node: Any, own: str | None = None) -> Iterator[str]:
    """The names of types in a schema; `own` is that of the schema itself, which is not a part of it."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for branch in node:
            yield from _names(branch)
    elif isinstance(node, dict):
        if own is None and "name" in node:
            yield node["name"]
        for inner in _inner(node):
            yield from _names(inner)


def _items(node: Any) -> Iterator[Any]:
    """The types of the items of every array in a schema."""
    if isinstance(node, dict) and "items" in node:
        yield node["items"]
    for inner in node if isinstance(node, list) else _inner(node) if isinstance(node, dict) else ():
        yield from _items(inner)


def _inner(node: Mapping[str, Any]) -> list[Any]:
    """The types right below one."""
    fields = [field["type"] for field in node.get("fields", ())]
    return [*fields, *(node[key] for key in ("items", "values") if key in node)]


def _takes_no_bytes(kind: Any) -> bool:
    empty = isinstance(kind, dict) and (kind.get("fields") == [] or kind.get("size") == 0)
    return empty or kind == "null" or (isinstance(kind, dict) and kind.get("type") == "null")
