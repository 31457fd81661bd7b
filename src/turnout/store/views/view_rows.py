"""What every kind of view can do in a batch: the methods of `ViewRows`, and what they are given.

`IdRows` has what a joined view and a chain share: Spark gives ids, and the store adds the columns to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import right_id
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView, JoinedView, ViewTable
from turnout.store.batch_rows import BatchRows, columns_of, hash_names, shown_sql
from turnout.store.database import arrow_table, registered, scalar
from turnout.store.left_out import LeftOutState
from turnout.store.views.parts import PartRunner

V = TypeVar("V", bound=ViewTable)
W = TypeVar("W", bound=JoinedView | ChainView)

OldRows = tuple[str, Callable[[list[str]], pa.Table] | None]
"""The condition of rows of a view, and what reads some of their columns where the batch has these in memory."""

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
    def old_rows(self) -> Sequence[OldRows]:
        """The stored rows of the view that others take the place of."""

    @abstractmethod
    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        """The SELECTs of the rows to be stored, one after the other; `given` is what Spark gave."""

    def _hashed(self, rows: str) -> str:
        """The SELECT of rows with the `_hash` that they are stored with."""
        return f"SELECT *, {self.row_hash_sql(self.view)} AS _hash FROM ({rows})"

    @abstractmethod
    def move_quality(self) -> bool:
        """Move the counts of `join_quality` by what the batch changed; whether it did."""

    def size(self) -> int:
        """How many rows the sources of the view have."""
        tables = [self.state.table(source.table) for source in self.view.sources]
        return sum(scalar(self.state.cursor, f"SELECT count(*) FROM {table}") for table in tables)

    def _all_relations(self) -> dict[str, str]:
        """All shown rows of each source, with their hashes, as relations."""
        return {
            s.source: f"({shown_sql(s, self.state.table(s.table), columns_of(s, '_id', '_ts', *hash_names(s)))})"
            for s in self.view.sources
        }

    def _all_rows(self) -> list[pa.Table]:
        return [arrow_table(self.state.cursor, f"FROM {rows}") for rows in self._all_relations().values()]


class IdRows(ViewRows[W], Generic[W]):
    """The rows of a view of which Spark gives the ids."""

    def __init__(self, state: BatchState, view: W) -> None:
        super().__init__(state, view)
        self._held: Rows | None = None
        """The source rows whose ids were handed to Spark, while they are in memory."""
        self._relations: Mapping[str, str] = {}
        """The rows as relations, while they are not in memory."""

    def _hold(self, rows: Sequence[pa.Table]) -> None:
        self._held = {source.source: table for source, table in zip(self.view.sources, rows, strict=True)}

    @abstractmethod
    def _fills(self, number: int) -> tuple[str, str] | None:
        """The left column that a right side fills in rows without a left row, and its own; None where it does not."""

    @abstractmethod
    def _all_ids(self, given: Iterable[pa.Table]) -> tuple[str, Sequence[str]]:
        """A table with the ids of all rows, which may go to disk, and its columns."""

    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        held, self._held = self._held, None
        if held is None:
            yield self._hashed(self._widened_sql(*self._all_ids(given)))
            return
        for ids in given:
            with registered(self.state.cursor, _view_rows=self._widened(ids, held, self.view.columns)):
                yield self._hashed("FROM _view_rows")

    def _widened(self, ids: pa.Table, held: Rows, wanted: Collection[str]) -> pa.Table:
        """The rows of some ids, with the wanted columns of their source rows; sides that are hidden are missing."""
        own = [name for name in self.view.left.columns if name in wanted]
        left = _taken(held[self.view.left.source], ids["_id"], own)
        columns = {name: left[name] for name in own}
        for number, (right, shown) in enumerate(zip(self.view.rights, self.view.right_names, strict=True)):
            if right_id(number) not in ids.column_names:
                continue
            names = {name: column for column, name in shown.items() if name in wanted}
            filled, by = self._fills(number) or ("", "")
            fills = [by] if filled in wanted else []
            taken = _taken(held[right.source], ids[right_id(number)], [*names.values(), *fills])
            columns |= {name: taken[column] for name, column in names.items()}
            if fills:
                known = [columns[filled]] if filled in columns else []
                columns[filled] = pc.coalesce(*known, taken[by])
        return pa.table(columns | {name: ids[name] for name in ids.column_names})

    def _widened_sql(self, ids: str, id_columns: Sequence[str]) -> str:
        """The SQL of what `_widened` gives; `ids` is a relation of these columns."""
        view, rows = self.view, self._relations
        columns = {name: f"l.{quoted(name)}" for name in view.left.columns}
        joined = f"{ids} AS i LEFT JOIN {rows[view.left.source]} AS l ON l._id = i._id"
        for number, (right, names) in enumerate(zip(view.rights, view.right_names, strict=True)):
            if right_id(number) not in id_columns:
                continue
            joined += f" LEFT JOIN {rows[right.source]} AS r{number} ON r{number}._id = i.{right_id(number)}"
            columns |= {name: f"r{number}.{quoted(column)}" for column, name in names.items()}
            if fills := self._fills(number):
                columns[fills[0]] = f"coalesce({columns.get(fills[0], 'NULL')}, r{number}.{quoted(fills[1])})"
        selected = ", ".join(f"{value} AS {quoted(name)}" for name, value in columns.items())
        return f"SELECT {selected}, i.* FROM {joined}"


def _taken(rows: pa.Table, ids: pa.ChunkedArray, columns: Collection[str]) -> pa.Table:
    """Some columns of the rows of some ids: one row for each, of nulls where there is none."""
    rows = rows.select([*{*columns, "_id"}]).combine_chunks()
    return rows.take(pc.index_in(ids, value_set=rows["_id"]))
