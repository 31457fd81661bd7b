"""Arrow columns: the Arrow type of each column type, and conversion of dates and timestamps to ISO 8601 and back.

The conversions are correct for every value of a column. Arrow's own conversions wrap around after the year 32767 and
write five-digit years without a sign, so they are used only for the years 0000 to 9999. `iso_times.py` defines the
format. Spark's workers receive this module by value; of Turnout it may import only `column_types` and `iso_times`.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from turnout_client import iso_times
from turnout_client.column_types import ColumnType

_MOMENT = "%Y-%m-%dT%H:%M:%SZ"


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type of a column type's name; raise ValueError if the name is unknown."""
    make, *arguments = ColumnType.parse(kind).arrow
    return getattr(pa, str(make))(*arguments)


def is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def is_plain(column: pa.ChunkedArray) -> bool:
    """Whether every year of the column has four digits."""
    return fits_years(column, 0, 9999)


def fits_years(column: pa.ChunkedArray, first: int, last: int) -> bool:
    """Whether every year of the column lies between `first` and `last`."""
    number, unit = _numbers(column)
    found = pc.min_max(number)
    if found["min"].as_py() is None:
        return True
    least, most = _bounds(first, last, unit)
    return bool(found["min"].as_py() >= least and found["max"].as_py() <= most)


def iso_texts(column: pa.ChunkedArray, moment: str = _MOMENT) -> pa.ChunkedArray:
    """Format a `date32` or `timestamp` column as texts; `moment` is a strftime format that starts with the year."""
    whole = column if pa.types.is_date32(column.type) else column.cast(pa.timestamp("us"))
    if is_plain(whole):
        return _texts(whole, moment)
    number, day = _numbers(whole)
    # Shift each date by whole 400-year cycles to the years 1970 to 2369, format it, then replace the year.
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
    """Convert a column to values that JSON can represent, as the server's answers contain them."""
    kind = column.type
    if is_time(kind):
        return iso_texts(column)
    if pa.types.is_float32(kind):
        # Converted through its shortest text, so that the float 0.1 becomes 0.1 and not 0.10000000149011612.
        return column.cast(pa.string()).cast(pa.float64())
    return column.cast(pa.string()) if pa.types.is_decimal(kind) else column


def from_iso_texts(texts: list[str | None], kind: pa.DataType) -> pa.Array:
    """Parse ISO 8601 texts into a `date32` or `timestamp(us, UTC)` column; raise ValueError if a text is invalid."""
    try:
        return pa.array(texts, pa.string()).cast(kind)
    except pa.ArrowInvalid:  # Arrow cannot parse years of more than four digits
        parse: Any = iso_times.parse_date if pa.types.is_date32(kind) else iso_times.parse_moment
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return pa.array([None if text is None else parse(text) for text in texts], whole).cast(kind)


def _numbers(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, int]:
    """Return the integers that Arrow stores for the column, and how many of these units one day has."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).cast(pa.int64()), 1
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), iso_times.DAY_MICROSECONDS


def _bounds(first: int, last: int, day: int) -> tuple[int, int]:
    """Return the first and the last integer of these years; `day` is the number of units in a day."""
    begin, end = (iso_times.parse_date(f"{iso_times.year_text(year)}-01-01") for year in (first, last + 1))
    return begin * day, end * day - 1


def _texts(column: pa.ChunkedArray, moment: str) -> pa.ChunkedArray:
    return column.cast(pa.string()) if pa.types.is_date32(column.type) else pc.strftime(column, format=moment)


def _divided(number: pa.ChunkedArray, size: int) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the floored quotient and the non-negative remainder, which Arrow has no function for."""
    quotient = pc.divide(number, size)
    rest = pc.subtract(number, pc.multiply(quotient, size))
    below = pc.less(rest, 0)
    return pc.if_else(below, pc.subtract(quotient, 1), quotient), pc.if_else(below, pc.add(rest, size), rest)
