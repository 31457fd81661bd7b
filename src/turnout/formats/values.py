"""Values as the libraries of formats give them -> values of a declared column, by the rules that JSON follows.

A value that is not of the declared type does not fit; in a string column everything fits, as its JSON text.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

Fit = Callable[[Any], Any]
"""The value of a column; None where it does not fit."""

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DECIMAL = re.compile(r"decimal\(([0-9]+),([0-9]+)\)")
_DIGITS = Context(prec=400)
_ARROW: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column, by the name of its type."""
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _ARROW[kind]


def fit_of(kind: str) -> Fit:
    """How values become those of a column, by the name of its type."""
    decimal = _DECIMAL.fullmatch(kind)
    return _decimal(int(decimal[1]), int(decimal[2])) if decimal else _FITS[kind]


def text_of(value: object) -> str:
    """A value as text: of numbers and structures their JSON, of anything else what JSON would have between quotes."""
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {text_of(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, date | time):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _boolean(value: object) -> bool | None:
    return value if value is True or value is False else None


def _whole(bits: int) -> Fit:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def fit(value: object) -> int | None:
        return value if type(value) is int and least <= value <= most else None

    return fit


def _double(value: object) -> float | None:
    if type(value) is int or isinstance(value, Decimal):
        value = float(value)
    return value if isinstance(value, float) and math.isfinite(value) else None


def _float(value: object) -> float | None:
    number = _double(value)
    if number is None:
        return None
    try:
        struct.pack("<f", number)  # the native form would say infinity
    except OverflowError:
        return None
    return number


def _decimal(precision: int, scale: int) -> Fit:
    step = Decimal(1).scaleb(-scale)

    def fit(value: object) -> Decimal | None:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            return None
        try:
            number = Decimal(repr(value) if isinstance(value, float) else value)
            rounded = number.quantize(step, ROUND_HALF_UP, _DIGITS)
        except InvalidOperation:
            return None
        return rounded if rounded.is_finite() and len(rounded.as_tuple().digits) <= precision else None

    return fit


def _date(value: object) -> date | None:
    if isinstance(value, str) and _DAY.fullmatch(value):
        value = _parsed(value, date)
    return value if type(value) is date else None


def _timestamp(value: object) -> datetime | None:
    """A time without a zone is in UTC, as Spark's session is."""
    if isinstance(value, str):
        value = _parsed(value, datetime) if _DAY.match(value) else None
    if type(value) is date:
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        return None
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value


def _parsed(text: str, kind: type[Any]) -> Any:
    try:
        return kind.fromisoformat(text)
    except ValueError:
        return None


_FITS: Mapping[str, Fit] = {
    "string": text_of,
    "boolean": _boolean,
    "int32": _whole(32),
    "int64": _whole(64),
    "float": _float,
    "double": _double,
    "date": _date,
    "timestamp": _timestamp,
}
