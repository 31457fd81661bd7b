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
from turnout.plan import times
from turnout.plan.columns import ColumnType

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
    read, example = _KINDS[column.name.partition("(")[0]]
    try:
        return read(value, column)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = f" ({error})" if isinstance(error, _RefusedError) else ""
        hint = f"{example}; for missing values use `is null`"
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
    number, bits = int(text), 31 if column.name == "int32" else 63
    if not -(2**bits) <= number < 2**bits:
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
    precision, scale = map(int, column.name[len("decimal(") : -1].split(","))
    number = Decimal(text).normalize(_DIGITS)
    exponent = number.as_tuple().exponent
    if number and number.adjusted() >= precision - scale:
        raise _RefusedError("out of range")
    if not isinstance(exponent, int) or -exponent > scale:
        raise _RefusedError(f"more than {scale} digits after the point")
    # Written out: DuckDB takes 1E+5 for 1.
    return Decimal(format(number, "f"))


def _time(value: object, column: ColumnType) -> date | str:
    """As a `date` or `datetime`, or as the text that the store casts where these have no such year."""
    if not isinstance(value, str):
        raise TypeError
    is_date = column.name == "date"
    number = times.parse_date(value) if is_date else times.parse_moment(value)
    with contextlib.suppress(OverflowError):
        if is_date:
            return date(1970, 1, 1) + timedelta(days=number)
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
    try:
        return times.duckdb_date(number) if is_date else times.duckdb_moment(number)
    except ValueError as error:
        raise _RefusedError(str(error)) from error


_NUMBER_EXAMPLE = "a number, such as 1.5"
_KINDS: dict[str, tuple[Callable[[object, ColumnType], object], str]] = {
    "string": (_string, "a text"),
    "boolean": (_boolean, "true or false"),
    "int32": (_whole, "a whole number of 32 bits, such as 42"),
    "int64": (_whole, "a whole number of 64 bits, such as 42"),
    "float": (_float, _NUMBER_EXAMPLE),
    "double": (_float, _NUMBER_EXAMPLE),
    "decimal": (_decimal, "a number with no more digits than the type holds, such as 1.50"),
    "date": (_time, "a date, such as 2026-01-31"),
    "timestamp": (
        _time,
        "ISO 8601, such as 2026-01-31T12:00:00Z (without a zone: UTC; write + as %2B in an address)",
    ),
}
"""How a value of a type is read, and what one looks like."""
