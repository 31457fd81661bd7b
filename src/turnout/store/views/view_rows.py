"""What every kind of view can do in a batch: the methods of `ViewRows`, and what they are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import right_id
from turnout.plan.tables import ChainView, JoinedView, ViewTable
from turnout.store.batch_rows import BatchRows
from turnout.store.database import scalar
from turnout.store.left_out import LeftOutState
from turnout.store.views.parts import PartRunner

V = TypeVar("V", bound=ViewTable)

Rows = dict[str, pa.Table]
"""Rows of each side of a view, by the name of the relation or of the source."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """What views need of the batch, once its source rows are loaded."""

    cursor: duckdb.DuckDBPyConnection
    schema: str
    table: Callable[[str], str]
    """The table of a name in this generation."""
    rows: BatchRows
    left_out: LeftOutState
    records: int
    whole: bool
    """Whether the view is filled for the first time, from all rows; otherwise what the batch touches is replaced."""


class ViewRows(ABC, Generic[V]):
    """The rows of one view in one batch. Call `touched`, then `few` or `in_parts`, then `old_rows` and `new_rows`."""

    def __init__(self, state: BatchState, view: V) -> None:
        self.state = state
        self.view = view
        self.held: Rows | None = None
        """The source rows whose ids were handed to Spark, while they are in memory."""
        self.relations: Mapping[str, str] = {}
        """The rows as relations, while they are not in memory."""

    @staticmethod
    @abstractmethod
    def identity_sql(view: V) -> str:
        """The SQL of `_row`: what makes a row the same row while its cells change."""

    @staticmethod
    @abstractmethod
    def row_hash_sql(view: V) -> str:
        """The SQL of `_hash`, by which rows of the view are found."""

    def touched(self) -> bool:
        """Whether rows of the view may change."""
        return self.state.whole or bool(self.state.records and self._is_touched())

    @abstractmethod
    def _is_touched(self) -> bool: ...

    @abstractmethod
    def few(self, most: int) -> Rows | None:
        """What Spark gets of the rows that are touched, or of all; None where they are more than `most`.

        Of right rows only the newest of each key, unless all take part: `narrow_sql_if_unique` is enough.
        """

    @abstractmethod
    def in_parts(self, run: PartRunner) -> Iterable[pa.Table]:
        """Have Spark run the SQL over these rows in files, after `few` returned None; what it gives."""

    @abstractmethod
    def old_rows(self) -> Sequence[str]:
        """The conditions of stored rows of the view that others take the place of."""

    @abstractmethod
    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        """The SELECTs of the rows to be stored, one after the other; `given` is what Spark gave."""

    @abstractmethod
    def move_quality(self) -> bool:
        """Move the counts of `join_quality` by what the batch changed; whether it did."""

    def size(self) -> int:
        """How many rows the sources of the view have."""
        tables = [self.state.table(source.table) for source in self.view.sources]
        return sum(scalar(self.state.cursor, f"SELECT count(*) FROM {table}") for table in tables)


def taken_sides(view: JoinedView | ChainView, ids: pa.Table, rows: Rows) -> dict[int, pa.Table]:
    """The source rows of some ids, by the number of their side: one for each id, of nulls where there is none.

    Sides that are hidden are missing.
    """
    columns = {0: "_id"} | {number: right_id(number - 1) for number in range(1, len(view.sources))}
    return {
        number: _taken(rows[view.sources[number].source], ids[name])
        for number, name in columns.items()
        if name in ids.column_names
    }


def _taken(rows: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    rows = rows.combine_chunks()
    return rows.take(pc.index_in(ids, value_set=rows["_id"]))
