"""Column types: their names in configuration, Spark and DuckDB."""

import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow
import pytest
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_type

from turnout.decode.columns import fit_of, key_of
from turnout.plan.filter_values import parse_value
from turnout.sink.avro_values import _converter, schema_of
from turnout.spark.read.bulk import carry_code
from turnout.store.row_json import record_value_sql
from turnout_client.arrow_columns import arrow_type
from turnout_client.column_types import COLUMN_TYPES, ColumnType
from turnout_client.frames import _array

SITE = {"PYTHONPATH": str(Path(pyarrow.__file__).parents[1])}

ALL = [
    ("string", "string", "VARCHAR"),
    ("boolean", "boolean", "BOOLEAN"),
    ("int32", "int", "INTEGER"),
    ("int64", "bigint", "BIGINT"),
    ("float", "float", "FLOAT"),
    ("double", "double", "DOUBLE"),
    ("decimal(12,2)", "decimal(12,2)", "DECIMAL(12,2)"),
    ("date", "date", "DATE"),
    ("timestamp", "timestamp", "TIMESTAMP WITH TIME ZONE"),
]


@pytest.mark.parametrize(("name", "spark", "sql"), ALL)
def test_column_type_has_its_name_everywhere(name: str, spark: str, sql: str) -> None:
    column = ColumnType.parse(name)
    assert (column.name, column.spark, column.duckdb, str(column)) == (name, spark, sql, name)


@pytest.mark.parametrize(("name", "spark", "sql"), ALL)
def test_column_type_comes_back_from_duckdb(name: str, spark: str, sql: str) -> None:
    described = duckdb.connect().sql(f"select cast(null as {sql}) as x").types[0]
    assert ColumnType.from_duckdb(str(described)) == name


def test_column_type_of_duckdb_that_no_source_has_keeps_its_name() -> None:
    assert ColumnType.from_duckdb("UBIGINT") == "ubigint"


def test_column_type_is_read_whatever_its_case_and_spaces() -> None:
    assert ColumnType.parse(" Decimal ( 10 , 0 ) ") == ColumnType.parse("decimal(10,0)")
    assert ColumnType.parse("INT64").name == "int64"


@pytest.mark.parametrize(
    "text", ["", "text", "int", "decimal", "decimal(1)", "decimal(-1,0)", "decimal(a,b)", "double x"]
)
def test_unknown_column_type_lists_what_is_known(text: str) -> None:
    with pytest.raises(ValueError, match="known: string, boolean, int32, int64, float, double, decimal"):
        ColumnType.parse(text)


@pytest.mark.parametrize("text", ["decimal(0,0)", "decimal(39,0)", "decimal(5,6)"])
def test_decimal_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="1 <= p <= 38"):
        ColumnType.parse(text)


def test_only_exact_types_can_be_keys() -> None:
    assert [name for name, _, _ in ALL if not ColumnType.parse(name).exact] == ["float", "double"]


@pytest.mark.parametrize("kind", COLUMN_TYPES, ids=str)
def test_every_type_fills_every_field(kind: ColumnType) -> None:
    empty = {field.name for field in dataclasses.fields(kind) if getattr(kind, field.name) in ("", ())}
    assert empty == set()
    assert kind.json in ("string", "number", "boolean")
    assert kind.samples[0] != kind.samples[1]
    assert kind.number or not (kind.bits or kind.digits)


@pytest.mark.parametrize("kind", COLUMN_TYPES, ids=str)
def test_names_of_a_type_mean_the_same_in_arrow_spark_and_duckdb(kind: ColumnType) -> None:
    arrow = arrow_type(kind.name)
    assert from_arrow_type(arrow).simpleString() == kind.spark
    made = duckdb.connect().sql(f"SELECT CAST('{kind.samples[1]}' AS {kind.duckdb}) AS x").to_arrow_table()
    assert made.schema.field("x").type == arrow or (kind.time and made["x"].cast(arrow) is not None)


@pytest.mark.parametrize("kind", COLUMN_TYPES, ids=str)
def test_every_module_that_maps_types_knows_the_type(kind: ColumnType) -> None:
    fitting: Any = {"boolean": True, "float": 0.5, "double": 0.5}.get(kind.name, 1 if kind.bits else kind.samples[1])
    assert fit_of(kind.name)(fitting) is not None
    assert (key_of(kind.name)(kind.samples[1]) is not None) == (kind.exact and kind.digits is None)
    assert parse_value(kind.samples[1], kind, "where") is not None
    row = duckdb.execute(
        f"SELECT {record_value_sql({'x': kind})} FROM (SELECT CAST('{kind.samples[1]}' AS {kind.duckdb}) AS x)"
    ).fetchall()[0][0]
    value: Any = json.loads(row)["x"]
    assert type(value) in {"string": (str,), "number": (int, float), "boolean": (bool,)}[kind.json]
    # What Avro writes by, and what a reader of the registered schema has then.
    stream = io.BytesIO()
    convert = _converter(kind)
    written: Any = fastavro.parse_schema(schema_of("t", {"x": kind}, logical=False))
    fastavro.schemaless_writer(stream, written, {"x": convert(value) if convert else value})
    stream.seek(0)
    read: Any = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema_of("t", {"x": kind})), None)
    assert read["x"] is not None
    assert _array([value], kind.name).type == arrow_type(kind.name)


UNKNOWN = dataclasses.replace(COLUMN_TYPES[0], name="uuid")


@pytest.mark.parametrize(
    "use",
    [
        lambda: ColumnType.parse("uuid"),
        lambda: arrow_type("uuid"),
        lambda: fit_of("uuid"),
        lambda: key_of("uuid"),
        lambda: parse_value("x", UNKNOWN, "where"),
        lambda: record_value_sql({"x": UNKNOWN}),
        lambda: _converter(dataclasses.replace(UNKNOWN, avro_logical="uuid")),
    ],
)
def test_unknown_type_is_an_error_everywhere(use: Callable[[], object]) -> None:
    with pytest.raises((ValueError, KeyError), match="uuid"):
        use()


def test_types_are_sent_to_workers_by_value() -> None:
    """Spark's workers need no Turnout: what is sent to them holds the table of types."""
    carry_code()
    sent: bytes = cloudpickle.dumps(arrow_type)  # type: ignore[no-untyped-call]
    program = "import pickle, sys; of = pickle.load(sys.stdin.buffer); print(of('date'), 'turnout' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", program], input=sent, capture_output=True, env=SITE)
    assert done.stdout.decode().split() == ["date32[day]", "False"], done.stderr.decode()
