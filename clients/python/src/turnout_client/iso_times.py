"""Dates and points in time as whole numbers and as ISO 8601 texts, also of years that Python's `datetime` cannot hold.

A table holds years from 290308 before Christ to 294247, and `datetime` only 1 to 9999. So times are numbers inside, and
texts in JSON. Years outside of 0000 to 9999 have a sign and at least six digits, as ECMAScript writes and reads them:
`+058844-02-03T04:05:06Z`. Columns of times in Arrow are `arrow_columns.py`. Spark's workers get this module by value:
it imports only the standard library.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
"""The calendar repeats after 400 years, which have as many days."""
SECOND = 1_000_000
DAY_MICROSECONDS = 86_400 * SECOND
DAY_MILLISECONDS = 86_400_000

_EXTENDED = re.compile(r"([+-]?[0-9]{4,7})(-[0-9]{2}-[0-9]{2}.*)", re.ASCII | re.DOTALL)


def days_since_1970(year: int, month: int, day: int) -> int:
    """The days of a date in the Gregorian calendar, extended both ways; ValueError if there is no such day."""
    cycles, within = divmod(year, CYCLE_YEARS)
    return date(within + CYCLE_YEARS, month, day).toordinal() - _EPOCH_DAY + (cycles - 1) * CYCLE_DAYS


def calendar_day(days: int) -> tuple[int, int, int]:
    """Year, month and day of any number of days since 1970."""
    cycles, rest = divmod(days, CYCLE_DAYS)
    day = date.fromordinal(_EPOCH_DAY + rest)
    return day.year + cycles * CYCLE_YEARS, day.month, day.day


def iso_text(milliseconds: int) -> str:
    """ISO 8601 in UTC of any number of milliseconds since 1970, to the millisecond where it is no whole second."""
    days, rest = divmod(milliseconds, DAY_MILLISECONDS)
    return f"{iso_date_text(days)}T{clock_text(rest * 1000)[:-3].removesuffix('.000')}Z"


def iso_moment_text(microseconds: int) -> str:
    """ISO 8601 in UTC of any number of microseconds since 1970, always with six digits of a second."""
    days, rest = divmod(microseconds, DAY_MICROSECONDS)
    return f"{iso_date_text(days)}T{clock_text(rest)}Z"


def iso_date_text(days: int) -> str:
    """ISO 8601 of any number of days since 1970."""
    year, month, day = calendar_day(days)
    return f"{year_text(year)}-{month:02}-{day:02}"


def year_text(year: int) -> str:
    """The year as ISO 8601 texts begin with it."""
    return f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06}"


def clock_text(microseconds: int) -> str:
    """`12:00:00.500000` of a time within a day."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{fraction:06}"


def parse_date(text: str) -> int:
    """Days since 1970 of an ISO 8601 date, also of an extended year; ValueError for others, and beyond 32 bits."""
    plain, shifted = _shifted(text.strip())
    return bounded(date.fromisoformat(plain).toordinal() - _EPOCH_DAY + shifted, -(2**31), 2**31 - 1)


def parse_moment(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 text, as `parse_date`, in 64 bits; without an offset it is UTC."""
    plain, shifted = _shifted(text.strip())
    moment = datetime.fromisoformat(plain)
    passed = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH
    whole = passed // timedelta(microseconds=1) + shifted * DAY_MICROSECONDS
    return bounded(whole, -(2**63), 2**63 - 1)


def bounded(number: int, least: int, most: int) -> int:
    """The number itself; ValueError where it is not between both."""
    if not least <= number <= most:
        raise ValueError("out of range")
    return number


def _shifted(text: str) -> tuple[str, int]:
    """A text for the same day of a year that `datetime` holds, and how many days lie between the two."""
    found = _EXTENDED.fullmatch(text)
    if found is None:
        return text, 0
    year = int(found[1])
    held = year % CYCLE_YEARS + 5 * CYCLE_YEARS
    return f"{held:04}{found[2]}", (year - held) // CYCLE_YEARS * CYCLE_DAYS
