"""Times of records and of the store: the texts that records have, and the range that DuckDB holds.

Kafka's timestamps are any 64-bit number of milliseconds, and DuckDB holds years from 290308 before Christ to 294247, so
times are whole numbers since 1970. `turnout_client.iso_times` has the calendar, and the texts of the API. Spark's
workers get this module by value: of Turnout it imports that module alone.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from turnout_client.iso_times import (
    DAY_MICROSECONDS,
    SECOND,
    bounded,
    calendar_day,
    clock_text,
    days_since_1970,
    iso_date_text,
    iso_moment_text,
)

LAST_DAY = 2**31 - 2
"""DuckDB's DATE holds this many days before and after 1970; one more means infinity."""
FIRST_MICROSECOND = -9_223_372_022_400_000_000
LAST_MICROSECOND = 2**63 - 2
"""What DuckDB's TIMESTAMP WITH TIME ZONE holds."""

_RECORD_DATE = re.compile(r"([+-]?[0-9]{4,7})-([0-9]{2})-([0-9]{2})")
_RECORD_TIMESTAMP = re.compile(
    r" *([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[Tt ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:[.,]([0-9]+))?)?)?"
    r"(?: ?(?:[Zz]|UTC|GMT|([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?))?)? *"
)


def now_milliseconds() -> int:
    return time.time_ns() // 1_000_000


def now_text() -> str:
    """The time now as the API has it, always with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


def duckdb_date(days: int) -> str:
    """The text that DuckDB casts to this DATE; ValueError where it holds none."""
    return _unsigned(iso_date_text(bounded(days, -LAST_DAY, LAST_DAY)))


def duckdb_moment(microseconds: int) -> str:
    """The text that DuckDB casts to this TIMESTAMPTZ; ValueError where it holds none."""
    return _unsigned(iso_moment_text(bounded(microseconds, FIRST_MICROSECOND, LAST_MICROSECOND)))


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
    return clock_text(microseconds).removesuffix(".000000")


def record_moment_text(microseconds: int) -> str:
    """The point in time of a record in a string column: `2026-01-31T12:00:00+00:00`."""
    days, within = divmod(microseconds, DAY_MICROSECONDS)
    return f"{record_date_text(days)}T{record_time_text(within)}+00:00"


def _unsigned(text: str) -> str:
    return text.removeprefix("+")  # DuckDB takes more digits, and a minus, but no plus
