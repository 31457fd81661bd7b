"""Conversion of dates and timestamps between integers and ISO 8601 texts, beyond the years of Python's `datetime`.

A table can store the years -290308 to 294247, but `datetime` only 1 to 9999. So times are integers in the code, and
texts in JSON. Years outside 0000 to 9999 have a sign and at least six digits, as in ECMAScript:
`+058844-02-03T04:05:06Z`. `arrow_columns.py` converts Arrow columns. Spark's workers receive this module by value, so
it imports only the standard library.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
"""The number of days after which the Gregorian calendar repeats: 400 years."""
SECOND = 1_000_000
DAY_MICROSECONDS = 86_400 * SECOND
DAY_MILLISECONDS = 86_400_000

_EXTENDED = re.compile(r"([+-]?[0-9]{4,7})(-[0-9]{2}-[0-9]{2}.*)", re.ASCII | re.DOTALL)


def days_since_1970(year: int, month: int, day: int) -> int:
    """Return the days from 1970 to a proleptic Gregorian date; raise ValueError if the date does not exist."""
    cycles, within = divmod(year, CYCLE_YEARS)
    return date(within + CYCLE_YEARS, month, day).toordinal() - _EPOCH_DAY + (cycles - 1) * CYCLE_DAYS


def calendar_day(days: int) -> tuple[int, int, int]:
    """Return year, month and day for a number of days since 1970."""
    cycles, rest = divmod(days, CYCLE_DAYS)
    day = date.fromordinal(_EPOCH_DAY + rest)
    return day.year + cycles * CYCLE_YEARS, day.month, day.day


def iso_text(milliseconds: int) -> str:
    """Format milliseconds since 1970 as ISO 8601 in UTC; a whole second has no fraction."""
    days, rest = divmod(milliseconds, DAY_MILLISECONDS)
    return f"{iso_date_text(days)}T{clock_text(rest * 1000)[:-3].removesuffix('.000')}Z"


def iso_moment_text(microseconds: int) -> str:
    """Format microseconds since 1970 as ISO 8601 in UTC, always with six digits after the second."""
    days, rest = divmod(microseconds, DAY_MICROSECONDS)
    return f"{iso_date_text(days)}T{clock_text(rest)}Z"


def iso_date_text(days: int) -> str:
    """Format days since 1970 as an ISO 8601 date."""
    year, month, day = calendar_day(days)
    return f"{year_text(year)}-{month:02}-{day:02}"


def year_text(year: int) -> str:
    """Format a year as in ISO 8601: four digits, or a sign and at least six."""
    return f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06}"


def clock_text(microseconds: int) -> str:
    """Format microseconds since midnight, such as `12:00:00.500000`."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{fraction:06}"


def parse_date(text: str) -> int:
    """Parse an ISO 8601 date into days since 1970; raise ValueError if it is invalid or exceeds 32 bits."""
    plain, shifted = _shifted(text.strip())
    return bounded(date.fromisoformat(plain).toordinal() - _EPOCH_DAY + shifted, -(2**31), 2**31 - 1)


def parse_moment(text: str) -> int:
    """Parse an ISO 8601 timestamp (UTC by default) into microseconds since 1970; raise ValueError if it is invalid."""
    plain, shifted = _shifted(text.strip())
    moment = datetime.fromisoformat(plain)
    passed = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH
    whole = passed // timedelta(microseconds=1) + shifted * DAY_MICROSECONDS
    return bounded(whole, -(2**63), 2**63 - 1)


def bounded(number: int, least: int, most: int) -> int:
    """Return the number; raise ValueError if it is not between `least` and `most`."""
    if not least <= number <= most:
        raise ValueError("out of range")
    return number


def _shifted(text: str) -> tuple[str, int]:
    """Move a date by whole calendar cycles to a year that `datetime` supports; return its text and the days moved."""
    found = _EXTENDED.fullmatch(text)
    if found is None:
        return text, 0
    year = int(found[1])
    held = year % CYCLE_YEARS + 5 * CYCLE_YEARS
    return f"{held:04}{found[2]}", (year - held) // CYCLE_YEARS * CYCLE_DAYS
