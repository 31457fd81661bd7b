"""Calculations on what changed, in a small DuckDB of their own: they never touch the store or its locks."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import quoted
from turnout.store.feed import Delta
from turnout.store.identity import ROW
from turnout.store.query.window_rows import Filter, Order, Side, Sifted, compact


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What a reader has to do; the row's id is the last column of `insert` and `update`."""

    insert: pa.Table
    update: pa.Table
    delete: list[str]


class Netting(threading.local):
    """Small inputs, so one core; each thread has a database of its own, so that none waits for another."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")

    def change_set(self, delta: Delta, columns: Sequence[str]) -> ChangeSet:
        """Inserts, updates and deletes of the chosen columns."""
        chosen = ", ".join(quoted(name) for name in columns)
        with self._registered(removed=delta.removed, added=delta.added):
            insert = self._arrow(f"SELECT {chosen}, {ROW} FROM added ANTI JOIN removed USING ({ROW})")
            update = self._arrow(
                f"SELECT {', '.join(f'a.{quoted(name)}' for name in columns)}, a.{ROW} FROM added a "
                f"JOIN removed r ON a.{ROW} = r.{ROW} WHERE {_row('a', columns)} "
                f"IS DISTINCT FROM {_row('r', columns)}"
            )
            delete = self._arrow(f"SELECT {ROW} FROM removed ANTI JOIN added USING ({ROW})")
        return ChangeSet(insert, update, delete.column(0).to_pylist())

    def sift(self, delta: Delta, orders: Collection[Order]) -> Sifted:
        """What a change means to windows, all in one query: most of the time of a small one is its planning."""
        filters, keys = list({order.filter: None for order in orders}), list({order.key: None for order in orders})
        columns = sorted(frozenset().union(*(order.columns for order in orders)))
        found = [*(condition for condition, _ in filters), *keys]
        sql = ", ".join(f"{expression} AS _{number}" for number, expression in enumerate(found))
        parameters = [value for _, values in filters for value in values]
        with self._registered(changed=pa.concat_tables([delta.removed.select(columns), delta.added.select(columns)])):
            answer = compact(self._arrow(f"SELECT {sql} FROM changed", parameters))
        kept = dict(zip(filters, (pc.fill_null(mask, False) for mask in answer.columns), strict=False))
        placed = dict(zip(keys, answer.columns[len(filters) :], strict=True))
        return Sifted(_side(delta.removed, 0, kept, placed), _side(delta.added, delta.removed.num_rows, kept, placed))

    @contextmanager
    def _registered(self, **tables: pa.Table) -> Iterator[None]:
        """Under names that queries know; not held longer than needed."""
        for name, table in tables.items():
            self._connection.register(name, table)
        try:
            yield
        finally:
            for name in tables:
                self._connection.unregister(name)

    def _arrow(self, sql: str, parameters: Sequence[object] = ()) -> pa.Table:
        return self._connection.execute(sql, list(parameters)).to_arrow_table()


def _side(
    rows: pa.Table, start: int, kept: Mapping[Filter, pa.BooleanArray], keys: Mapping[str, pa.BinaryArray]
) -> Side:
    """The part of an answer on all changed rows that is about these."""
    count = rows.num_rows
    return Side.of(
        rows,
        {filter_: mask.slice(start, count) for filter_, mask in kept.items()},
        {key: places.slice(start, count) for key, places in keys.items()},
    )


def _row(relation: str, columns: Sequence[str]) -> str:
    return f"row({', '.join(f'{relation}.{quoted(name)}' for name in columns)})"
