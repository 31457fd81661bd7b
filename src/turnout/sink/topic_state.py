"""What a sink's topic holds, kept in the store: each record's key, and a fingerprint of its value.

The topic itself is the truth: what stands here is what was seen to be committed there, and is brought up to date by
reading the topic on. So it does not matter when a process is killed. One thread for each sink writes here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from turnout.plan.position import NOTHING, Position
from turnout.plan.sql_text import quoted
from turnout.store.database import Database, first_row, moment, registered, scalar

SCHEMA = "sinks"
_POSITIONS = f"{SCHEMA}.{quoted('sinks:positions')}"
_TABLES = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {_POSITIONS} (
    name VARCHAR, topic VARCHAR, topic_id VARCHAR, written VARCHAR, generation INTEGER, version BIGINT, read VARCHAR);
"""
_FETCHED_ROWS = 5_000
_writing = threading.Lock()
"""Sinks share the table of positions; their writes take turns."""


@dataclass(frozen=True, slots=True)
class RecordSet:
    """Records in a temporary table of a cursor: `record`, `id`, `value` and `fingerprint`, null where a row is gone."""

    cursor: duckdb.DuckDBPyConnection
    relation: str = "_records"

    @property
    def count(self) -> int:
        return scalar(self.cursor, f"SELECT count(*) FROM {self.relation}")

    def rows(self) -> Iterator[tuple[str, str | None, int | None]]:
        """Key, value and fingerprint of each record."""
        # In halves: DuckDB takes long to make a Python number of 128 bits, or its text.
        high, low = "CAST(fingerprint >> 64 AS UBIGINT)", f"CAST(fingerprint & {(1 << 64) - 1} AS UBIGINT)"
        rows = self.cursor.execute(f"SELECT record, value, {high}, {low} FROM {self.relation}")
        while chunk := rows.fetchmany(_FETCHED_ROWS):
            for record, value, upper, lower in chunk:
                yield record, value, None if value is None else upper << 64 | lower


class TopicState:
    """The state of one sink's topic."""

    def __init__(self, database: Database, sink: str, written: str) -> None:
        """`written` tells what is written and how: where that changes, the position means nothing any more."""
        self._database = database
        self._sink = sink
        self._what = written
        self.relation = f"{SCHEMA}.{quoted(sink)}"

    def open(self, topic: str, topic_id: str) -> tuple[Position, dict[int, int]]:
        """What was written, and from where the topic has to be read on; nothing is known of a topic made anew.

        Its id tells which topic it is, also after one of its name was deleted.
        """
        with _writing, self._database.transaction() as cursor:
            cursor.execute(_TABLES)
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self.relation} (record VARCHAR, id UBIGINT, fingerprint UHUGEINT)"
            )
            row = first_row(
                cursor,
                f"SELECT topic, topic_id, written, generation, version, read FROM {_POSITIONS} WHERE name = ?",
                [self._sink],
            )
            if row is not None and (row[0], row[1]) == (topic, topic_id):
                written = Position(row[3], row[4]) if row[2] == self._what else NOTHING
                return written, {int(partition): offset for partition, offset in json.loads(row[5]).items()}
            self._clear(cursor)
            cursor.execute(
                f"INSERT INTO {_POSITIONS} VALUES (?, ?, ?, ?, 0, 0, '{{}}')",
                [self._sink, topic, topic_id, self._what],
            )
            return NOTHING, {}

    def clear(self) -> None:
        """Forget everything: the topic is not the one that was written."""
        with _writing, self._database.transaction() as cursor:
            self._clear(cursor)

    def _clear(self, cursor: duckdb.DuckDBPyConnection) -> None:
        cursor.execute(f"DELETE FROM {self.relation}")
        cursor.execute(f"DELETE FROM {_POSITIONS} WHERE name = ?", [self._sink])

    def fold(self, records: pa.Table, read: Mapping[int, int]) -> None:
        """Take records that were read from the topic, in their order: `record`, and `fingerprint` or null."""
        with _writing, self._database.transaction() as cursor:
            if records.num_rows:
                numbered = records.append_column("_at", pa.array(range(records.num_rows), pa.int64()))
                newest = RecordSet(cursor)
                with registered(cursor, _read=numbered):
                    cursor.execute(
                        f"CREATE OR REPLACE TEMP TABLE {newest.relation} AS "
                        "SELECT record, md5_number_lower(record) AS id, CAST(fingerprint AS UHUGEINT) AS fingerprint "
                        "FROM _read QUALIFY row_number() OVER (PARTITION BY record ORDER BY _at DESC) = 1"
                    )
                self._replace(newest)
            self._note_read(cursor, read)

    def written(self, records: RecordSet, now: Position, read: Mapping[int, int] | None) -> None:
        """Note that these records are in the topic, which folds to the table at `now`."""
        with _writing, moment(records.cursor):
            self._replace(records)
            records.cursor.execute(
                f"UPDATE {_POSITIONS} SET written = ?, generation = ?, version = ? WHERE name = ?",
                [self._what, now.generation, now.version, self._sink],
            )
            if read is not None:
                self._note_read(records.cursor, read)

    def _replace(self, records: RecordSet) -> None:
        """Replace the known records of the same keys."""
        # By numbers first: a scan of eight bytes a row.
        known = f"id IN (SELECT id FROM {records.relation}) AND record IN (SELECT record FROM {records.relation})"
        records.cursor.execute(f"DELETE FROM {self.relation} WHERE {known}")
        rows = f"SELECT record, id, fingerprint FROM {records.relation} WHERE fingerprint IS NOT NULL"
        records.cursor.execute(f"INSERT INTO {self.relation} {rows}")

    def _note_read(self, cursor: duckdb.DuckDBPyConnection, read: Mapping[int, int]) -> None:
        cursor.execute(f"UPDATE {_POSITIONS} SET read = ? WHERE name = ?", [json.dumps(dict(read)), self._sink])


def forget_others(database: Database, kept: Collection[str], kind: str = "") -> None:
    """Remove the states that are not among these; states of another `kind` have that and a colon before the name."""
    with _writing, database.transaction() as cursor:
        cursor.execute(_TABLES)
        known = [name for (name,) in cursor.execute(f"SELECT name FROM {_POSITIONS}").fetchall()]
        for name in known:
            if name not in kept and name.rpartition(":")[0] == kind:
                cursor.execute(f"DROP TABLE IF EXISTS {SCHEMA}.{quoted(name)}")
                cursor.execute(f"DELETE FROM {_POSITIONS} WHERE name = ?", [name])
