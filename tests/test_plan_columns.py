"""Column types: their names in configuration, Spark and DuckDB."""

import duckdb
import pytest

from turnout.plan.columns import ColumnType

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
    described = duckdb.sql(f"select cast(null as {sql}) as x").types[0]
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
