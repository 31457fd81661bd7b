"""The rows of a table that fulfil an alert's condition, and the events of those that come to fulfil it or no longer do.

They are found as a sink finds its records: in the kept changes of batches, each batch by itself, and otherwise (a swap,
a start, too many that wait) in the difference to the whole table. The rows, the events and the position are written in
one transaction, so each change is one event, whenever the process ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.alert.events import MAX_WAITING, add_events
from turnout.config import AlertSettings
from turnout.plan.position import NOTHING, Position
from turnout.plan.sql_text import quoted
from turnout.plan.where import compile_where, parse_terms
from turnout.sink.records import PublishedTable, changed_table, kept_changes
from turnout.store.database import Database, arrow_table, first_row, moment, registered
from turnout.store.outgoing import SinkPosition
from turnout.store.row_json import record_key_sql, record_value_sql

MAX_KEPT_CHANGES = 200_000
"""Changed rows of batches that wait for an alert; beyond, it is brought up to date by the difference."""
MAX_ROW_BYTES = 65_536
"""A larger row is left out of its events."""
_KNOWN = "SELECT record FROM turnout.alert_rows WHERE alert = ?"
_KEY = "_record ->> '$.key'"
_PAIRED = (
    f"(_fits OR _gone) AND row_number() OVER (PARTITION BY {_KEY}, _fits, _gone ORDER BY _record) <= "
    f"least(count(*) FILTER (_fits) OVER (PARTITION BY {_KEY}), count(*) FILTER (_gone) OVER (PARTITION BY {_KEY}))"
)
"""A row that is gone, and one of the same key that came in its place: no events, because only the identity changed."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step did: whether the alert began with it, its events, and those that were dropped for newer ones."""

    began: bool = False
    events: int = 0
    dropped: int = 0


class WatchedRows:
    """The rows that fulfil one alert, and the position of its table that they are of. One thread uses it."""

    def __init__(self, name: str, settings: AlertSettings, database: Database) -> None:
        self._name = name
        self._settings = settings
        self._database = database
        self._watched = f"{settings.table}: {settings.where}"
        self._terms = parse_terms(settings.where)
        self._position: Position | None = None

    def step(self) -> StepResult:
        """Bring the rows up to date. Rows that fulfil an alert when it begins are no events."""
        if self._position is None:
            self._take_up()
        assert self._position is not None
        with self._database.cursor() as cursor, moment(cursor):
            now = changed_table(cursor, self._settings.table, self._position)
            if now is None:
                return StepResult()
            changes = self._changes(cursor, now, self._position)
        begins, dropped = self._position == NOTHING, 0
        if changes.num_rows or begins:
            with self._database.write() as cursor, registered(cursor, _changes=changes):
                self._write(cursor, now.position)
                if not begins:
                    dropped = add_events(cursor, self._name)
        self._move(now.position)
        told = changes.filter(~pc.field("_silent")).num_rows
        return StepResult(begins, 0 if begins else told, dropped)

    def stop(self) -> None:
        """Keep no more changes for it."""
        self._database.sinks.remove(f"alert:{self._name}")

    def _take_up(self) -> None:
        with self._database.read() as cursor:
            found = first_row(
                cursor,
                "SELECT generation, version FROM turnout.alert_positions WHERE alert = ? AND watched = ?",
                [self._name, self._watched],
            )
        self._move(Position(*found) if found else NOTHING)

    def _move(self, position: Position) -> None:
        self._position = position
        watched = SinkPosition(self._settings.table, MAX_KEPT_CHANGES, position, watches=True)
        self._database.sinks.put(f"alert:{self._name}", watched)

    def _changes(self, cursor: duckdb.DuckDBPyConnection, now: PublishedTable, position: Position) -> pa.Table:
        """The rows that do not fulfil the condition as they did before: identity, order, and the row as JSON."""
        where, values = compile_where(self._terms, now.columns)
        record = record_key_sql(now.key, now.columns[now.key])
        silent = _PAIRED if now.position.generation != position.generation else "false"
        if changes := kept_changes(now, position):
            fits = f"NOT _gone AND coalesce({where}, false)"
            source = f"SELECT *, {record} AS _record, {fits} AS _fits FROM {changes}"
            rows = (
                "SELECT *, lag(_fits, 1, _known) OVER (PARTITION BY _record ORDER BY _version) AS _fitted "
                f"FROM (SELECT *, _record IN ({_KNOWN}) AS _known FROM ({source}))"
            )
            present, parameters = "NOT _gone", [self._name, *values]
        else:
            known = _KNOWN if position != NOTHING else f"{_KNOWN} AND false"
            source = (
                f"SELECT *, {record} AS _record, coalesce({where}, false) AS _fits, 0 AS _version "
                f"FROM main.{quoted(now.table)}"
            )
            rows = (
                "SELECT coalesce(_fits, false) AS _fits, coalesce(_record, _known) AS _record, "
                f"_known IS NOT NULL AS _fitted, 0 AS _version, _record IS NULL AS _gone "
                f"FROM ({source}) FULL JOIN (SELECT record AS _known FROM ({known})) ON _record = _known"
            )
            present, parameters = "true", [*values, self._name]
        found = arrow_table(
            cursor,
            f"SELECT _record, _version, _fits, {silent} AS _silent FROM ({rows}) WHERE _fits <> _fitted "
            "ORDER BY _silent DESC, _version, _record",
            parameters,
        )
        if not found.num_rows:
            return found
        # The rows of a flood would not fit into memory. Events beyond these are dropped at once.
        row = record_value_sql(now.columns)
        newest = found.slice(max(0, found.num_rows - MAX_WAITING)).select(["_record", "_version"])
        told = (
            f"SELECT _record, _version, {row} AS _told FROM ({source}) "
            f"WHERE {present} AND (_record, _version) IN (FROM _newest) AND strlen({row}) <= {MAX_ROW_BYTES}"
        )
        with registered(cursor, _found=found, _newest=newest):
            joined = f"FROM _found LEFT JOIN ({told}) USING (_record, _version) ORDER BY _version, _record"
            return arrow_table(cursor, joined, values)

    def _write(self, cursor: duckdb.DuckDBPyConnection, position: Position) -> None:
        begins = "" if self._position != NOTHING else " OR true"
        of_alert = [self._name]
        cursor.execute(
            f"DELETE FROM turnout.alert_rows WHERE alert = ? AND (record IN (SELECT _record FROM _changes){begins})",
            of_alert,
        )
        cursor.execute(
            "INSERT INTO turnout.alert_rows SELECT ?, _record FROM _changes "
            "GROUP BY _record HAVING arg_max(_fits, _version)",
            of_alert,
        )
        cursor.execute("DELETE FROM turnout.alert_positions WHERE alert = ?", of_alert)
        cursor.execute(
            "INSERT INTO turnout.alert_positions VALUES (?, ?, ?, ?)",
            [self._name, self._watched, position.generation, position.version],
        )
