"""Columns of dates and timestamps as texts and back: every value that Arrow holds."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from turnout_client import iso_times
from turnout_client.arrow_columns import fits_years, from_iso_texts, is_plain, iso_texts

DAYS = [None, 0, -719_529, -719_528, 2_932_896, 2_932_897, -(2**31), 2**31 - 1, -1]
MICROSECONDS = [None, 0, -1, -62_167_219_200_000_001, 253_402_300_800_000_000, -(2**63), 2**63 - 1]
UTC_TIME = pa.timestamp("us", "UTC")


def test_dates_of_any_32_bits_are_told_as_single_ones_are() -> None:
    days = DAYS + random.Random(1).choices(range(-(2**31), 2**31), k=500)
    column = pa.chunked_array([pa.array(days, pa.int32()).cast(pa.date32())])
    texts = iso_texts(column).to_pylist()
    assert texts == [None if day is None else iso_times.iso_date_text(day) for day in days]
    assert from_iso_texts(texts, pa.date32()).cast(pa.int32()).to_pylist() == days


@pytest.mark.parametrize("zone", ["UTC", None])
def test_timestamps_of_any_64_bits_are_told_as_single_ones_are(zone: str | None) -> None:
    chance = random.Random(2)
    numbers = MICROSECONDS + [chance.randrange(-(2**63), 2**63) for _ in range(500)]
    column = pa.chunked_array([pa.array(numbers, pa.int64()).cast(pa.timestamp("us", zone))])
    texts = iso_texts(column).to_pylist()
    assert texts == [None if one is None else iso_times.iso_moment_text(one) for one in numbers]
    assert from_iso_texts(texts, UTC_TIME).cast(pa.int64()).to_pylist() == numbers


@pytest.mark.parametrize("values", [[], [None], [-719_528, 2_932_896]])
def test_four_digit_years_are_plain(values: list[int | None]) -> None:
    column = pa.array(values, pa.int32()).cast(pa.date32())
    assert is_plain(column)
    assert iso_texts(column).to_pylist() == [None if one is None else iso_times.iso_date_text(one) for one in values]


def test_a_text_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError):
        from_iso_texts(["+058844-07-17", "tomorrow"], pa.date32())


def test_the_first_and_the_last_year_fit() -> None:
    days = [iso_times.parse_date(text) for text in ("0001-01-01", "9999-12-31")]
    inside = pa.array(days, pa.int32()).cast(pa.date32())
    assert fits_years(inside, 1, 9999)
    for text in ("0000-12-31", "+010000-01-01"):
        assert not fits_years(from_iso_texts([text], pa.date32()), 1, 9999)
    assert fits_years(from_iso_texts(["9999-12-31T23:59:59.999999Z"], UTC_TIME), 1, 9999)
    assert not fits_years(from_iso_texts(["+010000-01-01T00:00:00Z"], UTC_TIME), 1, 9999)
