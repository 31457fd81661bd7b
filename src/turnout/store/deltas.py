"""What a batch changes, collected on the way: inserts and deletes also return their rows, where somebody wants them."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.store.feed import MAX_DELTA_ROWS, Delta

_NEVER_TOLD = ("_hash", "_ts", "_deleted", "_shown")


class DeltaLog:
    """Runs the statements of one batch that add rows to tables or remove them."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, wants: Callable[[str], bool]) -> None:
        self._cursor = cursor
        self._wants = wants
        self._removed: dict[str, list[pa.Table]] = {}
        self._added: dict[str, list[pa.Table]] = {}

    def remove(self, table: str, sql: str) -> int:
        """Run a DELETE on `table`; the number of rows it removed."""
        return self._run(self._removed, table, sql)

    def add(self, table: str, sql: str) -> int:
        """Run an INSERT into `table`; the number of rows it added."""
        return self._run(self._added, table, sql)

    def deltas(self) -> dict[str, Delta]:
        """What changed in each wanted table; those of too many rows are left out."""
        found = {}
        for table in self._removed.keys() | self._added.keys():
            removed, added = self._removed.get(table, []), self._added.get(table, [])
            empty = (removed or added)[0].slice(0, 0)
            delta = Delta(pa.concat_tables([empty, *removed]), pa.concat_tables([empty, *added]))
            if delta.size <= MAX_DELTA_ROWS:
                found[table] = delta
        return found

    def _run(self, rows: dict[str, list[pa.Table]], table: str, sql: str) -> int:
        if not self._wants(table):
            row = self._cursor.execute(sql).fetchone()
            return int(row[0]) if row else 0
        returned = self._cursor.execute(f"{sql} RETURNING *").to_arrow_table()
        rows.setdefault(table, []).append(_shown(returned))
        return int(returned.num_rows)


def _shown(rows: pa.Table) -> pa.Table:
    if "_shown" in rows.column_names:
        rows = rows.filter(pc.field("_shown"))
    return rows.drop_columns([name for name in _NEVER_TOLD if name in rows.column_names])
