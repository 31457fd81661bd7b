"""Rows as Arrow tables, and Arrow tables as data frames.

pandas and polars are not needed by Turnout: they are looked for when they are asked for.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnout.errors import TurnoutError
from turnout.plan.columns import ColumnType

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow


def to_arrow(columns: Sequence[Mapping[str, str]], rows: Sequence[Sequence[Any]]) -> pyarrow.Table:
    """JSON rows, in the order of their columns, with the types that these columns have in the table."""
    import pyarrow as pa

    arrays = [_array([row[place] for row in rows], column["type"]) for place, column in enumerate(columns)]
    return pa.table(arrays, names=[column["name"] for column in columns])


def to_pandas(table: pyarrow.Table) -> pandas.DataFrame:
    """A `date` column with a year outside of 1 to 9999, which Python's `date` has not, is `datetime64[ms]`."""
    import pyarrow as pa

    from turnout.plan.time_columns import fits_years

    _need("pandas")
    for index, field in enumerate(table.schema):
        if pa.types.is_date32(field.type) and not fits_years(table.column(index), 1, 9999):
            table = table.set_column(index, field.name, table.column(index).cast(pa.timestamp("ms")))
    return table.to_pandas()


def to_polars(table: pyarrow.Table) -> polars.DataFrame:
    """A column with years beyond 262,000, which polars cannot show, is of texts."""
    from turnout.plan.time_columns import fits_years, is_time, iso_texts

    for index, field in enumerate(table.schema):
        if is_time(field.type) and not fits_years(table.column(index), -262_000, 262_000):
            table = table.set_column(index, field.name, iso_texts(table.column(index)))
    frame: polars.DataFrame = _need("polars").from_arrow(table)
    return frame


def _array(values: list[Any], type_name: str) -> pyarrow.Array:
    import pyarrow as pa

    from turnout.plan.time_columns import from_iso_texts

    plain = {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
    }
    # Texts in JSON, so that no digit is lost.
    texts = {"date": pa.date32(), "timestamp": pa.timestamp("us", "UTC")}
    if type_name in plain:
        return pa.array(values, plain[type_name])
    if type_name in texts:
        return from_iso_texts(values, texts[type_name])
    if type_name.startswith("decimal"):
        name = ColumnType.parse(type_name).name
        precision, scale = name.removeprefix("decimal(").rstrip(")").split(",")
        return pa.array(values, pa.string()).cast(pa.decimal128(int(precision), int(scale)))
    # A type that no source can declare: as the text that it is, or as JSON.
    return pa.array([value if value is None or isinstance(value, str) else json.dumps(value) for value in values])


def _need(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise TurnoutError(
            code="missing_package",
            message=f"{package} is not installed",
            hint="pip install 'turnout[notebook]'; to_arrow() works without it",
            status=501,
        ) from error
