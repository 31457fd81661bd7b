"""Reads for followers: windows with the identity of each row, and how far every table has got.

What is read once is `windows.py`; when to read again is the server's decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa

from turnout.store.database import PUBLISHED, Readable, scalar
from turnout.store.identity import ROW, ties
from turnout.store.query.window_rows import KEY, Order
from turnout.store.query.windows import (
    Window,
    WindowResult,
    chosen_columns,
    collected,
    open_snapshot,
    split_name,
    store_faults,
)

GONE = (-1, 0)
"""The place of a table that is not there any more."""


@dataclass(frozen=True, slots=True)
class TrackedWindow:
    """A window to be followed: its rows with the identity of each, and the compiled form of what chose them."""

    result: WindowResult
    rows: pa.Table
    order: Order

    @property
    def ids(self) -> pa.ChunkedArray:
        return self.rows.column(ROW)


@dataclass(frozen=True, slots=True)
class Positions:
    """Of one moment: the published generation, and the version of every table."""

    published: int
    shared: Mapping[str, int]
    generations: Mapping[int, Mapping[str, int]]

    def of(self, name: str) -> tuple[int, int]:
        """The generation and version of the table `name`; `GONE` for that of a generation that lives no more."""
        plain, generation = split_name(name)
        if generation is None:
            own = self.generations.get(self.published, {})
            return self.published, own.get(plain, self.shared.get(plain, 0))
        if generation not in self.generations:
            return GONE
        return generation, self.generations[generation].get(plain, 0)


def track_window(database: Readable, window: Window) -> TrackedWindow:
    """The window's rows with their identities and their places in its order."""
    with open_snapshot(database) as snapshot:
        table, total = snapshot.prepare(window)
        chosen = chosen_columns(table, window)
        order = Order.of(window, table.columns, ties(table.hidden))
        identity = ROW if ROW in table.hidden else "CAST(_id AS VARCHAR)"
        # A whole table is followed by its changes, which have no places.
        places = [] if window.limit is None else [f"{order.key} AS {KEY}"]
        extra = [*places, f"{identity} AS {ROW}"]
        rows = collected(snapshot.select(table, window, extra), database, window)
        version = snapshot.version(table)
        result = WindowResult(
            window.table, table.generation, version, total, chosen, rows.select([column.name for column in chosen])
        )
        return TrackedWindow(result, rows, order)


def read_positions(database: Readable, generations: Collection[int] = ()) -> Positions:
    """Where all tables are now; of the published generation, and of `generations` where they live."""
    with store_faults("read"), database.read() as cursor:
        published = scalar(cursor, PUBLISHED)
        known = cursor.execute(
            "SELECT schema_name FROM duckdb_tables() WHERE database_name = current_database() "
            "AND table_name = 'versions' AND schema_name <> 'turnout'"
        ).fetchall()
        living = {schema for (schema,) in known}
        wanted = [number for number in {published, *generations} if f"g{number}" in living]
        return Positions(
            published,
            dict(cursor.execute("SELECT name, version FROM turnout.versions").fetchall()),
            {n: dict(cursor.execute(f"SELECT name, version FROM g{n}.versions").fetchall()) for n in wanted},
        )
