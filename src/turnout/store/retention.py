"""What of the store's own tables goes after a time: the oldest log lines, control messages and swaps.

Rows go by number and, where that is configured, by age; the newest of a table stays whatever its age, since the next
one is counted from it. What metrics count and what tells a message from one that was read before is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from turnout.config.settings import StoreSettings
from turnout.store.database import Database, next_version, scalar

_MOST_PLACES = 1_000_000
_COUNTED = ("control_raw", "swaps")


@dataclass(frozen=True, slots=True)
class _Kept:
    """How much of a table stays; `settled` is the SQL of rows that may go at all."""

    table: str
    rows: int
    since: str = "ts"
    settled: str = "true"


class Retention:
    """Removes old rows; one short transaction, and none at all where nothing goes."""

    def __init__(self, database: Database, keep: StoreSettings, *, acknowledges: bool) -> None:
        self._database = database
        self._sent = " AND _acknowledged" if acknowledges else ""
        self.keep(keep)

    def keep(self, keep: StoreSettings) -> None:
        """Keep so much from now on."""
        self._days = keep.keep_days
        self._tables = (
            _Kept("orchestrator_logs", keep.log_rows),
            # By the time of its arrival: that of a record is whatever its producer says.
            _Kept("control_raw", keep.control_rows, "_arrived", f"outcome IS NOT NULL{self._sent}"),
            _Kept("swaps", keep.swap_rows),
        )

    def trim(self) -> dict[str, int]:
        """Remove what is over its limit; how many rows of each table."""
        with self._database.read() as cursor:
            count = "SELECT count(*) FROM turnout."
            over = [one for one in self._tables if scalar(cursor, f"{count}{one.table} WHERE {self._old(one)}")]
        if not over:
            return {}
        with self._database.write() as cursor:
            return {kept.table: self._remove(cursor, kept) for kept in over}

    def _old(self, kept: _Kept) -> str:
        table = f"turnout.{kept.table}"
        limits = [f"_id <= (SELECT max(_id) FROM {table}) - {kept.rows}"]
        if self._days is not None:
            limits.append(f"{kept.since} < now() - to_seconds({self._days * 86_400})")
        newest = f"_id < (SELECT max(_id) FROM {table})"
        return f"({' OR '.join(limits)}) AND {newest} AND {kept.settled}"

    def _remove(self, cursor: duckdb.DuckDBPyConnection, kept: _Kept) -> int:
        old = self._old(kept)
        if kept.table in _COUNTED:
            self._remember_counts(cursor, kept.table, old)
        if kept.table == "control_raw":
            self._remember_places(cursor, old)
        removed = scalar(cursor, f"DELETE FROM turnout.{kept.table} WHERE {old}")
        next_version(cursor, "turnout", kept.table)
        return removed

    def _remember_counts(self, cursor: duckdb.DuckDBPyConnection, table: str, old: str) -> None:
        """Counters of metrics never go down."""
        seconds = "sum(buildSeconds), sum(catchUpSeconds), sum(publishSeconds)" if table == "swaps" else "0, 0, 0"
        cursor.execute(
            f"CREATE OR REPLACE TEMP TABLE _sums AS SELECT name, outcome, sum(count), sum(build), sum(catchUp), "
            f"sum(publish) FROM (FROM turnout.removed_rows WHERE name = '{table}' UNION ALL "
            f"SELECT '{table}', outcome, count(*), {seconds} FROM turnout.{table} WHERE {old} GROUP BY outcome) "
            f"GROUP BY name, outcome"
        )
        cursor.execute(f"DELETE FROM turnout.removed_rows WHERE name = '{table}'")
        cursor.execute("INSERT INTO turnout.removed_rows FROM _sums")

    def _remember_places(self, cursor: duckdb.DuckDBPyConnection, old: str) -> None:
        """A message that the topic delivers again, after it was cut say, must not be followed again."""
        cursor.execute(
            'INSERT INTO turnout.control_places SELECT _id, "partition", "offset", '
            "coalesce(_milliseconds, epoch_ms(ts)) "
            f'FROM turnout.control_raw WHERE {old} AND "partition" IS NOT NULL'
        )
        cursor.execute(
            "DELETE FROM turnout.control_places "
            f"WHERE _id <= (SELECT max(_id) FROM turnout.control_raw) - {_MOST_PLACES}"
        )
