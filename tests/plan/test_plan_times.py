"""Times of any 64-bit number: as text, read back, and as DuckDB holds them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta

import duckdb
import pytest

from turnout.plan import times
from turnout_client import iso_times
from turnout_client.iso_times import iso_moment_text, parse_moment

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_767_225_600_123, "2026-01-01T00:00:00.123Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "+010000-01-01T00:00:00Z"),
        (1_794_787_200_000_000, "+058844-07-17T00:00:00Z"),
        (-62_135_596_800_001, "0000-12-31T23:59:59.999Z"),
        (-62_167_219_200_001, "-000001-12-31T23:59:59.999Z"),
        (MOST, "+292278994-08-17T07:12:55.807Z"),
        (LEAST, "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_milliseconds_of_any_64_bits_have_a_text(milliseconds: int, text: str) -> None:
    assert iso_times.iso_text(milliseconds) == text


def test_texts_are_those_of_datetime_where_that_holds_the_year() -> None:
    chance = random.Random(1)
    for _ in range(2_000):
        moment = datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(315_537_897_600_000_000))
        passed = (moment - EPOCH) // timedelta(microseconds=1)
        assert iso_moment_text(passed) == moment.strftime(f"{moment.year:04}-%m-%dT%H:%M:%S.%fZ")
        assert iso_times.iso_date_text(passed // iso_times.DAY_MICROSECONDS) == moment.date().isoformat()


def test_texts_are_read_back_as_the_same_number() -> None:
    chance = random.Random(2)
    for _ in range(2_000):
        microseconds = chance.randrange(-9_223_372_022_400_000_000, MOST)
        assert parse_moment(iso_moment_text(microseconds)) == microseconds
        days = chance.randrange(-2_147_483_646, 2_147_483_647)
        assert iso_times.parse_date(iso_times.iso_date_text(days)) == days


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("1970-01-02", 1),
        (" 20260131 ", (date(2026, 1, 31) - date(1970, 1, 1)).days),
        ("0000-02-29", -719_469),
        ("10000-01-01", 2_932_897),
        ("+010000-01-01", 2_932_897),
        ("-0001-03-01", -719_834),
    ],
)
def test_dates_are_read_with_any_year(text: str, days: int) -> None:
    assert iso_times.parse_date(text) == days


def test_a_moment_takes_its_offset_at_the_edges_too() -> None:
    assert iso_moment_text(parse_moment("0001-01-01T00:00:00+05:00")) == "0000-12-31T19:00:00.000000Z"
    assert iso_moment_text(parse_moment("9999-12-31T23:00:00-05:00")) == "+010000-01-01T04:00:00.000000Z"
    assert iso_moment_text(parse_moment("58844-10-28 01:02")) == "+058844-10-28T01:02:00.000000Z"


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-02-29", "58844-13-01", "+5881580-07-12", "-9999999-01-01"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        iso_times.parse_date(text)


@pytest.mark.parametrize("text", ["", "58844-10-28T25:00", "+294247-01-10T04:00:54.775808Z", "-290309-01-01", "+1-1-1"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text)


def test_duckdb_reads_its_texts_as_the_same_numbers() -> None:
    chance = random.Random(3)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Kathmandu'")
    for _ in range(300):
        microseconds = chance.randrange(-9_223_372_022_400_000_000, MOST)
        days = chance.randrange(-2_147_483_646, 2_147_483_647)
        texts = [times.duckdb_moment(microseconds), times.duckdb_date(days)]
        sql = "SELECT epoch_us(CAST(? AS TIMESTAMPTZ)), CAST(? AS DATE) - DATE '1970-01-01'"
        assert connection.execute(sql, texts).fetchone() == (microseconds, days)


def test_duckdb_holds_the_nearest_moment_and_no_infinity() -> None:
    connection = duckdb.connect()
    numbers = [LEAST, LEAST + 1, -(10**17), -1, 0, 1, 1_767_225_600_123, 1_794_787_200_000_000, 10**17, MOST, None]
    connection.execute("CREATE TABLE t AS SELECT unnest(CAST(? AS BIGINT[])) AS ms", [numbers])
    found = connection.execute(
        f"SELECT ms, epoch_ms({times.moment_sql('ms')}), isfinite({times.moment_sql('ms')}) FROM t ORDER BY 1"
    ).fetchall()
    assert found == [
        (LEAST, -9_223_372_022_400_000, True),
        (LEAST + 1, -9_223_372_022_400_000, True),
        (-(10**17), -9_223_372_022_400_000, True),
        (-1, -1, True),
        (0, 0, True),
        (1, 1, True),
        (1_767_225_600_123, 1_767_225_600_123, True),
        (1_794_787_200_000_000, 1_794_787_200_000_000, True),
        (10**17, 9_223_372_036_854_775, True),
        (MOST, 9_223_372_036_854_775, True),
        (None, None, None),
    ]


def test_what_duckdb_does_not_hold_has_no_text_for_it() -> None:
    for days in (-2_147_483_647, 2_147_483_647):  # its infinities
        with pytest.raises(ValueError):
            times.duckdb_date(days)
    for microseconds in (-9_223_372_022_400_000_001, MOST):
        with pytest.raises(ValueError):
            times.duckdb_moment(microseconds)
