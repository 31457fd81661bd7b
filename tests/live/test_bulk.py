"""Records decoded in bulk: the same rows and faults as one by one."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lengths import BULK_EXAMPLES
from test_json_rows import ODD, texts
from turnout.columns import ColumnType
from turnout.records import Decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = {"id": "string", "age": "int64", "balance": "double", "on": "boolean"}
PLAIN = [
    b'{"id":"a","age":1,"balance":0.1}',
    b'{"id":"b","on":false,"z":[1]}',
    b'{"balance":123456789.123456789}',
] * 120


def frame_of(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    from turnout.spark.sampling import KAFKA_SCHEMA

    count = len(values)
    topics = ["t" if i % 3 else "it's" for i in range(count)]
    places = [topics, [i % 2 for i in range(count)], list(range(count)), [NOON] * count]
    return spark.createDataFrame(pa.table([[b'"k"'] * count, values, *places], schema=KAFKA_SCHEMA))


def rows(decoded: Decoded) -> list[tuple[int, str]]:
    """Every row and every fault, by source and id."""
    found: list[tuple[int, str]] = []
    for number, table in decoded.rows.items():
        found += [(number, repr(row)) for row in table.to_pylist()]
    for record in decoded.records.to_pylist() if decoded.records is not None else []:
        for number in (0, 1):
            row, faults = record[f"row_{number}"], record[f"faults_{number}"]
            if row is not None and not record["_deleted"]:
                found.append((number, repr({**row, "_id": record["_id"], "_ts": record["_ts"]})))
            if row is None or faults:
                wrong = [record["_id"], record["_deleted"], row, faults, record["_text"] if faults else None]
                found.append((number, repr(wrong)))
    nothing = re.compile(r"\[\d+, False, None, None, None\]")
    return sorted((number, text) for number, text in found if not nothing.fullmatch(text))


def both(spark: SparkSession, values: list[bytes | None]) -> tuple[Decoded, Decoded]:
    from turnout.spark.bulk import bulk_session, decode_bulk
    from turnout.spark.decode import SourceReading, decode

    columns = {name: ColumnType.parse(kind) for name, kind in COLUMNS.items()}
    sources = [SourceReading("s", "t", "id", columns, False), SourceReading("r", "it's", "id", columns, True)]
    bulk = decode_bulk(frame_of(bulk_session(spark), values), sources)
    return bulk, Decoded(decode(frame_of(spark, values), sources).toArrow())


def test_odd_records_among_plain_ones(spark: SparkSession) -> None:
    values = [value for odd in ODD for value in (*PLAIN, odd, odd, odd)]
    bulk, single = both(spark, values)
    assert sum(table.num_rows for table in bulk.rows.values()) > len(values) / 2
    assert rows(bulk) == rows(single)
    assert bulk.firsts(["t", "it's"]) == single.firsts(["t", "it's"])


@settings(max_examples=BULK_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(texts, min_size=10, max_size=300))
def test_random_records(spark: SparkSession, values: list[bytes | None]) -> None:
    bulk, single = both(spark, values)
    assert rows(bulk) == rows(single)


def test_columns_that_only_spark_reads(spark: SparkSession) -> None:
    from turnout.spark.bulk import bulk_session, decode_bulk
    from turnout.spark.decode import SourceReading

    columns = {"id": ColumnType.parse("string"), "day": ColumnType.parse("date")}
    frame = frame_of(bulk_session(spark), [b"{}", b'{"id":"a","day":"2026-01-02"}'])
    decoded = decode_bulk(frame, [SourceReading("s", "t", "id", columns, False)])
    assert decoded.rows == {}
    assert decoded.records is not None
    assert decoded.records["row_0"].to_pylist()[1] == {"id": "a", "day": datetime(2026, 1, 2).date()}
