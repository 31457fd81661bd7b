"""Rows on their way to sinks: what each batch changed in a table that a sink writes, kept in the batch's transaction.

Each generation keeps its own, so a swap and a batch never wait for each other; only those of the published one are
sent. A generation's writer alone adds and removes rows here; sinks only read. Where rows are missing (none were kept,
or there were too many), a sink compares its topic with the table instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from turnout.plan.position import NOTHING, Position
from turnout.plan.sql_text import quoted
from turnout.plan.tables import Layout
from turnout.store.feed import Delta
from turnout.store.identity import ROW
from turnout_client.column_types import ColumnType

BOOK = "outgoing"
"""The table of kept changes: the key of each table, and the versions after `since` up to `upto` that are complete."""
_TRIMMED_ROWS = 1_000
"""Rows that every sink has written are removed when they are so many: a removal costs a batch about a millisecond."""


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """How far a sink has written its table, and how many changed rows may wait for it; also how far an alert is.

    `watches` is true for an alert: it reads the changed rows, and writes no record for each of them.
    """

    table: str
    max_rows: int
    written: Position = NOTHING
    watches: bool = False


class SinkPositions:
    """The positions of all sinks, for any thread: batches keep rows for them, and remove what all have written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sinks: Mapping[str, SinkPosition] = {}

    def put(self, name: str, position: SinkPosition) -> None:
        with self._lock:
            self._sinks = {**self._sinks, name: position}

    def remove(self, name: str) -> None:
        with self._lock:
            self._sinks = {known: one for known, one in self._sinks.items() if known != name}

    def writing(self, table: str) -> list[str]:
        """The names of the sinks that write a table; alerts do not."""
        return sorted(name for name, one in self._sinks.items() if one.table == table and not one.watches)

    def of_tables(self) -> dict[str, list[SinkPosition]]:
        """The positions now, by table."""
        found: dict[str, list[SinkPosition]] = {}
        for one in self._sinks.values():
            found.setdefault(one.table, []).append(one)
        return found


def relation(schema: str, table: str) -> str:
    """Where the changed rows of a table are; no table of the configuration has a colon in its name."""
    return f"{schema}.{quoted(f'{BOOK}:{table}')}"


def create_book(cursor: duckdb.DuckDBPyConnection, schema: str, layout: Layout) -> None:
    """Make the book of a generation."""
    cursor.execute(f"CREATE TABLE {schema}.{BOOK} (name VARCHAR, key VARCHAR, since BIGINT, upto BIGINT)")
    keys = [(one.table, one.key) for one in layout.every]
    cursor.executemany(f"INSERT INTO {schema}.{BOOK} (name, key) VALUES (?, ?)", keys)


@dataclass(frozen=True, slots=True)
class OutgoingRows:
    """The changed rows of one table of a generation, as its writer sees them."""

    cursor: duckdb.DuckDBPyConnection
    schema: str
    table: str
    key: str
    columns: Mapping[str, ColumnType]

    def keep(self, delta: Delta, version: int, generation: int, sinks: Iterable[SinkPosition]) -> None:
        """Keep what made the table's `version`, and remove what all sinks have written, or everything if too much."""
        book = f"SELECT since, upto FROM {self.schema}.{BOOK} WHERE name = ?"
        [(since, upto)] = self.cursor.execute(book, [self.table]).fetchall() or [(None, None)]
        rows = relation(self.schema, self.table)
        if upto is None:
            columns = ", ".join(f"{quoted(name)} {kind.duckdb}" for name, kind in self.columns.items())
            self.cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {rows} (_version BIGINT, _gone BOOLEAN, {ROW} VARCHAR, {columns})"
            )
        if upto != version - 1:  # changes before this one were not kept, so the older ones are of no use
            self._remove_all(version - 1)
            since = version - 1
        self._insert(rows, delta, version)
        self.cursor.execute(f"UPDATE {self.schema}.{BOOK} SET upto = ? WHERE name = ?", [version, self.table])
        self._trim(rows, since or 0, version, generation, list(sinks))

    def _insert(self, rows: str, delta: Delta, version: int) -> None:
        names = ", ".join([ROW, *map(quoted, self.columns)])
        came = f"SELECT {version} AS _version, false AS _gone, {names} FROM _came"
        went = (
            f"SELECT {version} AS _version, true AS _gone, {ROW}, {quoted(self.key)} FROM _went "
            f"WHERE {ROW} NOT IN (SELECT {ROW} FROM _came)"
        )
        if parts := [sql for sql, table in ((came, delta.added), (went, delta.removed)) if table.num_rows]:
            self.cursor.register("_came", delta.added)
            self.cursor.register("_went", delta.removed)
            self.cursor.execute(f"INSERT INTO {rows} BY NAME {' UNION ALL BY NAME '.join(parts)}")

    def _trim(self, rows: str, since: int, version: int, generation: int, sinks: list[SinkPosition]) -> None:
        positions = [sink.written for sink in sinks]
        written = min((at.version if at.generation == generation else 0 for at in positions), default=0)
        counts = f"SELECT count(*), count(*) FILTER (WHERE _version <= {written}) FROM {rows}"
        [(kept, done)] = self.cursor.execute(counts).fetchall()
        if kept - done > max((one.max_rows for one in sinks), default=0):
            self._remove_all(version)
        elif written > since and done >= _TRIMMED_ROWS:
            self.cursor.execute(f"DELETE FROM {rows} WHERE _version <= {written}")
            self.cursor.execute(f"UPDATE {self.schema}.{BOOK} SET since = ? WHERE name = ?", [written, self.table])

    def _remove_all(self, version: int) -> None:
        self.cursor.execute(f"DELETE FROM {relation(self.schema, self.table)}")
        self.cursor.execute(f"UPDATE {self.schema}.{BOOK} SET since = ? WHERE name = ?", [version, self.table])
