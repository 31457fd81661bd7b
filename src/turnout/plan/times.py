"""Moments and dates that Python's `datetime` cannot hold: counted in whole numbers, written and read as ISO 8601.

Kafka's timestamps are any 64-bit number of milliseconds, DuckDB holds years from 290308 before Christ to 294247, and
`datetime` only 1 to 9999. So times are numbers inside, and text where people see them. Years outside of 0000 to 9999
have a sign and at least six digits, as ECMAScript writes and reads them: `+058844-02-03T04:05:06Z`. Columns of
times in Arrow are `arrow_columns.py`. Spark's workers get this module by value: it imports nothing of Turnout.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
CYCLE_YEARS = 400
CYCLE_DAYS = 146_097
"""The calendar repeats after 400 years, which have as many days."""
SECOND = 1_000_000
DAY_MICROSECONDS = 86_400 * SECOND
DAY_MILLISECONDS = 86_400_000

LAST_DAY = 2**31 - 2
"""DuckDB's DATE holds this many days before and after 1970; one more means infinity."""
FIRST_MICROSECOND = -9_223_372_022_400_000_000
LAST_MICROSECOND = 2**63 - 2
"""What DuckDB's TIMESTAMP WITH TIME ZONE holds."""

_EXTENDED = re.compile(r"([+-]?[0-9]{4,7})(-[0-9]{2}-[0-9]{2}.*)", re.ASCII | re.DOTALL)
_RECORD_DATE = re.compile(r"([+-]?[0-9]{4,7})-([0-9]{2})-([0-9]{2})")
_RECORD_TIMESTAMP = re.compile(
    r" *([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[Tt ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:[.,]([0-9]+))?)?)?"
    r"(?: ?(?:[Zz]|UTC|GMT|([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?))?)? *"
)


def now_milliseconds() -> int:
    return time.time_ns() // 1_000_000


def moment_sql(milliseconds: str) -> str:
    """SQL of DuckDB: a BIGINT of milliseconds as the nearest TIMESTAMPTZ that DuckDB holds, never an infinity."""
    given, least, most = milliseconds, FIRST_MICROSECOND // 1000, LAST_MICROSECOND // 1000
    # Not `least` and `greatest`: those ignore nulls.
    held = f"CASE WHEN {given} < {least} THEN {least} WHEN {given} > {most} THEN {most} ELSE {given} END"
    return f"make_timestamptz(CAST({held} AS BIGINT) * 1000)"


def holds_day(days: int) -> bool:
    """Whether the store can hold this date."""
    return abs(days) <= LAST_DAY


def holds_moment(microseconds: int) -> bool:
    """Whether the store can hold this point in time."""
    return FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND


def days_since_1970(year: int, month: int, day: int) -> int:
    """In the Gregorian calendar, extended both ways; ValueError if there is no such day."""
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
    return f"{iso_date_text(days)}T{_clock(rest * 1000)[:-3].removesuffix('.000')}Z"


def iso_moment_text(microseconds: int) -> str:
    """ISO 8601 in UTC of any number of microseconds since 1970, always with six digits of a second."""
    days, rest = divmod(microseconds, DAY_MICROSECONDS)
    return f"{iso_date_text(days)}T{_clock(rest)}Z"


def iso_date_text(days: int) -> str:
    """ISO 8601 of any number of days since 1970."""
    year, month, day = calendar_day(days)
    return f"{year_text(year)}-{month:02}-{day:02}"


def year_text(year: int) -> str:
    return f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):06}"


def parse_date(text: str) -> int:
    """Days since 1970 of an ISO 8601 date, also of an extended year; ValueError for others, and beyond 32 bits."""
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
    return _unsigned(iso_date_text(_within(days, -LAST_DAY, LAST_DAY)))


def duckdb_moment(microseconds: int) -> str:
    """The text that DuckDB casts to this TIMESTAMPTZ; ValueError where it holds none."""
    return _unsigned(iso_moment_text(_within(microseconds, FIRST_MICROSECOND, LAST_MICROSECOND)))


def parse_record_date(text: str) -> int | None:
    """The days of `2026-01-31` in a record; None where it is no such date, or beyond what the store holds."""
    found = _RECORD_DATE.fullmatch(text)
    try:
        days = days_since_1970(*map(int, found.groups())) if found else None
    except ValueError:
        return None
    return days if days is not None and holds_day(days) else None


def parse_record_timestamp(text: str) -> int | None:
    """The microseconds of a date and time in a record, in UTC where it names no zone; None where it is none."""
    found = _RECORD_TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, *zone = found.groups()
    hours, minutes, seconds, *away = (int(part or 0) for part in (hour, minute, second, *zone))
    if max(hours, away[0]) > 23 or max(minutes, seconds, away[1], away[2]) > 59:
        return None
    try:
        days = days_since_1970(int(year), int(month), int(day))
    except ValueError:
        return None
    offset = (away[0] * 60 + away[1]) * 60 + away[2]
    local = days * 86_400 + (hours * 60 + minutes) * 60 + seconds
    micros = (local - (-offset if sign == "-" else offset)) * SECOND + int((fraction or "")[:6].ljust(6, "0"))
    return micros if holds_moment(micros) else None


def record_date_text(days: int) -> str:
    """The date of a record in a string column: years outside of 0000 to 9999 with a sign and five digits or more."""
    year, month, day = calendar_day(days)
    return f"{f'{year:04d}' if 0 <= year <= 9999 else f'{year:+05d}'}-{month:02d}-{day:02d}"


def record_time_text(microseconds: int) -> str:
    """`12:00:00` or `12:00:00.500000`, of a time within a day."""
    return _clock(microseconds).removesuffix(".000000")


def record_moment_text(microseconds: int) -> str:
    """The point in time of a record in a string column: `2026-01-31T12:00:00+00:00`."""
    days, within = divmod(microseconds, DAY_MICROSECONDS)
    return f"{record_date_text(days)}T{record_time_text(within)}+00:00"


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
