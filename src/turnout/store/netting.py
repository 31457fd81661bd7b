"""Calculations on what changed, in a small DuckDB of their own: they never touch the store or its locks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from turnout.columns import ColumnType
from turnout.store.feed import Delta
from turnout.store.identity import ROW
from turnout.store.where import compile_sort, compile_where, quote
from turnout.store.windows import Window


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What a reader has to do; the row's id is the last column of `insert` and `update`."""

    insert: pa.Table
    update: pa.Table
    delete: list[str]


@dataclass(frozen=True, slots=True)
class Effect:
    """What changed rows mean to a window: by how many its total changes, and whether any of its rows may."""

    total: int
    rows: bool


class Netting:
    """One thread at a time; small inputs, so one core."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def net(self, delta: Delta) -> Delta:
        """Without rows that were taken out and put back unchanged."""
        if not delta.removed.num_rows or not delta.added.num_rows:
            return delta
        with self._lock:
            self._register(removed=delta.removed, added=delta.added)
            removed = self._connection.execute("FROM removed EXCEPT FROM added").to_arrow_table()
            added = self._connection.execute("FROM added EXCEPT FROM removed").to_arrow_table()
        return Delta(removed.cast(delta.removed.schema), added.cast(delta.added.schema))

    def change_set(self, delta: Delta, columns: Sequence[str]) -> ChangeSet:
        """Inserts, updates and deletes of the chosen columns."""
        chosen = ", ".join(quote(name) for name in columns)
        with self._lock:
            self._register(removed=delta.removed, added=delta.added)
            insert = self._arrow(f"SELECT {chosen}, {ROW} FROM added ANTI JOIN removed USING ({ROW})")
            update = self._arrow(
                f"SELECT {', '.join(f'a.{quote(name)}' for name in columns)}, a.{ROW} FROM added a "
                f"JOIN removed r ON a.{ROW} = r.{ROW} WHERE {_row('a', columns)} "
                f"IS DISTINCT FROM {_row('r', columns)}"
            )
            delete = self._arrow(f"SELECT {ROW} FROM removed ANTI JOIN added USING ({ROW})")
        return ChangeSet(insert, update, delete.column(0).to_pylist())

    def effect(
        self,
        deltas: Sequence[Delta],
        window: Window,
        types: Mapping[str, ColumnType],
        ties: Sequence[str],
        last: pa.Table | None,
    ) -> Effect:
        """What changes mean to a window whose last row is `last`; None: it has room for any row that fits."""
        condition, parameters = compile_where(window.where, types)
        removed = pa.concat_tables([delta.removed for delta in deltas])
        added = pa.concat_tables([delta.added for delta in deltas])
        with self._lock:
            self._register(removed=removed, added=added)
            went, came = (
                self._count(f"SELECT count(*) FROM {rows} WHERE {condition}", parameters)
                for rows in ("removed", "added")
            )
            if not went and not came:
                return Effect(0, rows=False)
            if last is None:
                return Effect(came - went, rows=True)
            order = compile_sort(window.sort, types, ties)
            keys = ", ".join(quote(name) for name in last.column_names)
            self._register(last=last)
            first = self._count(
                f"SELECT _changed FROM (SELECT {keys}, 0 AS _changed FROM last "
                f"UNION ALL SELECT {keys}, 1 FROM removed WHERE {condition} "
                f"UNION ALL SELECT {keys}, 1 FROM added WHERE {condition}) ORDER BY {order}, _changed DESC LIMIT 1",
                [*parameters, *parameters],
            )
        return Effect(came - went, rows=first == 1)

    def _register(self, **tables: pa.Table) -> None:
        for name, table in tables.items():
            self._connection.register(name, table)

    def _arrow(self, sql: str) -> pa.Table:
        return self._connection.execute(sql).to_arrow_table()

    def _count(self, sql: str, parameters: Sequence[object]) -> int:
        row = self._connection.execute(sql, list(parameters)).fetchone()
        assert row is not None
        return int(row[0])


def _row(relation: str, columns: Sequence[str]) -> str:
    return f"row({', '.join(f'{relation}.{quote(name)}' for name in columns)})"
