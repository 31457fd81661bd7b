"""The rows that a batch concerns, in temporary tables: what comes, what goes, and what was there of the touched keys.

Each table is searched once: row ids by a scan of eight-byte hashes, then the rows. What was there, what comes and what
goes together tell what is there afterwards, so nothing is looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb

from turnout.plan.joins import quoted
from turnout.plan.tables import SourceTable, ViewTable

KEPT = ("_id", "_ts", "_hash")
"""The hidden columns that every row of a source has."""


class Affected:
    """The temporary tables of one batch."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, table: Callable[[str], str]) -> None:
        self._cursor = cursor
        self._table = table
        self._evicting: set[str] = set()

    def collect_new(self, source: SourceTable, rows: str) -> None:
        """The rows that come to a source; with `_hash`."""
        self._run(f"CREATE OR REPLACE TEMP TABLE {new(source)} AS {rows}")

    def collect_evicted(self, source: SourceTable) -> int:
        """The oldest rows beyond `max_rows`, of what is there and what comes; how many they are."""
        if source.max_rows is None:
            return 0
        table, coming = self._table(source.table), new(source)
        total = f"SELECT (SELECT count(*) FROM {table}) + (SELECT count(*) FROM {coming})"
        excess = max(0, self._run(total) - source.max_rows)
        if not excess:
            return 0
        chosen = f"_id, {quoted(source.key)}, _hash"
        oldest = (
            f"SELECT {chosen} FROM (SELECT {chosen}, _ts FROM {table} UNION ALL SELECT {chosen}, _ts FROM {coming}) "
            f"ORDER BY _ts, _id LIMIT {excess}"
        )
        self._run(f"CREATE OR REPLACE TEMP TABLE {evicted(source)} AS {oldest}")
        self._evicting.add(source.source)
        return excess

    def evicts(self, source: SourceTable) -> bool:
        """Whether rows of a source go because there are too many; only then is there a table of them."""
        return source.source in self._evicting

    def staying(self, source: SourceTable) -> str:
        """The condition that a row of a source, there before or coming, does not go."""
        return f"_id NOT IN (SELECT _id FROM {evicted(source)})" if self.evicts(source) else "true"

    def collect_keys(self, view: ViewTable) -> None:
        """The keys whose view rows change. A null key is among them only where one row of it is shown (`latest`)."""
        key = quoted(view.key)
        parts = []
        for source in view.sources:
            nulls = "" if source.latest and source is view.left and not view.own else f" WHERE {key} IS NOT NULL"
            tables = [new(source), *([evicted(source)] if self.evicts(source) else [])]
            parts += [f"SELECT _hash FROM {table}{nulls}" for table in tables]
        self._run(f"CREATE OR REPLACE TEMP TABLE {keys_table(view)} AS {' UNION '.join(parts)}")

    def look_up(self, source: SourceTable, views: Sequence[ViewTable]) -> None:
        """What is there of the keys that these views touch; where only the newest is kept, of those that come, too."""
        sides = [view for view in views if source in view.sources]
        keys = [keys_table(view) for view in sides] + ([new(source)] if source.latest else [])
        if not keys:
            return
        table = self._table(source.table)
        hashes = " UNION ALL ".join(f"SELECT _hash FROM {name}" for name in keys)
        self._run(
            f"CREATE OR REPLACE TEMP TABLE {was(source)} AS SELECT * EXCLUDE (_row), rowid AS _at FROM {table} "
            f"WHERE {touched(f'({hashes})', table)}"
        )

    def before(self, source: SourceTable) -> str:
        """The shown rows that were there, as a relation."""
        return f"(SELECT {columns_of(source, *KEPT)} FROM {was(source)} WHERE {'_shown' if source.latest else 'true'})"

    def after(self, source: SourceTable) -> str:
        """The shown rows that are there once the batch is in, as a relation."""
        if source.latest:
            stays, comes = f"_shown AND _hash NOT IN (SELECT _hash FROM {new(source)})", f"{put(source)} WHERE _shown"
        else:
            stays = self.staying(source)
            comes = f"{new(source)} WHERE {stays}"
        columns = columns_of(source, *KEPT)
        return f"(SELECT {columns} FROM {was(source)} WHERE {stays} UNION ALL SELECT {columns} FROM {comes})"

    def of_view(self, view: ViewTable, rows: str) -> str:
        """Those of some rows whose keys this view touches, as a relation."""
        return f"(FROM {rows} WHERE _hash IN (SELECT _hash FROM {keys_table(view)}))"

    def null_change(self, *sources: SourceTable) -> int:
        """By how many the shown rows of these sources without a key become more."""
        return self._run(f"SELECT {' + '.join(self._null_change(source) for source in sources)}")

    def _null_change(self, source: SourceTable) -> str:
        null = f"{quoted(source.key)} IS NULL"
        if source.latest:
            came, went = f"{self.after(source)} WHERE {null}", f"{self.before(source)} WHERE {null}"
            return f"(SELECT count(*) FROM {came}) - (SELECT count(*) FROM {went})"
        came = f"(SELECT count(*) FROM {new(source)} WHERE {null} AND {self.staying(source)})"
        if not self.evicts(source):
            return came
        went = f"{evicted(source)} WHERE {null} AND _id NOT IN (SELECT _id FROM {new(source)})"
        return f"{came} - (SELECT count(*) FROM {went})"

    def _run(self, sql: str) -> int:
        row = self._cursor.execute(sql).fetchone()
        return int(row[0]) if row else 0


def touched(keys: str, table: str) -> str:
    """The condition that a row of `table` belongs to one of `keys`.

    By hash alone: rows of another key with the same hash are then worked out anew too, which changes nothing. Row ids
    come first, because they need a scan of eight bytes a row: 4 ms in 1M rows, where all columns take 30.
    """
    return f"rowid IN (SELECT rowid FROM {table} WHERE _hash IN (SELECT _hash FROM {keys}))"


def hash_sql(key: str) -> str:
    """A hash of a key; null keys share one. Another version of DuckDB may have another: see `GenerationTables`."""
    return f"hash(CAST({key} AS VARCHAR))"


def keys_table(view: ViewTable) -> str:
    """The hashes of the keys whose rows in `view` the batch touches."""
    return quoted(f"_keys_{view.table}")


def new(source: SourceTable) -> str:
    """The rows that come."""
    return quoted(f"_new_{source.source}")


def evicted(source: SourceTable) -> str:
    """The rows that go because there are too many, of those that were there and those that come."""
    return quoted(f"_evicted_{source.source}")


def was(source: SourceTable) -> str:
    """The rows of touched keys that were there before the batch."""
    return quoted(f"_was_{source.source}")


def put(source: SourceTable) -> str:
    """Where only the newest is kept: the rows that take the place of those of the same keys."""
    return quoted(f"_put_{source.source}")


def columns_of(source: SourceTable, *hidden: str) -> str:
    """The declared columns of a source, and some hidden ones, for a SELECT."""
    return ", ".join([*(quoted(column) for column in source.columns), *hidden])
