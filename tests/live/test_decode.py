"""What Spark makes of single records: rows, nulls and faults."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from turnout.columns import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)

GOOD: list[tuple[str, dict[str, Any]]] = [
    ('{"id":"a","age":3}', {"id": "a", "age": 3}),
    ("{}", {}),
    ('{"id":null,"unknown":{"id":"no"}}', {}),
    (' \t\r\n{"id" : "a"}\n', {"id": "a"}),
    ('{"id":"a","id":"b"}', {"id": "b"}),
    ('{"id":"caf\\u00e9 🚂"}', {"id": "café 🚂"}),
    ('{"id":12}', {"id": "12"}),
    ('{"id":12.50}', {"id": "12.50"}),
    ('{"id":-0}', {"id": "-0"}),
    ('{"id":1e3}', {"id": "1e3"}),
    ('{"id":123456789012345678901234567890.12}', {"id": "123456789012345678901234567890.12"}),
    ('{"id":1e999}', {"id": "1e999"}),
    ('{"id":true}', {"id": "true"}),
    ('{"id":"1.50"}', {"id": "1.50"}),
    ('{"id":"{x}"}', {"id": "{x}"}),
    ('{"id":{"b" : 1.50, "c":"}"} }', {"id": '{"b" : 1.50, "c":"}"}'}),
    ('{"id":[1, 2.0 ,{"a":[]}]}', {"id": '[1, 2.0 ,{"a":[]}]'}),
    ('{"x":{"id":1.50},"id":2.50}', {"id": "2.50"}),
    ('{"x":"\\"id\\":9.0","id":2.50,"name":"n"}', {"id": "2.50", "name": "n"}),
    ('{"small":-2147483648,"on":true,"ratio":0.5}', {"small": -(2**31), "on": True, "ratio": 0.5}),
    ('{"balance":3}', {"balance": 3.0}),
    ('{"day":"2026-01-02","at":"2026-01-02T12:00:00Z"}', {"day": date(2026, 1, 2), "at": NOON}),
    ('{"at":"2026-01-02T13:00:00+01:00"}', {"at": NOON}),
    ('{"price":1.25}', {"price": Decimal("1.25")}),
    ('{"price":"1.25"}', {"price": Decimal("1.25")}),
]

MISTYPED = [
    ('{"id":"a","age":"x"}', "age", "expected int64, got x"),
    ('{"id":"a","age":1.0}', "age", "expected int64, got 1.0"),
    ('{"id":"a","age":""}', "age", "expected int64, got "),
    ('{"id":"a","age":true}', "age", "expected int64, got true"),
    ('{"id":"a","age":99999999999999999999}', "age", "expected int64, got 99999999999999999999"),
    ('{"id":"a","small":2147483648}', "small", "expected int32, got 2147483648"),
    ('{"id":"a","balance":"1.5"}', "balance", "expected double, got 1.5"),
    ('{"id":"a","balance":"NaN"}', "balance", "expected double, got NaN"),
    ('{"id":"a","balance":1e999}', "balance", 'expected double, got "Infinity"'),
    ('{"id":"a","balance":[]}', "balance", "expected double, got []"),
    ('{"id":"a","on":"true"}', "on", "expected boolean, got true"),
    ('{"id":"a","day":"2026-1-2"}', "day", "expected date, got 2026-1-2"),
    ('{"id":"a","at":"noon"}', "at", "expected timestamp, got noon"),
    ('{"id":"a","price":123456789.12}', "price", "expected decimal(10,2), got 1.2345678912E8"),
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
    (b"{'id':'a'}", "not valid JSON"),
    (b'{"age":01}', "not valid JSON"),
    (b'{"age":NaN}', "not valid JSON"),
    (b'{"id":"\xff"}', "not valid JSON"),
    (b'{"id":"x\ny"}', "not valid JSON"),
    (b"\xef\xbb\xbf{}", "not valid JSON"),
    (b"[]", "not an object"),
    (b'[{"id":"a"}]', "not an object"),
    (b"null", "not an object"),
    (b"12", "not an object"),
    (b'"text"', "not an object"),
]


def decoded(spark: SparkSession, values: list[bytes | None], *, tombstones: bool = False) -> list[dict[str, Any]]:
    from turnout.spark.decode import SourceReading, decode
    from turnout.spark.sampling import KAFKA_SCHEMA

    count = len(values)
    columns = [[b"key"] * count, values, ["t"] * count, [0] * count, list(range(count)), [NOON] * count]
    frame = spark.createDataFrame(pa.table(columns, schema=KAFKA_SCHEMA))
    kinds = {name: ColumnType.parse(kind) for name, kind in COLUMNS.items()}
    rows: list[dict[str, Any]] = decode(frame, [SourceReading("s", "t", "id", kinds, tombstones)]).toArrow().to_pylist()
    return sorted(rows, key=lambda row: row["offset"])


def test_good_records_become_typed_rows(spark: SparkSession) -> None:
    for (text, row), found in zip(GOOD, decoded(spark, [text.encode() for text, _ in GOOD]), strict=True):
        assert {k: v for k, v in (found["row_0"] or {"no": "row"}).items() if v is not None} == row, text
        assert found["faults_0"] is None, text
        assert found["_value"] is None, text


def test_mistyped_fields_are_null_and_named(spark: SparkSession) -> None:
    for (text, field, reason), found in zip(
        MISTYPED, decoded(spark, [text.encode() for text, _, _ in MISTYPED]), strict=True
    ):
        assert found["row_0"]["id"] == "a", text
        assert found["row_0"][field] is None, text
        assert found["faults_0"] == [{"field": field, "reason": reason}], text
        assert found["_text"] == text


def test_malformed_records_have_no_row_and_keep_their_bytes(spark: SparkSession) -> None:
    for (value, reason), found in zip(MALFORMED, decoded(spark, [value for value, _ in MALFORMED]), strict=True):
        assert found["row_0"] is None, value
        assert found["faults_0"] == [{"field": None, "reason": reason}], value
        assert found["_value"] == value


def test_tombstone_of_a_latest_source_names_the_row_to_remove(spark: SparkSession) -> None:
    [found] = decoded(spark, [None], tombstones=True)
    assert found["_deleted"] is True
    assert found["row_0"] == dict.fromkeys(COLUMNS) | {"id": "key"}
    assert found["faults_0"] is None


@pytest.mark.parametrize(
    "text",
    [
        '{"id":{"a":[' + ",".join('"x"' for _ in range(1500)) + "]}}",
        "{" + ",".join(f'"k{i}":1' for i in range(900)) + ',"id":2.50}',
        '{"id":' + '{"a":' * 400 + "1.50" + "}" * 400 + "}",
        '{"id":' + "[" * 990 + "]" * 990 + "}",
        '{"id":[' + "9.50," * 20_000 + "1]}",
    ],
    ids=["many strings", "many fields", "deep objects", "deep arrays", "long"],
)
def test_huge_values_in_a_string_column_are_kept_and_end_nothing(spark: SparkSession, text: str) -> None:
    [found] = decoded(spark, [text.encode()])
    assert found["row_0"] is not None
    assert found["row_0"]["id"]
