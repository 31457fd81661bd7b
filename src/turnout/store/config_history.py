"""The configurations that were in force: who put each there, when, and what differed.

Texts come here without secrets; `config/configuration.py` makes them so.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import duckdb
from pydantic import Field

from turnout.config.changes import SettingChange, as_json
from turnout.plan.answers import Answer
from turnout.store.database import Readable, arrow_table

MOST_ENTRIES = 1_000
_TABLE = "turnout.config_history"
_NAMES = "generation, requester, requestId, outcome, changes, document, on_disk, ts"
_READ = _NAMES.replace("ts", "ts AS time")


class ConfigEntry(Answer):
    """A configuration that came into force: by an apply, a rollback, or a start."""

    time: datetime | None = None
    generation: int
    requester: str
    request_id: str | None = None
    outcome: str
    changes: list[SettingChange]
    document: str = Field(exclude=True)
    on_disk: str = Field(exclude=True)
    """The file of `turnout run -c` as it was then: a later change of it is noticed at the next start."""


def add(cursor: duckdb.DuckDBPyConnection, entry: ConfigEntry) -> None:
    """Add an entry inside the caller's transaction; the oldest go."""
    cursor.execute(
        f"INSERT INTO {_TABLE} (_id, {_NAMES}) SELECT coalesce(max(_id), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ? FROM {_TABLE}",
        [
            *(entry.generation, entry.requester, entry.request_id, entry.outcome),
            *(json.dumps(as_json(entry.changes)), entry.document, entry.on_disk, datetime.now(UTC)),
        ],
    )
    cursor.execute(f"DELETE FROM {_TABLE} WHERE _id <= (SELECT max(_id) FROM {_TABLE}) - {MOST_ENTRIES}")


def newest(store: Readable) -> ConfigEntry | None:
    """The one in force."""
    return next(iter(entries(store, 1)), None)


def entries(store: Readable, most: int = MOST_ENTRIES) -> list[ConfigEntry]:
    """The newest first."""
    with store.read() as cursor:
        # Without it the times have the zone of the machine.
        cursor.execute("SET TimeZone = 'UTC'")
        found = arrow_table(cursor, f"SELECT {_READ} FROM {_TABLE} ORDER BY _id DESC LIMIT ?", [most])
    return [ConfigEntry(**row | {"changes": json.loads(row["changes"])}) for row in found.to_pylist()]
