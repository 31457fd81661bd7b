"""The writes of a batch: runs each INSERT and DELETE, and keeps the rows that somebody follows, for the feed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.sql_text import quoted
from turnout.store.database import arrow_table
from turnout.store.feed import MAX_DELTA_ROWS, Delta, Wanted
from turnout.store.identity import ROW

_NEVER_TOLD = ("_ts", "_deleted", "_shown", "_at")


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table of a generation: its name, its relation, its columns, and the hidden ones that listeners get."""

    table: str
    relation: str
    columns: Collection[str]
    hidden: Sequence[str]


class TrackedWrites:
    """Runs the statements of one batch that add rows to tables or remove them, and notes which tables changed."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, wants: Callable[[str], Wanted | None]) -> None:
        self._cursor = cursor
        self._wants = wants
        self.changed: set[str] = set()
        self._removed: dict[str, list[pa.Table]] = {}
        self._added: dict[str, list[pa.Table]] = {}

    def remove(self, table: WrittenTable, condition: str, read: Callable[[list[str]], pa.Table] | None = None) -> None:
        """Remove rows of a table; `read` gives some of their columns, where the batch has what is in them.

        They are selected before: DELETE ... RETURNING fetches all columns of each row by itself, which takes six times
        as long for 5,000 rows.
        """
        wanted = self._wants(table.table)
        if wanted is None:
            self._run(table.table, f"DELETE FROM {table.relation} WHERE {condition}")
            return
        # Only of columns that there are: a viewer may ask for others, which is its own fault.
        columns = [name for name in table.columns if wanted.every or name in wanted.columns]
        names = ", ".join([*map(quoted, columns), *table.hidden, ROW])
        # Row ids first: only the blocks that have one of the rows are read whole.
        going = f"rowid IN (SELECT rowid FROM {table.relation} WHERE {condition})"
        sql = f"SELECT {names}, rowid AS _at FROM {table.relation} WHERE {going}"
        rows = read(columns) if read else arrow_table(self._cursor, sql)
        self.remove_read(table, rows.select([*columns, *table.hidden, ROW, "_at"]))

    def remove_read(self, table: WrittenTable, rows: pa.Table) -> None:
        """Remove rows that were read; `_at` is where they are."""
        if self._wants(table.table) is not None:
            self._removed.setdefault(table.table, []).append(_told(rows))
        self._cursor.register("_going", {"_at": rows["_at"].to_numpy()})
        self._run(table.table, f"DELETE FROM {table.relation} WHERE rowid IN (SELECT _at FROM _going)")

    def add(self, table: str, sql: str) -> None:
        """Run an INSERT into `table`."""
        if self._wants(table) is None:
            self._run(table, sql)
            return
        returned = arrow_table(self._cursor, f"{sql} RETURNING *")
        self._added.setdefault(table, []).append(_told(returned))
        if returned.num_rows:
            self.changed.add(table)

    def _run(self, table: str, sql: str) -> None:
        if self._cursor.execute(sql).fetchall()[0][0]:
            self.changed.add(table)

    def deltas(self) -> dict[str, Delta]:
        """What changed in each wanted table; a table with too many changed rows is left out."""
        deltas = {}
        for table in self._removed.keys() | self._added.keys():
            removed, added = self._removed.get(table, []), self._added.get(table, [])
            gone = pa.concat_tables(removed) if removed else added[0].slice(0, 0)
            delta = Delta(gone, pa.concat_tables(added) if added else gone.slice(0, 0))
            if delta.size <= MAX_DELTA_ROWS:
                deltas[table] = delta
        return deltas


def _told(rows: pa.Table) -> pa.Table:
    if "_shown" in rows.column_names:
        rows = rows.filter(pc.field("_shown"))
    return rows.drop_columns([n for n in rows.column_names if n in _NEVER_TOLD or n.startswith("_hash")])
