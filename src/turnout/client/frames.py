"""Rows as Arrow tables, and Arrow tables as data frames.

Turnout does not need pandas and polars: they are imported when a caller asks for a data frame.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnout.errors import TurnoutError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow


class Frames:
    """Arrow data, also as data frames."""

    __slots__ = ()

    def to_arrow(self) -> pyarrow.Table:
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        return to_polars(self.to_arrow())


def to_arrow(columns: Sequence[Mapping[str, str]], rows: Sequence[Sequence[Any]]) -> pyarrow.Table:
    """JSON rows, in the order of their columns, with the types that these columns have in the table."""
    import pyarrow as pa

    arrays = [_array([row[place] for row in rows], column["type"]) for place, column in enumerate(columns)]
    return pa.table(arrays, names=[column["name"] for column in columns])


def from_rows(columns: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """The same for rows that are mappings."""
    return to_arrow(columns, [[row[column["name"]] for column in columns] for row in rows])


def to_pandas(table: pyarrow.Table) -> pandas.DataFrame:
    """A `date` column with a year outside of 1 to 9999, which Python's `date` has not, is `datetime64[ms]`."""
    import pyarrow as pa

    from turnout.plan.arrow_columns import fits_years

    _need("pandas")
    for index, field in enumerate(table.schema):
        if pa.types.is_date32(field.type) and not fits_years(table.column(index), 1, 9999):
            table = table.set_column(index, field.name, table.column(index).cast(pa.timestamp("ms")))
    return table.to_pandas()


def to_polars(table: pyarrow.Table) -> polars.DataFrame:
    """A column with years beyond 262,000, which polars cannot show, is of texts."""
    from turnout.plan.arrow_columns import fits_years, is_time, iso_texts

    for index, field in enumerate(table.schema):
        if is_time(field.type) and not fits_years(table.column(index), -262_000, 262_000):
            table = table.set_column(index, field.name, iso_texts(table.column(index)))
    frame: polars.DataFrame = _need("polars").from_arrow(table)
    return frame


def _array(values: list[Any], type_name: str) -> pyarrow.Array:
    import pyarrow as pa

    from turnout.plan.arrow_columns import ARROW_TYPES, arrow_type, from_iso_texts

    # Times and decimals are texts in JSON, so that no digit is lost.
    if type_name in ("date", "timestamp"):
        return from_iso_texts(values, arrow_type(type_name))
    if type_name.startswith("decimal"):
        return pa.array(values, pa.string()).cast(arrow_type(type_name))
    if type_name in ARROW_TYPES:
        return pa.array(values, arrow_type(type_name))
    # A type that no source can declare: as the text that it is, or as JSON.
    return pa.array([value if value is None or isinstance(value, str) else json.dumps(value) for value in values])


def _need(package: str, instead: str = "to_arrow()") -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise TurnoutError(
            code="missing_package",
            message=f"{package} is not installed",
            hint=f"pip install 'turnout[notebook]'; {instead} works without it",
            status=501,
        ) from error
