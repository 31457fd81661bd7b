"""The values that people compare columns with: texts and JSON values, read as the type of their column, or refused.

Also how a value is shown in an error. What is compared by which operator is `where.py`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

from turnout.errors import TurnoutError
from turnout.plan.times import duckdb_date, duckdb_moment
from turnout_client.column_types import ColumnType
from turnout_client.iso_times import parse_date, parse_moment

_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,4})?", re.IGNORECASE)
_FLOAT_WORDS = ("nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity")
_MAX_FLOAT = {"float": 3.4028234663852886e38, "double": 1.7976931348623157e308}
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_DIGITS = Context(prec=100)
_SHOWN_CHARACTERS = 60
_MAX_CHARACTERS = 100_000


def parse_value(value: object, column: ColumnType, place: str) -> object:
    """`value` as the Python value of the column's type; `place` begins the error of one that is none."""
    read = _READERS[column.family]
    try:
        return read(value, column)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = f" ({error})" if isinstance(error, _RefusedError) else ""
        hint = f"{column.described}; for missing values use `is null`"
        message = f"{place}: {show(value)} is not {column.name}{reason}"
        raise TurnoutError(code="bad_where", message=message, hint=hint) from error


def show(value: object) -> str:
    """A value for an error text, short and without anything that a terminal or JSON cannot carry."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a list of a thousand levels
        text = f"a {type(value).__name__}"
    text = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
    return text.encode("utf-8", "backslashreplace").decode()


class _RefusedError(ValueError):
    """A value refused for a reason worth telling."""


def _text(value: object) -> str:
    """The text of a text or a number; a boolean is not a number here."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return str(value)
    raise ValueError


def _string(value: object, _: ColumnType) -> str:
    text = value if isinstance(value, str) else _text(value)
    if len(text) > _MAX_CHARACTERS:
        raise _RefusedError(f"longer than {_MAX_CHARACTERS} characters")
    text.encode()  # a lone surrogate has no UTF-8, and so no row can hold it
    return text


def _boolean(value: object, _: ColumnType) -> bool:
    return value if isinstance(value, bool) else _BOOLEANS[_text(value).lower()]


def _whole(value: object, column: ColumnType) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = _text(value)
    if not _WHOLE.fullmatch(text):
        raise ValueError
    number, most = int(text), 2 ** ((column.bits or 0) - 1)
    if not -most <= number < most:
        raise _RefusedError("out of range")
    return number


def _float(value: object, column: ColumnType) -> float:
    text = _text(value)
    if text.lower() not in _FLOAT_WORDS and not _NUMBER.fullmatch(text):
        raise ValueError
    number = float(text)
    if text.lower() not in _FLOAT_WORDS and abs(number) > _MAX_FLOAT[column.name]:
        raise _RefusedError("out of range")
    return number


def _decimal(value: object, column: ColumnType) -> Decimal:
    text = _text(value)
    if not _NUMBER.fullmatch(text) or len(text) > _DIGITS.prec:
        raise ValueError
    precision, scale = column.digits or (0, 0)
    number = Decimal(text).normalize(_DIGITS)
    exponent = number.as_tuple().exponent
    if number and number.adjusted() >= precision - scale:
        raise _RefusedError("out of range")
    if not isinstance(exponent, int) or -exponent > scale:
        raise _RefusedError(f"more than {scale} digits after the point")
    # Written out: DuckDB takes 1E+5 for 1.
    return Decimal(format(number, "f"))


def _time(value: object, column: ColumnType) -> date | str:
    """Read a time as a `date` or `datetime`, or as the text that the store casts where these have no such year."""
    if not isinstance(value, str):
        raise TypeError
    is_date = column.name == "date"
    number = parse_date(value) if is_date else parse_moment(value)
    with contextlib.suppress(OverflowError):
        if is_date:
            return date(1970, 1, 1) + timedelta(days=number)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
    try:
        return duckdb_date(number) if is_date else duckdb_moment(number)
    except ValueError as error:
        raise _RefusedError(str(error)) from error


_READERS: dict[str, Callable[[object, ColumnType], object]] = {
    "string": _string,
    "boolean": _boolean,
    "int32": _whole,
    "int64": _whole,
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "date": _time,
    "timestamp": _time,
}
"""How a value of a type is read, by its family."""
