"""Columns in Arrow: the Arrow type of each column type, and dates and timestamps as ISO 8601 texts and back.

Texts are right for any value that such a column holds. Arrow's own conversions wrap around beyond the year 32767 and
write five digits without a sign, so they get only years from 0000 to 9999. Texts have the form of `iso_times.py`.
Spark's workers get this module by value, with `column_types` and `iso_times`: of Turnout it imports nothing else.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turnout_client import iso_times
from turnout_client.column_types import ColumnType

_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a column, by the name of its type; ValueError for an unknown one."""
    make, *arguments = ColumnType.parse(kind).arrow
    return getattr(pa, str(make))(*arguments)


def is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def is_plain(column: pa.ChunkedArray) -> bool:
    """Whether every year of the column has four digits."""
    return fits_years(column, 0, 9999)


def fits_years(column: pa.ChunkedArray, first: int, last: int) -> bool:
    """Whether every year of the column is one of these."""
    number, unit = _numbers(column)
    found = pc.min_max(number)
    if found["min"].as_py() is None:
        return True
    least, most = _bounds(first, last, unit)
    return bool(found["min"].as_py() >= least and found["max"].as_py() <= most)


def iso_texts(column: pa.ChunkedArray, moment: str = _MOMENT) -> pa.ChunkedArray:
    """The texts of a `date32` or `timestamp` column; `moment` is the form of a timestamp, and begins with the year."""
    whole = column if pa.types.is_date32(column.type) else column.cast(pa.timestamp("us"))
    if is_plain(whole):
        return _texts(whole, moment)
    number, day = _numbers(whole)
    # The same day of the 400 years from 1970 on, where the calendar is the same; then the year is put right.
    cycles, rest = _divided(number, iso_times.CYCLE_DAYS * day)
    near = rest.cast(pa.int32() if pa.types.is_date32(whole.type) else pa.int64()).cast(whole.type)
    years = pc.add(pc.year(near), pc.multiply(cycles, iso_times.CYCLE_YEARS))
    signed = pc.binary_join_element_wise(
        pc.if_else(pc.less(years, 0), "-", "+"), pc.utf8_lpad(pc.abs(years).cast(pa.string()), 6, "0"), ""
    )
    four_digits = pc.and_(pc.greater_equal(years, 0), pc.less_equal(years, 9999))
    years = pc.if_else(four_digits, pc.utf8_lpad(years.cast(pa.string()), 4, "0"), signed)
    return pc.binary_join_element_wise(years, pc.utf8_slice_codeunits(_texts(near, moment), 4), "")


def for_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with values that JSON has, as answers of the server have them."""
    kind = column.type
    if is_time(kind):
        return iso_texts(column)
    if pa.types.is_float32(kind):
        # By way of its shortest text, so that the float 0.1 is 0.1 and not 0.10000000149011612.
        return column.cast(pa.string()).cast(pa.float64())
    return column.cast(pa.string()) if pa.types.is_decimal(kind) else column


def from_iso_texts(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    """The column of `date32` or `timestamp(us, UTC)` that such texts are of; ValueError for a text that is no time."""
    try:
        return pa.array(texts, pa.string()).cast(kind)
    except pa.ArrowInvalid:  # more than four digits of a year, which Arrow does not read
        parse: Any = iso_times.parse_date if pa.types.is_date32(kind) else iso_times.parse_moment
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array([None if text is None else parse(text) for text in texts], whole).cast(kind)


def _numbers(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """The numbers that Arrow holds, and how many of them a day has."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).cast(pa.int64()), 1
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), iso_times.DAY_MICROSECONDS


def _bounds(first: int, last: int, day: int) -> tuple[int, int]:
    """The first and the last number of these years."""
    begin, end = (iso_times.parse_date(f"{iso_times.year_text(year)}-01-01") for year in (first, last + 1))
    return begin * day, end * day - 1


def _texts(column: pa.ChunkedArray, moment: str) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_date32(column.type) else pc.strftime(column, format=moment)


def _divided(number: pa.ChunkedArray, size: int) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """How many whole sizes lie below each number, and what is left, never negative; Arrow has no function for it."""
    quotient = pc.divide(number, size)
    rest = pc.subtract(number, pc.multiply(quotient, size))
    below = pc.less(rest, 0)
    return pc.if_else(below, pc.subtract(quotient, 1), quotient), pc.if_else(below, pc.add(rest, size), rest)
