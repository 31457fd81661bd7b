"""What a view can do in a batch: the methods of `ViewRows`, what they are given, and all kinds but chains.

The sources of a joined view, and of SQL that somebody wrote, share a key: the rows that make a row of the view are
found by its hash. SQL that somebody wrote gets all columns of these. Of a joined view Spark gets a number for each key,
because numbers are joined in less time than texts, and ids; the columns are added to the ids that it gives, as for
chains (`IdRows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Generic, TypeVar

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import KEY, right_id
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView, JoinedView, SqlView, ViewTable
from turnout.store.batch_rows import (
    BatchRows,
    Mask,
    chosen,
    columns_of,
    has_key_in,
    hash_names,
    hash_sql,
    keys_relation,
    newest_of,
    shown_sql,
)
from turnout.store.database import arrow_table, registered, scalar
from turnout.store.identity import ROW, key_text
from turnout.store.join_quality import COLUMNS
from turnout.store.left_out import LeftOutState
from turnout.store.views.parts import SIGN_BIT, Files, PartRunner, export_columns, export_joined, write_rows

V = TypeVar("V", bound=ViewTable)
W = TypeVar("W", bound=JoinedView | ChainView)

Numbers = npt.NDArray[np.int64]

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
        """Move the counts of `join_quality` by what the batch changed; whether it did.

        Only sums over touched keys are taken, before the batch and after it, so the cost does not grow with the tables.
        """

    def _add_quality(self, name: str, change: Numbers) -> bool:
        """Add to the counts of the row `name`; whether that changes it."""
        if not change.any():
            return False
        moved = ", ".join(f"{column} = {column} + {by}" for column, by in zip(COLUMNS, change, strict=True) if by)
        self.state.cursor.execute(f"UPDATE {self.state.schema}.join_quality SET {moved} WHERE view = ?", [name])
        return True

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


class KeyedRows(ViewRows[V], Generic[V]):
    """The rows of a view whose sources share its key."""

    @cached_property
    def _masks(self) -> list[Mask]:
        """The touched rows of each source that the view sees after the batch."""
        return [self.state.rows.seen_by(self.view, source) for source in self.view.sources]

    @cached_property
    def _numbers(self) -> list[pa.ChunkedArray]:
        """What stands for the keys of all rows that the batch concerns."""
        return numbered(self.view.key, [self.state.rows.of(source).touched.rows for source in self.view.sources])

    @staticmethod
    def row_hash_sql(view: V) -> str:
        return hash_sql(quoted(view.key))

    def _is_touched(self) -> bool:
        return bool(len(self.state.rows.key_hashes(self.view))) or any(mask.any() for mask in self._masks)

    def _touched_rows(self) -> tuple[list[pa.Table], list[pa.ChunkedArray]]:
        """The rows of touched keys that are joined, and what stands for their keys."""
        rows, view = self.state.rows, self.view
        touched = [rows.of(source).touched.rows for source in view.sources]
        masks = self._masks
        if view.bounds:
            masks = self.state.left_out.joined(view, touched, masks, rows.key_hashes(view))
        return (
            [chosen(table, mask) for table, mask in zip(touched, masks, strict=True)],
            [chosen(number, mask) for number, mask in zip(self._numbers, masks, strict=True)],
        )

    def _all_relations(self) -> dict[str, str]:
        """All shown rows of each source that are joined, as relations."""
        left_out, view = self.state.left_out, self.view
        left_out.count_all(view)
        joined = left_out.condition(view.bounds[0] if view.bounds else None, view.key)
        return {source: f"(FROM {rows} WHERE {joined})" for source, rows in super()._all_relations().items()}

    def old_rows(self) -> Sequence[OldRows]:
        return [(f"_hash IN (SELECT _hash FROM {keys_relation(self.view)})", None)]

    def move_quality(self) -> bool:
        sides = [self.state.rows.of(source).touched for source in self.view.sources]
        change = quality_change(self._numbers, [side.before for side in sides], [side.after for side in sides])
        # Rows without a key that went are not among those of the sides; they matched nothing.
        for number, side in enumerate(sides):
            change[[0 if number == 0 else 1, 3 if number == 0 else 4, 6]] -= side.keyless_gone
        return self._add_quality(self.view.table, change)


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


class JoinedRows(KeyedRows[JoinedView], IdRows[JoinedView]):
    """Spark joins keys and ids; the columns are added to the ids that it gives."""

    @staticmethod
    def identity_sql(view: JoinedView, left: str = "") -> str:
        """The left row, and where several right rows of a key are shown, the pair.

        So the rows of a view that has one row of a key are known by the key, under every join.
        """
        key = key_text(view.left.key)
        alone = f"CASE WHEN _id IS NULL THEN ':' || {key} ELSE CAST(_id AS VARCHAR) END"
        left = left or (key if view.left.latest else alone)
        # Other right sides have one row of a key at most, whatever the join is.
        many = [right_id(number) for number, right in enumerate(view.rights) if view.pairs and not right.latest]
        return " || ':' || ".join([left, *(f"coalesce(CAST({own} AS VARCHAR), '')" for own in many)])

    def few(self, most: int) -> Rows | None:
        if self.state.whole and self.size() > most:
            return None
        if self.state.whole:
            rows = self._all_rows()
            numbers = numbered(self.view.key, rows)
        else:
            rows, numbers = self._touched_rows()
        self._hold(rows)
        self._narrow = {}
        for name, source, number, table in zip(self.view.relations, self.view.sources, numbers, rows, strict=True):
            narrow = pa.table({KEY: number, "_id": table["_id"], "_ts": table["_ts"]})
            self._narrow[name] = narrow if source is self.view.left or self.view.pairs else newest_of(narrow, KEY)
        return self._narrow if sum(table.num_rows for table in self._narrow.values()) <= most else None

    def in_parts(self, run: PartRunner) -> Iterable[pa.Table]:
        if self.state.whole:
            return run.over(*self.export(run.folder, run.parts(self.size())))
        # On one core, because planning takes longer than all of the rows.
        return run.over(self.view.narrow_sql_if_unique, [write_rows(self._narrow, run.folder)])

    def export(self, folder: Path, parts: int) -> tuple[str, list[Files]]:
        """Write all rows, as far as the join needs them, to files; and the SQL to run over each part."""
        self._relations = self._all_relations()
        return export_joined(self.state.cursor, self.view, self._relations, folder, parts)

    def old_rows(self) -> Sequence[OldRows]:
        [(of_keys, _)] = super().old_rows()
        found: list[OldRows] = [(of_keys, partial(self._read_old, of_keys))]
        left, key = self.view.left, quoted(self.view.key)
        if not left.latest and self.state.rows.of(left).evicted is not None:
            evicted = self.state.rows.of(left).relation("evicted")
            found.append((f"{key} IS NULL AND _id IN (SELECT _id FROM {evicted} WHERE {key} IS NULL)", None))
        return found

    def _read_old(self, of_keys: str, columns: list[str]) -> pa.Table:
        """Read the ids of the old rows of touched keys; their columns are in the source rows that were looked up."""
        view, table = self.view, self.state.table(self.view.table)
        row, condition = ROW, has_key_in(keys_relation(view), table)
        if not (view.outer or view.left.latest):
            # Without the key, everything that is read is so short that row ids first would take longer.
            row, condition = f"{self.identity_sql(view, 'CAST(_id AS VARCHAR)')} AS {ROW}", of_keys
        sql = f"SELECT {', '.join(view.ids)}, {row}, rowid AS _at FROM {table} WHERE {condition}"
        held = {source.source: self.state.rows.of(source).stored for source in view.sources}
        return self._widened(arrow_table(self.state.cursor, sql), held, columns)

    def _fills(self, number: int) -> tuple[str, str] | None:
        return (self.view.key, self.view.key) if self.view.outer else None

    def _all_ids(self, given: Iterable[pa.Table]) -> tuple[str, list[str]]:
        columns: list[str] = []
        for part in given:
            with registered(self.state.cursor, _view_rows=part):
                into = "INSERT INTO _view_ids" if columns else "CREATE OR REPLACE TEMP TABLE _view_ids AS"
                scalar(self.state.cursor, f"{into} FROM _view_rows")
            columns = part.column_names
        return "_view_ids", columns


class OwnSqlRows(KeyedRows[SqlView]):
    """Its rows have no ids: they are numbered among those of their key."""

    @staticmethod
    def identity_sql(view: SqlView) -> str:
        return f"{key_text(view.left.key)} || ':' || CAST(_nth AS VARCHAR)"

    def few(self, most: int) -> Rows | None:
        self._sent: Rows | None = None
        if (self.size() if self.state.whole else self.state.records) > most:
            return None
        rows = self._all_rows() if self.state.whole else self._touched_rows()[0]
        self._sent = {
            name: table.filter(pc.is_valid(table[self.view.key])).select([*source.columns, "_id", "_ts"])
            for (name, source), table in zip(self.view.relations.items(), rows, strict=True)
        }
        return self._sent if sum(table.num_rows for table in self._sent.values()) <= most else None

    def in_parts(self, run: PartRunner) -> Iterable[pa.Table]:
        if self._sent is not None:
            # On one core, because planning takes longer than all of the rows.
            return run.over(self.view.sql, [write_rows(self._sent, run.folder)])
        # Rows of all columns take twice as much memory as ids, about.
        parts = run.parts(2 * self.size()) if self.state.whole else run.cores
        rows = self._all_relations() if self.state.whole else self._touched_relations()
        return run.over(self.view.sql, export_columns(self.state.cursor, self.view, rows, run.folder, parts))

    def _touched_relations(self) -> Mapping[str, str]:
        for source, mask in zip(self.view.sources, self._masks, strict=True):
            self.state.cursor.register(f"_side_{source.source}", self.state.rows.of(source).touched.rows.filter(mask))
        return {source.source: quoted(f"_side_{source.source}") for source in self.view.sources}

    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        for rows in given:
            with registered(self.state.cursor, _view_rows=rows):
                yield self._hashed("FROM _view_rows")


def _taken(rows: pa.Table, ids: pa.ChunkedArray, columns: Collection[str]) -> pa.Table:
    """Some columns of the rows of some ids: one row for each, of nulls where there is none."""
    rows = rows.select([*{*columns, "_id"}]).combine_chunks()
    return rows.take(pc.index_in(ids, value_set=rows["_id"]))


def numbered(key: str, rows: Sequence[pa.Table]) -> list[pa.ChunkedArray]:
    """What stands for the key of each row, in tables that have `_hash`."""
    return unambiguous([table[key] for table in rows], [table["_hash"] for table in rows])


def unambiguous(keys: Sequence[pa.ChunkedArray], hashes: Sequence[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    """What stands for keys whose rows meet, given as columns: the numbers of these hashes, or the keys themselves.

    Equal keys have one number. Keys stand for themselves where different ones share a number, which only chance or
    malice brings about.
    """
    numbers = [_number(key, hashed) for key, hashed in zip(keys, hashes, strict=True)]
    return list(keys) if _distinct(keys) > _distinct(numbers) else numbers


def _distinct(columns: Sequence[pa.ChunkedArray]) -> int:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return int(pc.count_distinct(pa.chunked_array(chunks, columns[0].type)).as_py())


def _number(keys: pa.ChunkedArray, hashes: pa.ChunkedArray) -> pa.ChunkedArray:
    """The number of each key; null where the key is."""
    number = pc.shift_right(hashes, pa.scalar(SIGN_BIT, pa.uint64())).cast(pa.int64())
    return pc.if_else(pc.is_valid(keys), number, pa.scalar(None, pa.int64()))


def quality_change(
    keys: Sequence[pa.ChunkedArray], before: Sequence[Mask | Numbers], after: Sequence[Mask | Numbers]
) -> Numbers:
    """How the counts of `join_quality` change, by the keys of the rows of each side.

    `before` and `after` mark the rows that are there, or say how many rows there are in place of each.
    """
    codes = _codes(keys)
    return _counts(codes, after) - _counts(codes, before)


def _codes(keys: Sequence[pa.ChunkedArray]) -> list[Numbers]:
    """A number from 1 for each key, 0 for none, for the rows of each side."""
    every = pa.chunked_array([chunk for side in keys for chunk in side.chunks], keys[0].type).combine_chunks()
    codes = every.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    return np.split(codes, np.cumsum([len(side) for side in keys])[:-1])


def _counts(codes: Sequence[Numbers], rows: Sequence[Mask | Numbers]) -> Numbers:
    """What stands in `COLUMNS`; `rows` tells how many rows of each side there are of each code, or which count."""
    most = max((int(side.max()) for side in codes if len(side)), default=0) + 1
    tallies = (np.bincount(side, number, most).astype(np.int64) for side, number in zip(codes, rows, strict=True))
    left, *rights = tallies
    nulls = left[0] + sum(right[0] for right in rights)
    rows = (left.sum(), sum(right.sum() for right in rights))
    left, rights = left[1:], [right[1:] for right in rights]
    matched = left[np.logical_and.reduce([right > 0 for right in rights])].sum() if rights else left.sum()
    matched_right = sum(right[left > 0].sum() for right in rights)
    twice = sum(np.count_nonzero(right > 1) for right in rights)
    return np.array([*rows, matched, rows[0] - matched, rows[1] - matched_right, twice, nulls], np.int64)
