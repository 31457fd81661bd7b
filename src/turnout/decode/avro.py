"""Avro: a record's bytes -> its fields, by the schema that it was written with."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, NamedTuple

from turnout.decode.columns import Day, Moment
from turnout.plan.times import record_time_text
from turnout_client.iso_times import DAY_MICROSECONDS

NOT_A_RECORD = "not an Avro record"

Definition = tuple[str, ...]
"""The texts of a schema and of those that it refers to, itself last."""

_OWN = "turnout-"
"""Before the names of logical types that we read ourselves: the library's end at the year 9999."""
_DEEPEST = 100
"""Levels of a record whose type is part of itself."""
_MOST_TYPES = 1_000
"""Named types of a schema: what is told of all of them takes a time that grows with their square."""
_MOST_EMPTY = 8
"""Values without bytes of their own for each byte of a type, and as many more: a record of a record of nulls and so on
can have any number, and thirty types that each have the next one twice have a thousand million."""
_MOST_DIGITS = 1_000
"""Digits of a decimal. The time to read one grows with their square: a megabyte of them takes a minute."""
_MOST_BITS = math.ceil(_MOST_DIGITS * math.log2(10))
_EXACT = Context(prec=_MOST_DIGITS + 1)


class _Size(NamedTuple):
    """How small and how large values of a type can be."""

    least_bytes: float
    """The fewest bytes that a value takes; infinite where it has no end."""
    empty_values: float
    """How many values without bytes it has, besides those that come after a byte of a union or a list."""


def reader(definition: Definition, columns: Sequence[str]) -> Callable[[bytes], Mapping[str, Any] | str]:
    """What reads records of this schema; ValueError where it is none. A reason stands in place of a bad record."""
    import fastavro
    from fastavro import _read_py

    named: dict[str, Any] = {}
    try:
        for text in definition:
            schema = fastavro.parse_schema(_with_own_types(json.loads(text)), named)
    except Exception as error:  # fastavro and json have no base in common, and a schema can be anything
        raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from error
    if len(named) > _MOST_TYPES:
        raise ValueError(f"it has more than {_MOST_TYPES:,} named types")
    known = _sizes_of(named)
    types = list(_types([schema, *named.values()]))
    sizes = [_size(kind, known) for kind in types]
    if any(size.empty_values > _MOST_EMPTY * (1 + size.least_bytes) for size in sizes):
        raise ValueError("it has a type that is mostly values without bytes, so it can be of any size")
    arrays = [kind for kind in types if isinstance(kind, dict) and "items" in kind]
    if any(_size(array["items"], known).least_bytes == 0 for array in arrays):
        raise ValueError("it has an array whose items take no bytes, so it can have any length")
    recursive = is_recursive(named)
    fastavro.read.LOGICAL_READERS.update({f"{kind}-{_OWN}{name}": read for (kind, name), read in _READERS.items()})
    # A record of a hundred thousand levels is an error to fastavro's form in plain Python, and ends its C form.
    read_one: Any = _read_py.schemaless_reader if recursive else fastavro.schemaless_reader

    def read(payload: bytes) -> Mapping[str, Any] | str:
        stream = io.BytesIO(payload)
        record: Any = read_one(stream, schema, None)
        if stream.tell() != len(payload):
            raise ValueError("bytes are left over")
        if not isinstance(record, dict):
            return NOT_A_RECORD
        if recursive and not _shallow(record):
            raise ValueError("nested too deep")
        return record

    return read


def _time(microseconds: int, sent: int) -> str | int:
    return record_time_text(microseconds) if 0 <= microseconds < DAY_MICROSECONDS else sent


def _decimal(data: bytes, schema: Mapping[str, Any], *_: object) -> Decimal:
    number = int.from_bytes(data, "big", signed=True)
    if number.bit_length() > _MOST_BITS:
        raise ValueError(f"a decimal of more than {_MOST_DIGITS:,} digits")
    return Decimal(number).scaleb(-schema.get("scale", 0), _EXACT)


_MOMENTS: Mapping[str, Callable[..., Any]] = {
    "millis": lambda value, *_: Moment(value * 1000),
    "micros": lambda value, *_: Moment(value),
    "nanos": lambda value, *_: Moment(value // 1000),
}
_READERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("int", "date"): lambda value, *_: Day(value),
    ("int", "time-millis"): lambda value, *_: _time(value * 1000, value),
    ("long", "time-micros"): lambda value, *_: _time(value, value),
    **{("long", f"timestamp-{unit}"): read for unit, read in _MOMENTS.items()},
    **{("long", f"local-timestamp-{unit}"): read for unit, read in _MOMENTS.items()},
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
}
"""How values of a type with a logical type are read."""


def _with_own_types(node: Any) -> Any:
    """The schema with our names of the logical types that we read."""
    if isinstance(node, list):
        return [_with_own_types(branch) for branch in node]
    if not isinstance(node, dict):
        return node
    known = {
        key: _with_own_types(value) if key in ("type", "items", "values") else value for key, value in node.items()
    }
    if isinstance(fields := node.get("fields"), list):
        known["fields"] = [_with_own_types(field) for field in fields]
    logical = node.get("logicalType")
    if isinstance(node.get("type"), str) and (node["type"], logical) in _READERS:
        known["logicalType"] = f"{_OWN}{logical}"
        if logical == "decimal":
            _check_decimal(node)
    return known


def _check_decimal(node: Mapping[str, Any]) -> None:
    scale, digits = node.get("scale", 0), node.get("precision", _MOST_DIGITS)
    whole = isinstance(scale, int) and isinstance(digits, int)
    if not whole or not 0 <= scale <= digits or not 0 < digits <= _MOST_DIGITS:
        raise ValueError(f"it has a decimal whose precision is not from 1 to {_MOST_DIGITS:,}, or below its scale")


def _shallow(record: Any) -> bool:
    level = [record]
    for _ in range(_DEEPEST):
        level = [
            inner
            for node in level
            for inner in (node.values() if isinstance(node, dict) else node)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def is_recursive(named: Mapping[str, Any]) -> bool:
    """Whether a type of these is part of itself."""
    parts = {name: {_name(kind) for kind in _types(_inner(schema))} & named.keys() for name, schema in named.items()}
    while plain := [name for name, used in parts.items() if not used & parts.keys()]:
        for name in plain:
            del parts[name]
    return bool(parts)


def _sizes_of(named: Mapping[str, Any]) -> dict[str, _Size]:
    """The size of each named type, by what is known of the others, again until nothing changes."""
    known = dict.fromkeys(named, _Size(math.inf, 0))
    for _ in named:
        before, known = known, {name: _size(schema, known, own=name) for name, schema in named.items()}
        if known == before:
            break
    return known


def _size(kind: Any, named: Mapping[str, _Size], own: str | None = None) -> _Size:
    if isinstance(kind, str):
        fixed = {"null": 0, "float": 4, "double": 8}
        return named.get(kind, _Size(fixed.get(kind, 1), kind == "null"))
    if isinstance(kind, list):
        return _Size(1 + min((_size(branch, named).least_bytes for branch in kind), default=0), 0)
    name = kind.get("name")
    if own is None and name in named:
        return named[name]
    if kind["type"] in ("record", "error"):
        fields = [_size(field["type"], named) for field in kind["fields"]]
        return _Size(sum(one.least_bytes for one in fields), 1.0 + sum(one.empty_values for one in fields))
    if kind["type"] == "fixed":
        return _Size(int(kind["size"]), kind["size"] < 1)
    return _size(kind["type"], named)


def _types(node: Any) -> Iterator[Any]:
    """A type, and all types that are written out below it."""
    yield node
    for inner in node if isinstance(node, list) else _inner(node) if isinstance(node, dict) else ():
        yield from _types(inner)


def _name(kind: Any) -> str | None:
    return kind if isinstance(kind, str) else kind.get("name") if isinstance(kind, dict) else None


def _inner(node: Mapping[str, Any]) -> list[Any]:
    """The types right below one."""
    fields = [field["type"] for field in node.get("fields", ())]
    nested = [node["type"]] if isinstance(node.get("type"), dict | list) else []
    return [*fields, *nested, *(node[key] for key in ("items", "values") if key in node)]
