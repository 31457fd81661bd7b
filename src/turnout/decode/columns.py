"""The values that fit the type of a column: the one definition for all formats.

A value that is not of the declared type does not fit; in a string column everything fits, as its JSON text. Dates are
days and timestamps microseconds since 1970, as whole numbers.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from turnout.plan.times import (
    holds_day,
    holds_moment,
    parse_record_date,
    parse_record_timestamp,
    record_date_text,
    record_moment_text,
)
from turnout_client.column_types import ColumnType
from turnout_client.iso_times import DAY_MICROSECONDS, SECOND

Fit = Callable[[Any], Any]
"""The value of a column; None where it does not fit."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONGEST_WHOLE = 20


class Day(int):
    """A date: days since 1970."""


class Moment(int):
    """A point in time: microseconds since 1970 in UTC."""


class Whole(str):
    """A JSON number without fraction and exponent, as it was sent."""

    __slots__ = ()


class Fraction(str):
    """Any other JSON number, as it was sent."""

    __slots__ = ()


class Structure(str):
    """A JSON object or array, as it was sent."""

    __slots__ = ()


def fit_of(kind: str) -> Fit:
    """How values become those of a column, by the name of its type."""
    known = ColumnType.parse(kind)
    return _decimal(*known.digits) if known.digits else _FITS[known.family]


def key_of(kind: str) -> Callable[[str], Any]:
    """How the text of a Kafka key becomes a value of the key's column; None where it is the text of none."""
    fit, known = fit_of(kind), ColumnType.parse(kind)

    def read(text: str) -> Any:
        if kind == "boolean":
            return {"true": True, "false": False}.get(text)
        if known.bits:
            return fit(Whole(text)) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else None
        if known.digits:
            value = fit(text)
            return value if value is not None and f"{value:f}" == text else None
        return fit(text) if kind == "string" or known.time else None

    return read


def text_of(value: object) -> str:
    """A value as text: of numbers and structures their JSON, of anything else what JSON would have between quotes."""
    if isinstance(value, str):
        return value
    plain = _plain(value)
    return plain if isinstance(plain, str) else _json(plain)


def json_of(value: object) -> str:
    """A value as JSON, for reasons: numbers and structures of JSON as they were sent, and texts in quotes."""
    sent = isinstance(value, Whole | Fraction | Structure)
    return str(value) if sent else _json(_plain(value))


def _json(plain: object) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Day):
        return record_date_text(value)
    if isinstance(value, Moment):
        return record_moment_text(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {text_of(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _whole(bits: int) -> Fit:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def fit(value: object) -> int | None:
        if type(value) is Whole and len(value) <= _LONGEST_WHOLE:
            value = int(value)
        return value if type(value) is int and least <= value <= most else None

    return fit


def _double(value: object) -> float | None:
    if type(value) in (Whole, Fraction, int) or isinstance(value, Decimal):
        value = float(value)  # type: ignore[arg-type]
    return value if type(value) is float and math.isfinite(value) else None


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
    digits = Context(prec=400)

    def fit(value: object) -> Decimal | None:
        if isinstance(value, bool | Day | Moment | Structure) or not isinstance(value, int | float | str | Decimal):
            return None
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            return None
        try:
            number = Decimal(repr(value) if isinstance(value, float) else value)
            rounded = number.quantize(step, ROUND_HALF_UP, digits)
        except ArithmeticError:
            return None
        return rounded if rounded.is_finite() and len(rounded.as_tuple().digits) <= precision else None

    return fit


def _date(value: object) -> int | None:
    if type(value) is str:
        return parse_record_date(value)
    return int(value) if type(value) is Day and holds_day(value) else None


def _timestamp(value: object) -> int | None:
    """A text without a zone is in UTC; a whole number of JSON is seconds since 1970."""
    if type(value) is str:
        return parse_record_timestamp(value)
    if type(value) is Whole and len(value) <= _LONGEST_WHOLE:
        value = Moment(int(value) * SECOND)
    if type(value) is Day:
        value = Moment(value * DAY_MICROSECONDS)
    return int(value) if type(value) is Moment and holds_moment(value) else None


_FITS: Mapping[str, Fit] = {
    # Of a subclass of str the plain text.
    "string": lambda value: text_of(value) + "",
    "boolean": lambda value: value if value is True or value is False else None,
    "int32": _whole(32),
    "int64": _whole(64),
    "float": _float,
    "double": _double,
    "date": _date,
    "timestamp": _timestamp,
}
