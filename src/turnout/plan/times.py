"""Moments and dates that Python's `datetime` cannot hold: counted in whole numbers, written and read as ISO 8601.

Kafka's timestamps are any 64-bit number of milliseconds, DuckDB holds years from 290308 before Christ to 294247, and
`datetime` only 1 to 9999. So times are numbers inside, and text where people see them. Years outside of 0000 to 9999
have a sign and at least six digits, as ECMAScript writes and reads them: `+058844-02-03T04:05:06Z`. Columns of
times in Arrow are `time_columns.py`.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
"""The calendar repeats after so many years, which are so many days."""
DAY_MICROSECONDS = 86_400_000_000
DAY_MILLISECONDS = 86_400_000

# What DuckDB holds, without the two values of each type that it takes for infinity.
_LEAST_MICROSECONDS, _MOST_MICROSECONDS = -9_223_372_022_400_000_000, 9_223_372_036_854_775_806
_LEAST_MILLISECONDS, _MOST_MILLISECONDS = -9_223_372_022_400_000, 9_223_372_036_854_775
_LEAST_DAYS, _MOST_DAYS = -2_147_483_646, 2_147_483_646

_EXTENDED = re.compile(r"([+-]?[0-9]{4,7})(-[0-9]{2}-[0-9]{2}.*)", re.ASCII | re.DOTALL)


def now_milliseconds() -> int:
    return time.time_ns() // 1_000_000


def moment_sql(milliseconds: str) -> str:
    """SQL of DuckDB: a BIGINT of milliseconds as the nearest TIMESTAMPTZ that DuckDB holds, never an infinity."""
    given, least, most = milliseconds, _LEAST_MILLISECONDS, _MOST_MILLISECONDS
    # Not `least` and `greatest`: those ignore nulls.
    held = f"CASE WHEN {given} < {least} THEN {least} WHEN {given} > {most} THEN {most} ELSE {given} END"
    return f"make_timestamptz(CAST({held} AS BIGINT) * 1000)"


def iso_text(milliseconds: int) -> str:
    """ISO 8601 in UTC of any number of milliseconds since 1970, to the millisecond where it is no whole second."""
    days, rest = divmod(milliseconds, DAY_MILLISECONDS)
    return f"{iso_date_text(days)}T{_clock(rest * 1000)[:-3].removesuffix('.000')}Z"


def iso_moment_text(microseconds: int) -> str:
    """ISO 8601 in UTC of any number of microseconds since 1970, always with six digits of a second."""
    days, rest = divmod(microseconds, DAY_MICROSECONDS)
    return f"{iso_date_text(days)}T{_clock(rest)}Z"


def iso_date_text(days: int) -> str:
    """ISO 8601 of any number of days since 1970."""
    cycles, rest = divmod(days, CYCLE_DAYS)
    day = date.fromordinal(_EPOCH_DAY + rest)
    return f"{year_text(day.year + cycles * CYCLE_YEARS)}-{day.month:02}-{day.day:02}"


def year_text(year: int) -> str:
    return f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06}"


def parse_date(text: str) -> int:
    """Days since 1970 of an ISO 8601 date, extended years too; ValueError for what is none, or has over 32 bits."""
    plain, shifted = _shifted(text.strip())
    return _within(date.fromisoformat(plain).toordinal() - _EPOCH_DAY + shifted, -(2**31), 2**31 - 1)


def parse_moment(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 text, as `parse_date`, in 64 bits; without an offset it is UTC."""
    plain, shifted = _shifted(text.strip())
    moment = datetime.fromisoformat(plain)
    passed = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment) - _EPOCH
    whole = passed // timedelta(microseconds=1) + shifted * DAY_MICROSECONDS
    return _within(whole, -(2**63), 2**63 - 1)


def duckdb_date(days: int) -> str:
    """The text that DuckDB casts to this DATE; ValueError where it holds none."""
    return _unsigned(iso_date_text(_within(days, _LEAST_DAYS, _MOST_DAYS)))


def duckdb_moment(microseconds: int) -> str:
    """The text that DuckDB casts to this TIMESTAMPTZ; ValueError where it holds none."""
    return _unsigned(iso_moment_text(_within(microseconds, _LEAST_MICROSECONDS, _MOST_MICROSECONDS)))


def _unsigned(text: str) -> str:
    return text.removeprefix("+")  # DuckDB takes more digits, and a minus, but no plus


def _shifted(text: str) -> tuple[str, int]:
    """The same day of a year that `datetime` holds, and how many days lie between the two."""
    found = _EXTENDED.fullmatch(text)
    if found is None:
        return text, 0
    year = int(found[1])
    held = year % CYCLE_YEARS + 5 * CYCLE_YEARS
    return f"{held:04}{found[2]}", (year - held) // CYCLE_YEARS * CYCLE_DAYS


def _within(number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise ValueError("out of range")
    return number


def _clock(microseconds: int) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}.{fraction:06}"
