"""Conversion of rows to Arrow tables, and of Arrow tables to data frames.

pyarrow, pandas and polars are optional: they are imported when a caller first needs a table or a frame.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnout_client.errors import TurnoutError

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    import polars  # type: ignore[import-not-found,unused-ignore]
    import pyarrow


class Frames:
    """Base class of objects that can be converted to an Arrow table and to data frames."""

    __slots__ = ()

    def to_arrow(self) -> pyarrow.Table:
        """Return the rows as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas data frame."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars data frame."""
        return to_polars(self.to_arrow())


def to_arrow(columns: Sequence[Mapping[str, str]], rows: Sequence[Sequence[Any]]) -> pyarrow.Table:
    """Convert JSON rows, with values in the order of `columns`, to an Arrow table with the types of these columns."""
    pa = need("pyarrow")
    arrays = [_array([row[place] for row in rows], column["type"]) for place, column in enumerate(columns)]
    return pa.table(arrays, names=[column["name"] for column in columns])


def from_rows(columns: Sequence[Mapping[str, str]], rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Convert rows that are mappings to an Arrow table with the types of `columns`."""
    return to_arrow(columns, [[row[column["name"]] for column in columns] for row in rows])


def to_pandas(table: pyarrow.Table) -> pandas.DataFrame:
    """Convert to pandas; dates outside Python's years 1 to 9999 make their column `datetime64[ms]`."""
    import pyarrow as pa

    from turnout_client.arrow_columns import fits_years

    need("pandas")
    for index, field in enumerate(table.schema):
        if pa.types.is_date32(field.type) and not fits_years(table.column(index), 1, 9999):
            table = table.set_column(index, field.name, table.column(index).cast(pa.timestamp("ms")))
    return table.to_pandas()


def to_polars(table: pyarrow.Table) -> polars.DataFrame:
    """Convert to polars; years beyond 262,000, which polars cannot display, make their column texts."""
    from turnout_client.arrow_columns import fits_years, is_time, iso_texts

    for index, field in enumerate(table.schema):
        if is_time(field.type) and not fits_years(table.column(index), -262_000, 262_000):
            table = table.set_column(index, field.name, iso_texts(table.column(index)))
    frame: polars.DataFrame = need("polars").from_arrow(table)
    return frame


def _array(values: list[Any], type_name: str) -> pyarrow.Array:
    import pyarrow as pa

    from turnout_client.arrow_columns import arrow_type, from_iso_texts
    from turnout_client.column_types import ColumnType

    known = ColumnType.known(type_name)
    if known and known.time:
        return from_iso_texts(values, arrow_type(type_name))
    if known and known.digits:
        # Decimals are texts in JSON, so that no digit is lost.
        return pa.array(values, pa.string()).cast(arrow_type(type_name))
    if known:
        return pa.array(values, arrow_type(type_name))
    # A type that no source can declare: texts stay texts, other values become JSON.
    return pa.array([value if value is None or isinstance(value, str) else json.dumps(value) for value in values])


def need(package: str, instead: str = "") -> Any:
    """Import an optional package; if it is missing, raise TurnoutError with its extra and the call to use `instead`."""
    extra, other = ("arrow", "rows()") if package == "pyarrow" else ("notebook", "to_arrow()")
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise TurnoutError(
            code="missing_package",
            message=f"{package} is not installed",
            hint=f"pip install 'turnout-client[{extra}]'; {instead or other} works without it",
            status=501,
        ) from error
