"""Dates as days and timestamps as microseconds since 1970, as texts and back.

Whole numbers throughout: Python's `datetime` ends at the year 9999, Kafka's records do not.
"""

from __future__ import annotations

import re

LAST_DAY = 2**31 - 2
"""DuckDB's DATE holds this many days before and after 1970; one more means infinity."""
FIRST_MICROSECOND = -9_223_372_022_400_000_000
LAST_MICROSECOND = 2**63 - 2
"""What DuckDB's TIMESTAMP WITH TIME ZONE holds."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
_ERA_DAYS = 146_097
_TO_1970 = 719_468
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_DATE = re.compile(r"([+-]?[0-9]{4,7})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    r" *([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[Tt ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:[.,]([0-9]+))?)?)?"
    r"(?: ?(?:[Zz]|UTC|GMT|([+-])([0-9]{2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?))?)? *"
)


class Day(int):
    """A date: days since 1970."""


class Moment(int):
    """A point in time: microseconds since 1970 in UTC."""


def parse_date(text: str) -> int | None:
    """The days of `2026-01-31`; None where it is no such date, or beyond what the store holds."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    days = _days(int(found[1]), int(found[2]), int(found[3]))
    return days if days is not None and abs(days) <= LAST_DAY else None


def parse_timestamp(text: str) -> int | None:
    """The microseconds of a date and time of ISO 8601, in UTC where no zone is given; None where it is none."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, *zone = found.groups()
    days = _days(int(year), int(month), int(day))
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    away = [int(part or 0) for part in zone]
    if days is None or max(hours, away[0]) > 23 or max(minutes, seconds, away[1], away[2]) > 59:
        return None
    offset = (away[0] * 60 + away[1]) * 60 + away[2]
    local = days * 86_400 + (hours * 60 + minutes) * 60 + seconds
    micros = (local - (-offset if sign == "-" else offset)) * SECOND + int((fraction or "")[:6].ljust(6, "0"))
    return micros if holds_moment(micros) else None


def holds_moment(microseconds: int) -> bool:
    """Whether the store can hold this point in time."""
    return FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND


def date_text(days: int) -> str:
    """`2026-01-31`, with a sign and more digits where the year needs them."""
    shifted = days + _TO_1970
    era, day_of_era = divmod(shifted, _ERA_DAYS)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = era * 400 + year_of_era + (month <= 2)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{day:02d}"


def time_text(microseconds: int) -> str:
    """`12:00:00` or `12:00:00.500000`, of a time within a day."""
    seconds, fraction = divmod(microseconds, SECOND)
    shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{shown}.{fraction:06d}" if fraction else shown


def moment_text(microseconds: int) -> str:
    """`2026-01-31T12:00:00+00:00`."""
    days, within = divmod(microseconds, DAY)
    return f"{date_text(days)}T{time_text(within)}+00:00"


def _days(year: int, month: int, day: int) -> int | None:
    """Days from 1970 in the calendar of today, carried back and forth; None where there is no such day."""
    if not 1 <= month <= 12:
        return None
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _MONTH_DAYS[month - 1] + leap:
        return None
    # Years that begin in March have their odd day at the end.
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * _ERA_DAYS + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - _TO_1970
