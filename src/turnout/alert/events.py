"""The table `alerts`: events are added, handed out until they are delivered, and removed when they are old.

Each alert has at most `MAX_WAITING` events that wait; the oldest beyond are marked as dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import orjson

from turnout.store.database import Database, next_version, scalar

MAX_EVENTS = 10_000
"""Rows of the table: the newest, and those that wait. So many events at most come of one step of an alert."""
MAX_WAITING = 1_000
MAX_TOGETHER = 500
MAX_TOGETHER_BYTES = 1_000_000
"""Events and bytes of their rows in one delivery; a single larger event goes alone."""

_WAITING = "turnout.alerts WHERE alert = $alert AND delivered = 'waiting'"


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """One row of the table, as its target gets it."""

    number: int
    id: str
    """Its own, also among the events of other stores."""
    alert: str
    event: str
    content: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "alert": self.alert, "event": self.event, **self.content}


def add_events(cursor: duckdb.DuckDBPyConnection, alert: str) -> int:
    """Add the events of `_changes`, in the transaction that they become known in; how many were dropped for others."""
    last = scalar(cursor, "SELECT coalesce(max(_id), 0) FROM turnout.alerts")
    count = scalar(cursor, "SELECT count(*) FROM _changes WHERE NOT _silent")
    numbered = "SELECT *, row_number() OVER (ORDER BY _version, _record) AS _n FROM _changes WHERE NOT _silent"
    cursor.execute(
        f"INSERT INTO turnout.alerts SELECT {last} + _n, now(), ?, CASE WHEN _fits THEN 'entered' ELSE 'left' END, "
        f"_record ->> '$.key', _told, 'waiting', _record FROM ({numbered}) WHERE _n > {count - MAX_EVENTS} ORDER BY _n",
        [alert],
    )
    oldest = f"SELECT _id FROM {_WAITING} ORDER BY _id DESC LIMIT 1 OFFSET {MAX_WAITING}"
    dropped = scalar(
        cursor,
        f"UPDATE turnout.alerts SET delivered = 'dropped' WHERE alert = $alert AND delivered = 'waiting' "
        f"AND _id <= ({oldest})",
        {"alert": alert},
    )
    cursor.execute(f"DELETE FROM turnout.alerts WHERE delivered <> 'waiting' AND _id <= {last + count - MAX_EVENTS}")
    next_version(cursor, "turnout", "alerts")
    return dropped + max(0, count - MAX_EVENTS)


class Events:
    """The events of all alerts; any thread may ask."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._store = uuid.UUID(database.identity()).int >> 64

    def waiting(self, alert: str) -> list[AlertEvent]:
        """The oldest events that are not delivered yet, as many as go together."""
        # A row that is gone has no bytes: the sum of nulls alone would be null, and its event passed over.
        bytes_so_far = 'sum(coalesce(strlen("row"), 0)) OVER (ORDER BY _id)'
        few = f"{bytes_so_far} <= {MAX_TOGETHER_BYTES} OR row_number() OVER (ORDER BY _id) = 1"
        moment = "strftime(ts AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%gZ')"
        with self._database.read() as cursor:
            rows = cursor.execute(
                f"SELECT _id, event, {moment}, key, _record ->> '$.id', \"row\" FROM {_WAITING} "
                f"QUALIFY {few} ORDER BY _id LIMIT {MAX_TOGETHER}",
                {"alert": alert},
            ).fetchall()
        found = []
        for number, event, ts, key, row_id, row in rows:
            content = {"ts": ts, "key": key, "rowId": row_id, "row": orjson.loads(row) if row else None}
            found.append(AlertEvent(number, self.id_of(number), alert, event, content))
        return found

    def id_of(self, number: int) -> str:
        """The id of an event: 16 digits of the store, and 16 of its number."""
        return f"{self._store << 64 | number:032x}"

    def number_of(self, identity: int) -> int:
        """The number of an event of this store; 0 for one of another store."""
        return identity & (1 << 64) - 1 if identity >> 64 == self._store else 0

    def delivered(self, events: Sequence[AlertEvent]) -> None:
        """Note that these were delivered."""
        with self._database.write() as cursor:
            cursor.execute(
                "UPDATE turnout.alerts SET delivered = 'delivered' WHERE _id IN (SELECT unnest(?::BIGINT[]))",
                [[event.number for event in events]],
            )
            next_version(cursor, "turnout", "alerts")

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many rows fulfil each alert, and how many of its events wait."""
        with self._database.read() as cursor:
            rows = cursor.execute(
                "SELECT alert, CAST(sum(fits) AS BIGINT), CAST(sum(waits) AS BIGINT) FROM ("
                "SELECT alert, 1 AS fits, 0 AS waits FROM turnout.alert_rows UNION ALL "
                "SELECT alert, 0, 1 FROM turnout.alerts WHERE delivered = 'waiting') GROUP BY alert"
            ).fetchall()
        return {alert: (fits, waits) for alert, fits, waits in rows}

    def forget_others(self, alerts: Collection[str]) -> None:
        """Drop what waits for alerts that are not among these, and forget their rows."""
        others = "alert NOT IN (SELECT unnest(?::VARCHAR[]))"
        with self._database.write() as cursor:
            for table in ("alert_rows", "alert_positions"):
                cursor.execute(f"DELETE FROM turnout.{table} WHERE {others}", [list(alerts)])
            gone = f"UPDATE turnout.alerts SET delivered = 'dropped' WHERE delivered = 'waiting' AND {others}"
            if scalar(cursor, gone, [list(alerts)]):
                next_version(cursor, "turnout", "alerts")
