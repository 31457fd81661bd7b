"""What a batch changes, collected on the way: inserts and deletes also return their rows, where somebody wants them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import quoted
from turnout.store.database import scalar
from turnout.store.feed import MAX_DELTA_ROWS, Delta, Wanted
from turnout.store.identity import ROW

_NEVER_TOLD = ("_hash", "_ts", "_deleted", "_shown", "_at")


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table of a generation: its name, where it is, its columns, and the hidden ones that are told."""

    table: str
    relation: str
    columns: Collection[str]
    hidden: Sequence[str]


class DeltaLog:
    """Runs the statements of one batch that add rows to tables or remove them."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, wants: Callable[[str], Wanted | None]) -> None:
        self._cursor = cursor
        self._wants = wants
        self._removed: dict[str, list[pa.Table]] = {}
        self._added: dict[str, list[pa.Table]] = {}

    def remove(self, place: TablePlace, condition: str) -> int:
        """Remove rows of a table; how many.

        They are selected before: DELETE ... RETURNING fetches all columns of each row by itself, which takes six times
        as long for 5,000 rows.
        """
        wanted = self._wants(place.table)
        if wanted is None:
            return scalar(self._cursor, f"DELETE FROM {place.relation} WHERE {condition}")
        # Only of columns that there are: a viewer may ask for others, which is its own fault.
        told = [quoted(name) for name in place.columns if wanted.every or name in wanted.columns]
        names = ", ".join([*told, *place.hidden, ROW])
        going = f"SELECT {names}, rowid AS _at FROM {place.relation} WHERE {condition}"
        found = self._cursor.execute(going).to_arrow_table()
        self._removed.setdefault(place.table, []).append(_shown(found))
        self._cursor.register("_going", {"_at": found["_at"].to_numpy()})
        return scalar(self._cursor, f"DELETE FROM {place.relation} WHERE rowid IN (SELECT _at FROM _going)")

    def add(self, table: str, sql: str) -> int:
        """Run an INSERT into `table`; the number of rows it added."""
        if self._wants(table) is None:
            return scalar(self._cursor, sql)
        returned = self._cursor.execute(f"{sql} RETURNING *").to_arrow_table()
        self._added.setdefault(table, []).append(_shown(returned))
        return int(returned.num_rows)

    def deltas(self) -> dict[str, Delta]:
        """What changed in each wanted table; those of too many rows are left out."""
        found = {}
        for table in self._removed.keys() | self._added.keys():
            removed, added = self._removed.get(table, []), self._added.get(table, [])
            gone = pa.concat_tables(removed) if removed else added[0].slice(0, 0)
            delta = Delta(gone, pa.concat_tables(added) if added else gone.slice(0, 0))
            if delta.size <= MAX_DELTA_ROWS:
                found[table] = delta
        return found


def _shown(rows: pa.Table) -> pa.Table:
    if "_shown" in rows.column_names:
        rows = rows.filter(pc.field("_shown"))
    return rows.drop_columns([name for name in _NEVER_TOLD if name in rows.column_names])
