"""Calculations on what changed, in a small DuckDB of their own: they never touch the store or its locks."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

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
class Held:
    """The first rows of a filtered and sorted table, kept up to date without reading it again.

    `rows` have the columns that order them, and the identity. `bound` is the last place in the order up to which they
    are complete; None where they are all there are.
    """

    rows: pa.Table
    bound: pa.Table | None
    total: int


@dataclass(frozen=True, slots=True)
class Order:
    """Which rows of a table, in which order: the compiled form of a window's `where` and `sort`."""

    condition: str
    parameters: tuple[object, ...]
    order: str
    keys: tuple[str, ...]
    columns: frozenset[str]
    """Everything that has to be known of a row to tell whether it is among them, and where."""

    @classmethod
    def of(cls, window: Window, types: Mapping[str, ColumnType], ties: Sequence[str]) -> Order:
        condition, parameters = compile_where(window.where, types)
        keys = dict.fromkeys([*(key.column for key in window.sort), *ties])
        order = compile_sort(window.sort, types, ties)
        columns = frozenset([*keys, *(term.column for term in window.where)])
        return cls(condition, tuple(parameters), order, tuple(keys), columns)


class Netting:
    """One thread at a time; small inputs, so one core."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._registered: dict[str, pa.Table] = {}

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

    def advance(self, held: Held, delta: Delta, order: Order, most: int) -> Held:
        """The held rows after a change, `most` at most."""
        with self._lock:
            self._register(removed=delta.removed, added=delta.added)
            went, came = self._matching(order)
            if not went and not came:
                return held
            total = held.total + came - went
            self._register(held=held.rows)
            chosen = ", ".join(quote(name) for name in held.rows.column_names)
            bound = ""
            if held.bound is not None:
                self._register(bound=held.bound)
                # Rows beyond the bound are not held; its mark comes after every row of its own place.
                bound = "UNION ALL BY NAME SELECT *, true AS _bound FROM bound"
            merged = self._arrow(
                f"SELECT * FROM (SELECT *, false AS _bound FROM held ANTI JOIN removed USING ({ROW}) "
                f"UNION ALL BY NAME SELECT {chosen}, false AS _bound FROM added WHERE {order.condition} {bound}) "
                f"ORDER BY {order.order}, _bound",
                order.parameters,
            )
        return _cut(merged, held, total, order, most)

    def concerns(self, held: Held, delta: Delta, order: Order) -> tuple[int, bool]:
        """For rows that are not the first: the total after a change, and whether a row up to the bound changed."""
        with self._lock:
            self._register(removed=delta.removed, added=delta.added)
            went, came = self._matching(order)
            if not went and not came:
                return held.total, False
            total = held.total + came - went
            if held.bound is None or not held.bound.num_rows:
                return total, True
            self._register(bound=held.bound)
            keys = ", ".join(quote(name) for name in order.keys)
            first = self._arrow(
                f"SELECT _bound FROM (SELECT {keys}, true AS _bound FROM bound "
                f"UNION ALL SELECT {keys}, false FROM removed WHERE {order.condition} "
                f"UNION ALL SELECT {keys}, false FROM added WHERE {order.condition}) "
                f"ORDER BY {order.order}, _bound LIMIT 1",
                order.parameters * 2,
            )
        return total, not first.column(0)[0].as_py()

    def _matching(self, order: Order) -> tuple[int, int]:
        counts = self._arrow(
            f"SELECT (SELECT count(*) FROM removed WHERE {order.condition}), "
            f"(SELECT count(*) FROM added WHERE {order.condition})",
            order.parameters * 2,
        )
        return counts.column(0)[0].as_py(), counts.column(1)[0].as_py()

    def _register(self, **tables: pa.Table) -> None:
        """Many windows are held against one change in turn: it is registered once."""
        for name, table in tables.items():
            if self._registered.get(name) is not table:
                self._connection.register(name, table)
                self._registered[name] = table

    def _arrow(self, sql: str, parameters: Sequence[object] = ()) -> pa.Table:
        return self._connection.execute(sql, list(parameters)).to_arrow_table()


def _cut(merged: pa.Table, held: Held, total: int, order: Order, most: int) -> Held:
    """What is known of merged rows: up to the bound, and no more than `most`, which then is the bound."""
    bound = held.bound
    if bound is not None:
        merged = merged.slice(0, pc.index(merged.column("_bound"), True).as_py())
    rows = merged.drop_columns(["_bound"]).select(held.rows.column_names).cast(held.rows.schema)
    if rows.num_rows > most:
        rows = rows.slice(0, most)
        bound = rows.slice(most - 1).select(list(order.keys))
    return Held(rows, bound, total)


def _row(relation: str, columns: Sequence[str]) -> str:
    return f"row({', '.join(f'{relation}.{quote(name)}' for name in columns)})"
