"""A store filled by real batches without Spark: the view's SQL runs in DuckDB, which understands the same text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from turnout.config import Settings
from turnout.joins import OFFSET_BITS, Join
from turnout.layout import Layout, SourceTable, ViewTable
from turnout.plan import Plan
from turnout.store.database import Database
from turnout.store.generations import GenerationTables

_ARROW = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64()}
_FAULTS = pa.list_(pa.struct([("field", pa.string()), ("reason", pa.string())]))
_START = datetime(2026, 1, 1, tzinfo=UTC)

USER_1 = {"userId": "u1", "name": "Ada", "email": "ada@example.com", "age": 36}
USER_2 = {"userId": "u2", "name": "Ben", "email": None, "age": 52}
GOLD_1 = {"userId": "u1", "accountType": "gold", "balance": 10.5}


class Filling:
    """Writes generations of the default sources, or of those of `settings`, to a store."""

    def __init__(self, database: Database, settings: Settings | None = None) -> None:
        self.database = database
        self.settings = settings or Settings()
        self.tables: GenerationTables | None = None
        self._number = 0
        self._batch = -1
        self._offset = 0

    def generation(self, join: Join = Join.LEFT) -> GenerationTables:
        """Make a new empty generation; it is not published."""
        plan = Plan.from_settings(self.settings)
        plan = Plan(plan.topics, dict.fromkeys(plan.joins, join), plan.start)
        self._number += 1
        tables = GenerationTables(self.database, self._number, Layout.of(self.settings, plan))
        with self.database.write() as cursor:
            tables.create(cursor, views_built=True)
        self.tables, self._batch = tables, -1
        return tables

    def publish(self) -> None:
        """Point the names at the newest generation."""
        assert self.tables is not None
        with self.database.write() as cursor:
            self.tables.publish(cursor)

    def drop(self, generation: int) -> None:
        with self.database.write() as cursor:
            cursor.execute(f"DROP SCHEMA g{generation} CASCADE")

    def swap(self, join: Join = Join.LEFT, **records: Sequence[Mapping[str, Any]]) -> None:
        """A new generation with records in it, published; the one before lives on."""
        self.generation(join)
        if any(records.values()):
            self.batch(**records)
        self.publish()

    def batch(self, **records: Sequence[Mapping[str, Any] | None]) -> None:
        """One batch of records by source; None is a record that cannot be read."""
        assert self.tables is not None
        self._batch += 1
        with self.tables.batch(self._batch) as batch:
            assert batch is not None
            batch.load(self._records(records))
            for view in self.tables.layout.views:
                rows = batch.affected(view)
                if rows is not None:
                    batch.replace(view, [_joined(view, rows)])
            batch.finish(self._batch, "{}", views_built=True)

    def _records(self, records: Mapping[str, Sequence[Mapping[str, Any] | None]]) -> pa.Table:
        assert self.tables is not None
        sources = self.tables.layout.sources
        given = [(source.source, record) for source in sources for record in records.get(source.source, ())]
        offsets = range(self._offset, self._offset + len(given))
        self._offset += len(given)
        columns: dict[str, pa.Array] = {
            "topic": pa.array([name for name, _ in given], pa.string()),
            "partition": pa.array([0] * len(given), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "_id": pa.array([(0 << OFFSET_BITS) | offset for offset in offsets], pa.int64()),
            "_ts": pa.array([_START + timedelta(seconds=o) for o in offsets], pa.timestamp("us", "UTC")),
            "_deleted": pa.array([False] * len(given), pa.bool_()),
            "_text": pa.array([str(record) for _, record in given], pa.string()),
        }
        for index, source in enumerate(sources):
            own = [record if name == source.source else None for name, record in given]
            bad = [name == source.source and record is None for name, record in given]
            columns[f"row_{index}"] = pa.array(own, _struct(source))
            faults = [[{"field": None, "reason": "not valid JSON"}] if wrong else [] for wrong in bad]
            columns[f"faults_{index}"] = pa.array(faults, _FAULTS)
        return pa.table(columns)


@contextmanager
def filled(folder: Path) -> Iterator[Filling]:
    """A store with two users and an account of the first, published; closed after the block."""
    database = Database.open(folder)
    try:
        made = Filling(database)
        made.swap(users=[USER_1, USER_2], accounts=[GOLD_1])
        yield made
    finally:
        database.close()


def _struct(source: SourceTable) -> pa.DataType:
    return pa.struct([(name, _ARROW[kind.name]) for name, kind in source.columns.items()])


def _joined(view: ViewTable, rows: Mapping[str, pa.Table]) -> pa.Table:
    with duckdb.connect() as connection:
        for relation, table in rows.items():
            connection.register(relation, table)
        return connection.execute(view.narrow_sql).to_arrow_table()
