"""Windows that are followed: read with the identity of each row, their first rows held, and changes merged into them.

What a change means to a window's filter and order is asked in SQL, for many windows at once, in a small DuckDB that
never touches the store or its locks; the rest is Arrow, on few rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.sql_text import quoted
from turnout.plan.where import ANY_COLUMN, Term, compile_key, compile_where, term_columns
from turnout.store.database import Readable, arrow_table, registered
from turnout.store.feed import Delta, Wanted
from turnout.store.identity import ROW, ties
from turnout.store.query.windows import Window, WindowResult, chosen_columns, collected, open_snapshot
from turnout_client.column_types import ColumnType

KEY = "_key"
"""The column of a row's place in a window's order: bytes that compare as the order does."""

MAX_HELD_ROWS = 2_000
SPARE_ROWS = 100
"""Rows that are held beyond a window's end: as many may leave it before the table is read again."""

Filter = tuple[str, tuple[object, ...]]
"""A condition and its values."""


@dataclass(frozen=True, slots=True)
class Order:
    """A choice of rows of a table, and their order: the compiled form of a window's `where` and `sort`."""

    filter: Filter
    key: str
    columns: frozenset[str]
    """Everything that has to be known of a row to tell whether it is among them, and where."""

    @classmethod
    def of(cls, window: Window, types: Mapping[str, ColumnType], ties: Sequence[str]) -> Order:
        condition, parameters = compile_where(window.where, types)
        columns = [*(key.column for key in window.sort), *term_columns(window.where, types), *ties]
        return cls((condition, tuple(parameters)), compile_key(window.sort, types, ties), frozenset(columns))


def wanted_columns(names: Iterable[str], where: Sequence[Term]) -> Wanted:
    """What has to be known of rows that go, before the types of their table are known: a search may need any text."""
    every = any(term.column == ANY_COLUMN for term in where)
    return Wanted(frozenset([*names, *(term.column for term in where)]), every)


@dataclass(frozen=True, slots=True)
class TrackedWindow:
    """A window to be followed: its rows with the identity of each, and the compiled form of what chose them."""

    result: WindowResult
    rows: pa.Table
    order: Order


def track_window(database: Readable, window: Window, expected: Callable[[int], None] | None = None) -> TrackedWindow:
    """The window's rows with their identities and their places in its order.

    `expected` is told how many bytes the rows of a whole table will have, from the first of them on.
    """
    with open_snapshot(database) as snapshot:
        table, total = snapshot.prepare(window)
        chosen = chosen_columns(table, window)
        order = Order.of(window, table.columns, ties(table.hidden))
        # A whole table is followed by its changes, which have no places.
        places = [] if window.limit is None else [f"{order.key} AS {KEY}"]
        extra = [*places, ROW]

        def counted(rows: int, size: int) -> None:
            if expected is not None:
                expected(size * max(total, rows) // max(1, rows))

        rows = collected(snapshot.select(table, window, total, extra), database, window, expected and counted)
        shown = rows.select([column.name for column in chosen])
        result = WindowResult(window.table, snapshot.position(table), total, chosen, shown)
        return TrackedWindow(result, rows, order)


@dataclass(frozen=True, slots=True)
class Held:
    """The first rows of a filtered and sorted table, kept up to date without reading it again.

    `rows` have what is shown, `KEY` and the identity. `bound` is the last place in the order up to which they are
    complete; None where they are all there are.
    """

    rows: pa.RecordBatch
    bound: bytes | None
    total: int


@dataclass(frozen=True, slots=True)
class Side:
    """The rows of a change that went, or those that came: which of them filters keep, and where orders put them."""

    rows: pa.RecordBatch
    kept: Mapping[Filter, pa.BooleanArray]
    keys: Mapping[str, pa.BinaryArray]
    sequence: Mapping[str, pa.UInt64Array]
    """The numbers of the rows of each key, in its order."""

    @classmethod
    def of(
        cls, rows: pa.Table, start: int, kept: Mapping[Filter, pa.BooleanArray], keys: Mapping[str, pa.BinaryArray]
    ) -> Side:
        """Cut the part about these rows, from `start` on, out of an answer on all changed rows."""
        kept = {filter_: mask.slice(start, rows.num_rows) for filter_, mask in kept.items()}
        keys = {key: places.slice(start, rows.num_rows) for key, places in keys.items()}
        return cls(compact(rows), kept, keys, {key: pc.sort_indices(values) for key, values in keys.items()})

    def count(self, order: Order) -> int:
        return int(self.kept[order.filter].true_count)

    def up_to(self, bound: bytes | None, order: Order) -> pa.UInt64Array:
        """The numbers of the rows that the filter keeps and that do not lie beyond the bound, in order."""
        wanted = self.kept[order.filter]
        if bound is not None:
            wanted = pc.and_(wanted, pc.less_equal(self.keys[order.key], bound))
        sequence = self.sequence[order.key]
        return sequence.filter(wanted.take(sequence))

    def take(self, numbers: pa.UInt64Array, order: Order, schema: pa.Schema) -> pa.RecordBatch:
        """Some rows as they are held."""
        columns = [
            (self.keys[order.key] if name == KEY else self.rows.column(name)).take(numbers) for name in schema.names
        ]
        return pa.RecordBatch.from_arrays(
            [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)], schema=schema
        )


@dataclass(frozen=True, slots=True)
class Sifted:
    """A change as windows see it."""

    removed: Side
    added: Side

    def total(self, held: Held, order: Order) -> int:
        return held.total + self.added.count(order) - self.removed.count(order)

    def concerns(self, held: Held, order: Order) -> bool:
        """Whether a row up to the bound changed: for rows that are not the first."""
        if held.bound is None:
            return bool(self.added.count(order) or self.removed.count(order))
        return any(len(side.up_to(held.bound, order)) for side in (self.removed, self.added))

    def advance(self, held: Held, order: Order, most: int) -> Held:
        """The held rows after the change, `most` at most."""
        going = self.removed.up_to(held.bound, order)
        # Of those that come, as many as can stay and one more, which tells that there are more.
        coming = self.added.up_to(held.bound, order)[: most + 1]
        rows = held.rows
        if len(going):
            ids = self.removed.rows.column(ROW).take(going)
            rows = rows.filter(pc.invert(pc.is_in(rows.column(ROW), ids)))
        if len(coming):
            rows = pa.concat_batches([rows, self.added.take(coming, order, rows.schema)])
            rows = rows.take(pc.sort_indices(rows.column(KEY))[: most + 1])
        held = replace(held, total=self.total(held, order))
        return replace(held, rows=rows) if rows.num_rows <= most else first(rows, most, held.total)


class SmallDatabase:
    """A database in memory for small inputs, so on one core: one for each thread, so that none waits.

    Not a `threading.local`: in a forked child Python frees what other threads have there, and DuckDB would wait for
    threads that the child does not have.
    """

    _optimizers_off = ""

    def __init__(self) -> None:
        self._connections: dict[int, duckdb.DuckDBPyConnection] = {}

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """The one of this thread, made at its first use: most threads never need it."""
        thread = threading.get_ident()
        if thread not in self._connections:
            self._connections[thread] = connection = duckdb.connect(config={"threads": 1})
            connection.execute(f"SET TimeZone = 'UTC'; SET disabled_optimizers = '{self._optimizers_off}'")
        return self._connections[thread]


class DeltaQueries(SmallDatabase):
    """Calculations on what changed."""

    def change_set(self, delta: Delta, columns: Sequence[str]) -> tuple[pa.Table, pa.Table, list[str]]:
        """Rows to insert and to update, of the chosen columns and with their ids in the last; and ids to delete."""
        chosen = ", ".join(quoted(name) for name in columns)
        with registered(self._connection, removed=delta.removed, added=delta.added):
            insert = arrow_table(self._connection, f"SELECT {chosen}, {ROW} FROM added ANTI JOIN removed USING ({ROW})")
            update = arrow_table(
                self._connection,
                f"SELECT {', '.join(f'a.{quoted(name)}' for name in columns)}, a.{ROW} FROM added a "
                f"JOIN removed r ON a.{ROW} = r.{ROW} WHERE {_row('a', columns)} "
                f"IS DISTINCT FROM {_row('r', columns)}",
            )
            delete = arrow_table(self._connection, f"SELECT {ROW} FROM removed ANTI JOIN added USING ({ROW})")
        return insert, update, delete.column(0).to_pylist()

    def sift(self, delta: Delta, orders: Collection[Order]) -> Sifted:
        """What a change means to windows, all in one query: most of the time of a small one is its planning."""
        filters, keys = list({order.filter: None for order in orders}), list({order.key: None for order in orders})
        columns = sorted(frozenset().union(*(order.columns for order in orders)))
        found = [*(condition for condition, _ in filters), *keys]
        sql = ", ".join(f"{expression} AS _{number}" for number, expression in enumerate(found))
        parameters = [value for _, values in filters for value in values]
        with registered(
            self._connection, changed=pa.concat_tables([delta.removed.select(columns), delta.added.select(columns)])
        ):
            answer = compact(arrow_table(self._connection, f"SELECT {sql} FROM changed", parameters))
        kept = dict(zip(filters, (pc.fill_null(mask, False) for mask in answer.columns), strict=False))
        placed = dict(zip(keys, answer.columns[len(filters) :], strict=True))
        count = delta.removed.num_rows
        return Sifted(Side.of(delta.removed, 0, kept, placed), Side.of(delta.added, count, kept, placed))


def hold(rows: pa.Table, most: int, total: int) -> Held:
    """Hold rows that were read, `most` at most: as many as that may not be all."""
    # Copied: what DuckDB hands over has room for far more rows.
    own = compact(rows).take(pa.array(range(rows.num_rows), pa.uint64()))
    return first(own, most, total) if 0 < most <= rows.num_rows else Held(own, None, total)


def first(rows: pa.RecordBatch, most: int, total: int) -> Held:
    """Hold the first of many rows: the last of them is the bound. `most` is at least 1."""
    return Held(rows.slice(0, most), rows.column(KEY)[most - 1].as_py(), total)


def compact(rows: pa.Table) -> pa.RecordBatch:
    """One piece of each column."""
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], schema=rows.schema)


def _row(relation: str, columns: Sequence[str]) -> str:
    return f"row({', '.join(f'{relation}.{quoted(name)}' for name in columns)})"
