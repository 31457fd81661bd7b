"""The feed: what each commit of the store changed, collected while the batch is written, for listeners.

The one place where data crosses from the writers' threads to the server: listeners are called on the thread that
committed and must not block. Rows are collected only of tables that somebody wants; nothing is kept here.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import quoted
from turnout.store.identity import ROW

MAX_DELTA_ROWS = 200_000
"""Listeners do not get the rows of a batch that changes more than these: reading the table again is cheaper."""

_NEVER_TOLD = ("_ts", "_deleted", "_shown", "_at")


@dataclass(frozen=True, slots=True)
class Delta:
    """Rows that went and rows that came, identity included; a row that changed is in both.

    Those that went have at least the columns that were wanted; those that came have all.
    """

    removed: pa.Table
    added: pa.Table

    @property
    def size(self) -> int:
        return int(self.removed.num_rows + self.added.num_rows)

    def tells(self, columns: Collection[str]) -> bool:
        """Whether these columns are known of the rows that went, too."""
        return set(columns) <= set(self.removed.column_names)


@dataclass(frozen=True, slots=True)
class Commit:
    """One batch of a generation: the version of each table it changed, and what changed, where that is known."""

    generation: int
    versions: Mapping[str, int]
    deltas: Mapping[str, Delta]


Listener = Callable[[Commit | None], None]
"""Gets a batch, or None when anything else was committed: a name, a shared table."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What followers need to know of rows that go: some columns, or all of them. Texts are costly to look up."""

    columns: frozenset[str] = frozenset()
    every: bool = False

    def __or__(self, other: Wanted) -> Wanted:
        return Wanted(self.columns | other.columns, self.every or other.every)


class Feed:
    """The listeners, and what they want to know."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._wanters: dict[object, tuple[tuple[str, Wanted], ...]] = {}
        self._wanted: Mapping[str, Wanted] = {}

    def listen(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = (*self._listeners, listener)

    def leave(self, listener: Listener) -> None:
        with self._lock:
            self._listeners = tuple(known for known in self._listeners if known != listener)

    def want(self, tables: Iterable[tuple[str, Wanted]], wanter: object = None) -> None:
        """Collect the changed rows of these tables from now on, and for this wanter of no others."""
        with self._lock:
            self._wanters[wanter] = tuple(tables)
            wanted: dict[str, Wanted] = {}
            for name, one in itertools.chain.from_iterable(self._wanters.values()):
                wanted[name] = wanted.get(name, Wanted()) | one
            self._wanted = wanted

    @property
    def wanted(self) -> Mapping[str, Wanted]:
        """What is wanted now; it does not change under who holds it."""
        return self._wanted

    def tell(self, commit: Commit | None = None) -> None:
        for listener in self._listeners:
            listener(commit)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table of a generation: its name, where it is, its columns, and the hidden ones that are told."""

    table: str
    relation: str
    columns: Collection[str]
    hidden: Sequence[str]


class DeltaLog:
    """Runs the statements of one batch that add rows to tables or remove them, and notes which tables changed."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, wants: Callable[[str], Wanted | None]) -> None:
        self._cursor = cursor
        self._wants = wants
        self.changed: set[str] = set()
        self._removed: dict[str, list[pa.Table]] = {}
        self._added: dict[str, list[pa.Table]] = {}

    def remove(self, place: TablePlace, condition: str) -> None:
        """Remove rows of a table.

        They are selected before: DELETE ... RETURNING fetches all columns of each row by itself, which takes six times
        as long for 5,000 rows.
        """
        wanted = self._wants(place.table)
        if wanted is None:
            self._run(place.table, f"DELETE FROM {place.relation} WHERE {condition}")
            return
        # Only of columns that there are: a viewer may ask for others, which is its own fault.
        told = [quoted(name) for name in place.columns if wanted.every or name in wanted.columns]
        names = ", ".join([*told, *place.hidden, ROW])
        going = f"SELECT {names}, rowid AS _at FROM {place.relation} WHERE {condition}"
        found = self._cursor.execute(going).to_arrow_table()
        self._removed.setdefault(place.table, []).append(_shown(found))
        self._cursor.register("_going", {"_at": found["_at"].to_numpy()})
        self._run(place.table, f"DELETE FROM {place.relation} WHERE rowid IN (SELECT _at FROM _going)")

    def add(self, table: str, sql: str) -> None:
        """Run an INSERT into `table`."""
        if self._wants(table) is None:
            self._run(table, sql)
            return
        returned = self._cursor.execute(f"{sql} RETURNING *").to_arrow_table()
        self._added.setdefault(table, []).append(_shown(returned))
        if returned.num_rows:
            self.changed.add(table)

    def _run(self, table: str, sql: str) -> None:
        if self._cursor.execute(sql).fetchall()[0][0]:
            self.changed.add(table)

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
    return rows.drop_columns([n for n in rows.column_names if n in _NEVER_TOLD or n.startswith("_hash")])
