"""What becomes of single JSON records: rows, nulls and faults, type by type."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from decoded_records import found, raw, shape
from turnout.decode.decoder import open_decoder
from turnout.plan.times import (
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    parse_record_date,
    parse_record_timestamp,
    record_date_text,
    record_moment_text,
)
from turnout_client.column_types import KNOWN_TYPES

COLUMNS = {
    "id": "string",
    "name": "string",
    "age": "int64",
    "small": "int32",
    "balance": "double",
    "ratio": "float",
    "on": "boolean",
    "day": "date",
    "at": "timestamp",
    "price": "decimal(10,2)",
}
NOON = 1_767_355_200_000_000
SECOND = 1_000_000
DAY = (date(2026, 1, 2) - date(1970, 1, 1)).days

GOOD: list[tuple[str, dict[str, Any]]] = [
    ('{"id":"a","age":3}', {"id": "a", "age": 3}),
    ("{}", {}),
    ('{"id":null,"unknown":{"id":"no"}}', {}),
    (' \t\r\n{"id" : "a"}\n', {"id": "a"}),
    ('{"id":"a","id":"b"}', {"id": "b"}),
    ('{"id":"a","id":null}', {}),
    ('{"age":"x","age":1}', {"age": 1}),
    ('{"i\\u0064":"a"}', {"id": "a"}),
    ('{"Id":"a"}', {}),
    ('{"\\ud800":1}', {}),
    ('{"id":"caf\\u00e9 🚂"}', {"id": "café 🚂"}),
    ('{"id":"\\ud83d\\ude82"}', {"id": "🚂"}),
    ('{"id":"\\ud800x\\udc00"}', {"id": "\ufffdx\ufffd"}),
    ('{"id":"\\u0000"}', {"id": "\0"}),
    ('{"id":12}', {"id": "12"}),
    ('{"id":12.50}', {"id": "12.50"}),
    ('{"id":-0}', {"id": "-0"}),
    ('{"id":1e3}', {"id": "1e3"}),
    ('{"id":123456789012345678901234567890.12}', {"id": "123456789012345678901234567890.12"}),
    ('{"id":1e999}', {"id": "1e999"}),
    ('{"id":' + "7" * 5_000 + "}", {"id": "7" * 5_000}),
    ('{"id":true}', {"id": "true"}),
    ('{"id":"1.50"}', {"id": "1.50"}),
    ('{"id":"{x}"}', {"id": "{x}"}),
    ('{"id":{"b" : 1.50, "c":"}"} }', {"id": '{"b" : 1.50, "c":"}"}'}),
    ('{"id":{"\\ud800":1}}', {"id": '{"\\ud800":1}'}),
    ('{"id":[1, 2.0 ,{"a":[]}]}', {"id": '[1, 2.0 ,{"a":[]}]'}),
    ('{"id":[1],"id":[2]}', {"id": "[2]"}),
    ('{"x":{"id":1.50},"id":2.50}', {"id": "2.50"}),
    ('{"x":"\\"id\\":9.0","id":2.50,"name":"n"}', {"id": "2.50", "name": "n"}),
    ('{"small":-2147483648,"on":true,"ratio":0.5}', {"small": -(2**31), "on": True, "ratio": 0.5}),
    ('{"age":-0,"small":2147483647}', {"age": 0, "small": 2**31 - 1}),
    ('{"age":9223372036854775807}', {"age": 2**63 - 1}),
    ('{"balance":3}', {"balance": 3.0}),
    ('{"balance":1e-400}', {"balance": 0.0}),
    ('{"balance":9007199254740993}', {"balance": 9007199254740992.0}),
    ('{"ratio":16777217}', {"ratio": 16777216.0}),
    ('{"ratio":3.4028235e38}', {"ratio": 3.4028234663852886e38}),
    ('{"day":"2026-01-02","at":"2026-01-02T12:00:00Z"}', {"day": DAY, "at": NOON}),
    ('{"day":"0000-02-29"}', {"day": -719469}),
    ('{"day":"-0001-12-31"}', {"day": -719529}),
    ('{"day":"+12026-01-02"}', {"day": 3672880}),
    ('{"day":"5881580-07-10"}', {"day": LAST_DAY}),
    ('{"at":"2026-01-02T13:00:00+01:00"}', {"at": NOON}),
    ('{"at":"2026-01-02T08:30:00-0330"}', {"at": NOON}),
    ('{"at":"2026-01-02T13:00:00+01"}', {"at": NOON}),
    ('{"at":" 2026-01-02 12:00:00 UTC "}', {"at": NOON}),
    ('{"at":"2026-01-02T12:00:00"}', {"at": NOON}),
    ('{"at":"2026-1-2 12:00"}', {"at": NOON}),
    ('{"at":"2026-01-02T12Z"}', {"at": NOON}),
    ('{"at":"2026-01-02"}', {"at": NOON - 12 * 3600 * SECOND}),
    ('{"at":"2026-01-02t12:00:00.5z"}', {"at": NOON + SECOND // 2}),
    ('{"at":"2026-01-02T12:00:00.123456789Z"}', {"at": NOON + 123_456}),
    ('{"at":1767355200}', {"at": NOON}),
    ('{"at":-1}', {"at": -SECOND}),
    ('{"at":1767355200000}', {"at": NOON * 1000}),
    ('{"at":"+58844-01-01T00:00:00Z"}', {"at": 1794770092800 * SECOND}),
    ('{"at":"294247-01-10T04:00:54.775806Z"}', {"at": LAST_MICROSECOND}),
    ('{"at":"-290308-12-22"}', {"at": FIRST_MICROSECOND}),
    ('{"price":1.25}', {"price": Decimal("1.25")}),
    ('{"price":"1.25"}', {"price": Decimal("1.25")}),
    ('{"price":1.005}', {"price": Decimal("1.01")}),
    ('{"price":-1.005}', {"price": Decimal("-1.01")}),
    ('{"price":1e2}', {"price": Decimal("100.00")}),
    ('{"price":"+.5e1"}', {"price": Decimal("5.00")}),
    ('{"price":1e-1000000000}', {"price": Decimal("0.00")}),
    ('{"price":0.' + "0" * 10_000 + "1}", {"price": Decimal("0.00")}),
    ('{"price":99999999.99}', {"price": Decimal("99999999.99")}),
]

MISTYPED = [
    ('{"id":"a","age":"x"}', "age", 'expected int64, got "x"'),
    ('{"id":"a","age":1,"age":"x"}', "age", 'expected int64, got "x"'),
    ('{"id":"a","age":1.0}', "age", "expected int64, got 1.0"),
    ('{"id":"a","age":1e2}', "age", "expected int64, got 1e2"),
    ('{"id":"a","age":""}', "age", 'expected int64, got ""'),
    ('{"id":"a","age":"1"}', "age", 'expected int64, got "1"'),
    ('{"id":"a","age":true}', "age", "expected int64, got true"),
    ('{"id":"a","age":{"b" : 1}}', "age", 'expected int64, got {"b" : 1}'),
    ('{"id":"a","age":99999999999999999999}', "age", "expected int64, got 99999999999999999999"),
    ('{"id":"a","age":' + "9" * 100_000 + "}", "age", "expected int64, got " + "9" * 80),
    ('{"id":"a","age":"\\ud800"}', "age", 'expected int64, got "\ufffd"'),
    ('{"id":"a","small":2147483648}', "small", "expected int32, got 2147483648"),
    ('{"id":"a","balance":"1.5"}', "balance", 'expected double, got "1.5"'),
    ('{"id":"a","balance":"NaN"}', "balance", 'expected double, got "NaN"'),
    ('{"id":"a","balance":1e999}', "balance", "expected double, got 1e999"),
    ('{"id":"a","balance":[]}', "balance", "expected double, got []"),
    ('{"id":"a","ratio":3.4028236e38}', "ratio", "expected float, got 3.4028236e38"),
    ('{"id":"a","ratio":"1"}', "ratio", 'expected float, got "1"'),
    ('{"id":"a","on":"true"}', "on", 'expected boolean, got "true"'),
    ('{"id":"a","on":1}', "on", "expected boolean, got 1"),
    ('{"id":"a","day":"2026-1-2"}', "day", 'expected date, got "2026-1-2"'),
    ('{"id":"a","day":"2026-02-29"}', "day", 'expected date, got "2026-02-29"'),
    ('{"id":"a","day":"2026-01-02T00:00:00Z"}', "day", 'expected date, got "2026-01-02T00:00:00Z"'),
    ('{"id":"a","day":20455}', "day", "expected date, got 20455"),
    ('{"id":"a","day":"5881580-07-11"}', "day", 'expected date, got "5881580-07-11"'),
    ('{"id":"a","day":"٢٠٢٦-٠١-٠٢"}', "day", 'expected date, got "٢٠٢٦-٠١-٠٢"'),
    ('{"id":"a","day":"infinity"}', "day", 'expected date, got "infinity"'),
    ('{"id":"a","at":"noon"}', "at", 'expected timestamp, got "noon"'),
    ('{"id":"a","at":"12:00:00"}', "at", 'expected timestamp, got "12:00:00"'),
    ('{"id":"a","at":"1767355200"}', "at", 'expected timestamp, got "1767355200"'),
    ('{"id":"a","at":1.5}', "at", "expected timestamp, got 1.5"),
    ('{"id":"a","at":99999999999999}', "at", "expected timestamp, got 99999999999999"),
    ('{"id":"a","at":' + "9" * 5_000 + "}", "at", "expected timestamp, got " + "9" * 80),
    ('{"id":"a","at":"2026-01-02T24:00:00Z"}', "at", 'expected timestamp, got "2026-01-02T24:00:00Z"'),
    (
        '{"id":"a","at":"2026-01-02T12:00:00 Europe/Berlin"}',
        "at",
        'expected timestamp, got "2026-01-02T12:00:00 Europe/Berlin"',
    ),
    (
        '{"id":"a","at":"294247-01-10T04:00:54.775807Z"}',
        "at",
        'expected timestamp, got "294247-01-10T04:00:54.775807Z"',
    ),
    ('{"id":"a","price":123456789.12}', "price", "expected decimal(10,2), got 123456789.12"),
    ('{"id":"a","price":99999999.995}', "price", "expected decimal(10,2), got 99999999.995"),
    ('{"id":"a","price":"1,000.5"}', "price", 'expected decimal(10,2), got "1,000.5"'),
    ('{"id":"a","price":" 1.5"}', "price", 'expected decimal(10,2), got " 1.5"'),
    ('{"id":"a","price":"NaN"}', "price", 'expected decimal(10,2), got "NaN"'),
    ('{"id":"a","price":"1_0"}', "price", 'expected decimal(10,2), got "1_0"'),
    ('{"id":"a","price":1e1000000000}', "price", "expected decimal(10,2), got 1e1000000000"),
    ('{"id":"a","price":1e99999999999999999999}', "price", "expected decimal(10,2), got 1e99999999999999999999"),
    ('{"id":"a","price":true}', "price", "expected decimal(10,2), got true"),
]

MALFORMED: list[tuple[bytes | None, str]] = [
    (None, "null value"),
    (b"", "not valid JSON"),
    (b" ", "not valid JSON"),
    (b"nope", "not valid JSON"),
    (b'{"id":"a"', "not valid JSON"),
    (b'{"id":"a",}', "not valid JSON"),
    (b'{"id":"a"} x', "not valid JSON"),
    (b'{"id":"a"}{"id":"b"}', "not valid JSON"),
    (b'{"id":{"a":1}} }', "not valid JSON"),
    (b'{"id":"a"}]', "not valid JSON"),
    (b'{"id":"a"},7] junk', "not valid JSON"),
    (b'{"id":"a"}\0', "not valid JSON"),
    (b"{'id':'a'}", "not valid JSON"),
    (b'{id:"a"}', "not valid JSON"),
    (b"{/**/}", "not valid JSON"),
    (b'{"age":01}', "not valid JSON"),
    (b'{"age":1.}', "not valid JSON"),
    (b'{"age":+1}', "not valid JSON"),
    (b'{"age":NaN}', "not valid JSON"),
    (b'{"x":[-Infinity]}', "not valid JSON"),
    (b'{"id":"\xff"}', "not valid JSON"),
    (b'{"id":"\xed\xa0\x80"}', "not valid JSON"),
    (b'{"id":"x\ny"}', "not valid JSON"),
    (b'{"id":"\\q"}', "not valid JSON"),
    (b"\xef\xbb\xbf{}", "not valid JSON"),
    (b"\x0b{}", "not valid JSON"),
    (b"{}\xc2\xa0", "not valid JSON"),
    (b"[]", "not an object"),
    (b'[{"id":"a"}]', "not an object"),
    (b"null", "not an object"),
    (b"12", "not an object"),
    (b'"text"', "not an object"),
    (b'"\\ud800"', "not an object"),
]


def decoded(values: list[bytes | None], **source: Any) -> Any:
    return open_decoder([shape(COLUMNS, **source)])(raw(values))


def test_good_records_become_typed_rows() -> None:
    result = decoded([text.encode() for text, _ in GOOD])
    assert result.faults is None
    for (text, expected), (row, _) in zip(GOOD, found(result, len(GOOD)), strict=True):
        assert {k: v for k, v in (row or {"no": "row"}).items() if v is not None} == expected, text[:200]


def test_mistyped_fields_are_null_and_named() -> None:
    result = decoded([text.encode() for text, _, _ in MISTYPED])
    for (text, field, reason), (row, faults) in zip(MISTYPED, found(result, len(MISTYPED)), strict=True):
        assert row is not None
        assert (row["id"], row[field]) == ("a", None), text[:200]
        assert faults == [(field, reason)]
    assert result.faults["text"].to_pylist() == [text for text, _, _ in MISTYPED]
    assert result.faults["value"].null_count == result.faults["key"].null_count == len(MISTYPED)


def test_malformed_records_have_no_row_and_keep_their_bytes() -> None:
    values = [value for value, _ in MALFORMED]
    result = decoded(values)
    assert [faults for _, faults in found(result, len(values))] == [[(None, reason)] for _, reason in MALFORMED]
    assert result.rows[0].num_rows == 0
    assert result.faults["value"].to_pylist() == values
    assert result.faults["key"].to_pylist() == [b"k"] * len(values)
    shown = [value if value is None else value.decode(errors="replace") for value in values]
    assert result.faults["text"].to_pylist() == shown


def test_timestamps_of_kafka_may_be_any_number() -> None:
    least, most = -(2**63), 2**63 - 1
    batch = raw([b"{}", b"nope"])
    batch = batch.set_column(2, "_ts", pa.array([least, most]))
    result = open_decoder([shape(COLUMNS)])(batch)
    assert (result.rows[0]["_ts"].to_pylist(), result.faults["_ts"].to_pylist()) == ([least], [most])  # type: ignore[index]


TOMBSTONES: list[tuple[str, bytes | None, Any]] = [
    ("string", b"key", "key"),
    ("string", b"", ""),
    ("string", None, None),
    ("string", b"\xff", None),
    ("int64", b"42", 42),
    ("int64", b"-42", -42),
    ("int64", b"042", None),
    ("int64", b"-0", None),
    ("int64", b" 42", None),
    ("int64", b"9223372036854775808", None),
    ("int32", b"2147483648", None),
    ("boolean", b"true", True),
    ("boolean", b"TRUE", None),
    ("decimal(10,2)", b"1.50", Decimal("1.50")),
    ("decimal(10,2)", b"1.5", None),
    ("date", b"2026-01-02", DAY),
    ("date", b"x", None),
    ("timestamp", b"2026-01-02 12:00:00", NOON),
]


@pytest.mark.parametrize(("kind", "key", "removed"), TOMBSTONES)
def test_tombstone_of_a_latest_source_names_the_row_to_remove(kind: str, key: bytes | None, removed: Any) -> None:
    columns = {"id": kind, "name": "string"}
    result = open_decoder([shape(columns, tombstones=True)])(raw([None, b"{}"], [key, key]))
    (row, faults), (other, _) = found(result, 2)
    assert other == {"id": None, "name": None, "_deleted": False}
    if removed is None:
        assert (row, faults) == (None, [(None, "null value")])
    else:
        assert (row, faults) == ({"id": removed, "name": None, "_deleted": True}, [])


NESTED = [
    ('{"id":{"a":[' + ",".join('"x"' for _ in range(1500)) + "]}}", True),
    ("{" + ",".join(f'"k{i}":1' for i in range(900)) + ',"id":2.50}', True),
    ('{"id":' + '{"a":' * 400 + "1.50" + "}" * 400 + "}", True),
    ('{"id":' + "[" * 999 + "]" * 999 + "}", True),
    ('{"id":' + "[" * 1000 + "]" * 1000 + "}", False),
    ('{"x":' + "[" * 100_000 + "]" * 100_000 + "}", False),
    ("[" * 1000 + "]" * 1000, False),
    ('{"id":[' + "9.50," * 20_000 + "1]}", True),
    ('{"x":' + "[" * 300 + "]" * 300 + ',"id":"[[["}', True),
    ('{"x":' + "[" * 300 + "]" * 299 + ',"id":"a"}', False),
    ('{"x":' + "[" * 300 + "]" * 299 + '},"id":"a"}', False),
    ('{"x":' + "[" * 300 + "1," + "]" * 300 + ',"id":"a"}', False),
    ('{"x":' + "[" * 300 + "NaN" + "]" * 300 + ',"id":"a"}', False),
    ('{"x":' + "[" * 300 + '"\\x"' + "]" * 300 + ',"id":"a"}', False),
    ('{"x":' + "[" * 300 + '{"a" 1}' + "]" * 300 + ',"id":"a"}', False),
    ('{"x":' + "[" * 300 + "]" * 300 + ',"id":"a"} x', False),
    ('{"x":' + '"[' * 300 + ',"id":"a"}', False),
    ('{"id":"' + '\\"[' * 300 + '"}', True),
]


@pytest.mark.parametrize(("text", "good"), NESTED)
def test_huge_and_nested_values_are_kept_and_end_nothing(text: str, good: bool) -> None:
    [(row, faults)] = found(decoded([text.encode()]), 1)
    assert (row is not None) == good, faults
    if row is not None:
        assert row["id"] in text or row["id"] == "[" * 3 or row["id"] == '"[' * 300
    else:
        assert faults in ([(None, "not valid JSON")], [(None, "not an object")])


def test_deep_records_are_read_as_shallow_ones_are() -> None:
    deep = (
        '{"x":'
        + "[" * 300
        + "]" * 300
        + ","
        + '"id" : "\\u00e9\\ud800", "age":7 ,"name": {"b" : 1.50} ,"on":null,"age":-0,"price":1.5}'
    )
    [(row, faults)] = found(decoded([deep.encode()]), 1)
    assert (row, faults) == (
        dict.fromkeys(COLUMNS) | {"id": "é\ufffd", "age": 0, "name": '{"b" : 1.50}', "price": Decimal("1.50")},
        [],
    )


@pytest.mark.parametrize(
    "value",
    [
        b'{"age":' + b"9" * 2_000_000 + b"}",
        b'{"balance":0.' + b"3" * 2_000_000 + b"}",
        b'{"price":0.' + b"3" * 2_000_000 + b"}",
        b'{"id":"' + b'\\"[' * 500_000,
        b'{"id":"' + b"\\ud800" * 200_000 + b'"}',
        b"[" * 2_000_000,
        b'{"a":' * 400_000,
    ],
    ids=["whole number", "double", "decimal", "open string", "surrogates", "brackets", "objects"],
)
def test_records_of_megabytes_take_time_in_proportion(value: bytes) -> None:
    """Quadratic work on two million characters would end at the time limit of a test."""
    assert decoded([value]).records == 1


def test_the_store_holds_what_fits_and_shows_the_same_date() -> None:
    """The limits are DuckDB's own."""
    days = [-LAST_DAY, -719_529, 0, DAY, LAST_DAY]
    moments = [FIRST_MICROSECOND, -1, 0, NOON, LAST_MICROSECOND]
    table = pa.table({"day": pa.array(days, pa.date32()), "at": pa.array(moments, pa.timestamp("us", "UTC"))})
    with duckdb.connect() as store:
        store.execute("SET TimeZone = 'UTC'")
        store.register("given", table)
        store.execute("CREATE TABLE kept AS FROM given")
        kept = store.execute(
            'SELECT CAST(day AS VARCHAR), epoch_us("at"), isfinite(day), isfinite("at") FROM kept'
        ).fetchall()
    assert [row[0] for row in kept][1:4] == ["0002-12-31 (BC)", "1970-01-01", "2026-01-02"]
    assert f"+{kept[4][0]}" == record_date_text(LAST_DAY)
    assert [row[1:] for row in kept] == [(moment, True, True) for moment in moments]


@pytest.mark.parametrize("step", [1, 7919])
def test_dates_are_those_of_python_and_go_both_ways(step: int) -> None:
    first = date(1970, 1, 1).toordinal()
    for ordinal in range(1 if step > 1 else 730_000, date.max.toordinal() if step > 1 else 750_000, step):
        text = date.fromordinal(ordinal).isoformat()
        assert parse_record_date(text) == ordinal - first
        assert record_date_text(ordinal - first) == text


@pytest.mark.parametrize("year", [-5_877_640, -10_000, -1, 0, 10_000, 58_844, 5_881_579])
def test_dates_far_away_go_both_ways(year: int) -> None:
    for month, day in ((1, 1), (2, 28), (12, 31)):
        text = f"{year:05d}-{month:02d}-{day:02d}" if year < 0 else f"{year:04d}-{month:02d}-{day:02d}"
        days = parse_record_date(text)
        assert days is not None
        assert record_date_text(days).lstrip("+") == text


def test_moments_are_shown_as_python_shows_them() -> None:
    for moment in (0, NOON, NOON + 1, -1, -62_135_596_800 * SECOND):
        seconds, micros = divmod(moment, SECOND)
        expected = datetime.fromtimestamp(seconds, UTC).replace(microsecond=micros).isoformat()
        assert record_moment_text(moment) == expected
        assert parse_record_timestamp(expected) == moment
    assert record_moment_text(NOON * 1000) == "+57975-04-05T00:00:00+00:00"


def test_every_type_has_its_rules_in_the_reference() -> None:
    reference = Path(__file__).parents[2] / "docs" / "reference"
    page = reference.joinpath("columns.md").read_text(encoding="utf-8")
    described = {kind for row in re.findall(r"^\| (`[^|]+) \|", page, re.M) for kind in re.findall("`([^`]+)`", row)}
    assert described == set(KNOWN_TYPES.split(", "))
    assert "(columns.md)" in reference.joinpath("configuration.md").read_text(encoding="utf-8")
