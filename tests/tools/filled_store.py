"""A store filled by real batches without Spark: DuckDB runs the SQL of views, which it understands too."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow as pa

from turnout.config import Settings
from turnout.config.settings import default_sources, default_views
from turnout.config.tables import first_plan, layout_of
from turnout.decode.decoder import Decoded
from turnout.decode.shape import FAULTS
from turnout.plan.joins import Join
from turnout.plan.plan import Plan
from turnout.plan.tables import ViewTable
from turnout.store.database import FILE_NAME, Database
from turnout.store.generation_tables import GenerationTables
from turnout_client.arrow_columns import arrow_type

_START_MS = 1_767_225_600_000
"""The milliseconds of 2026-01-01."""

USER_1 = {"userId": "u1", "name": "Ada", "email": "ada@example.com", "age": 36}
USER_2 = {"userId": "u2", "name": "Ben", "email": None, "age": 52}
GOLD_1 = {"userId": "u1", "accountType": "gold", "balance": 10.5}


class Filling:
    """A writer of generations of the default sources, or of those of `settings`, to a store."""

    def __init__(self, database: Database, settings: Settings | None = None) -> None:
        self.database = database
        self.settings = settings or Settings()
        self.tables: GenerationTables | None = None
        self._number = 0
        self._batch = -1
        self._offset = 0

    def generation(self, join: Join = Join.LEFT) -> GenerationTables:
        """Create a new empty generation, without publishing it."""
        self._number += 1
        tables = self._tables(join)
        with self.database.write() as cursor:
            tables.create(cursor, views_built=True)
        self.tables, self._batch = tables, -1
        return tables

    def _tables(self, join: Join) -> GenerationTables:
        plan = first_plan(self.settings)
        plan = Plan(plan.topics, dict.fromkeys(plan.joins, join), plan.start)
        return GenerationTables(
            self.database, self._number, layout_of(self.settings, plan), self.settings.store.bad_rows
        )

    def after_first_batch(self, records: int) -> Self:
        """Continue in a store that already has the first batch of generation 1."""
        self._number, self._batch, self._offset = 1, 0, records
        self.tables = self._tables(Join.LEFT)
        return self

    def publish(self) -> None:
        """Publish the newest generation."""
        assert self.tables is not None
        with self.database.write() as cursor:
            self.tables.publish(cursor)

    def drop(self, generation: int) -> None:
        with self.database.write() as cursor:
            cursor.execute(f"DROP SCHEMA g{generation} CASCADE")

    def swap(self, join: Join = Join.LEFT, **records: Sequence[Mapping[str, Any]]) -> None:
        """Create and publish a new generation with records; the previous one continues."""
        self.generation(join)
        if any(records.values()):
            self.batch(**records)
        self.publish()

    def batch(self, **records: Sequence[Mapping[str, Any] | None]) -> None:
        """Write a batch of records by source; None is an unreadable record."""
        self.take(self._decoded(records))

    def take(self, decoded: Decoded) -> None:
        """Write a batch of decoded records."""
        assert self.tables is not None
        self._batch += 1
        with self.tables.batch(self._batch) as batch:
            assert batch is not None
            batch.load(decoded)
            for view in self.tables.layout.views:
                if batch.view(view).touched():
                    rows = batch.view(view).few(most=1_000_000)
                    assert rows is not None
                    batch.replace(view, [_joined(view, rows)])
            batch.finish(self._batch, "{}", views_built=True)

    def _decoded(self, records: Mapping[str, Sequence[Mapping[str, Any] | None]]) -> Decoded:
        assert self.tables is not None
        decoded = Decoded({})
        faults: list[dict[str, Any]] = []
        for number, source in enumerate(self.tables.layout.sources):
            given = records.get(source.source, ())
            places = [{"_id": o, "_ts": _START_MS + o * 1000} for o in range(self._offset, self._offset + len(given))]
            self._offset += len(given)
            decoded.records += len(given)
            rows = [{**row, **place} for row, place in zip(given, places, strict=True) if row is not None]
            shape = {name: arrow_type(kind.name) for name, kind in source.columns.items()}
            shape |= {"_id": pa.int64(), "_ts": pa.int64()}
            table = pa.Table.from_pylist(rows, pa.schema(list(shape.items())))
            if source.latest:
                table = table.append_column("_deleted", pa.array([False] * len(rows), pa.bool_()))
            decoded.rows[number] = table
            wrong = {"source": number, "reason": "not valid JSON", "text": "None", "whole": True, "value": b"None"}
            faults += [wrong | place for row, place in zip(given, places, strict=True) if row is None]
        decoded.faults = pa.Table.from_pylist(faults, FAULTS) if faults else None
        return decoded


def settings_of(rows: str, max_rows: int | None = None, duplicates: str = "latest") -> Settings:
    """Return the default sources and views with other row rules."""
    sources = {name: {**source, "rows": rows, "max_rows": max_rows} for name, source in default_sources().items()}
    views = {name: {**view, "duplicates": duplicates} for name, view in default_views().items()}
    return Settings.model_validate({"sources": sources, "views": views})


@contextmanager
def filled(folder: Path) -> Iterator[Filling]:
    """Yield a published store with two users and an account of the first; it is closed after the block."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_bytes(_filled_file())
    database = Database.open(folder)
    try:
        yield Filling(database).after_first_batch(records=3)
    finally:
        database.close()


@functools.cache
def _filled_file() -> bytes:
    """Return the file of the store of `filled`, because a copy takes a tenth of the time of a batch."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(Path(folder))
        Filling(database).swap(users=[USER_1, USER_2], accounts=[GOLD_1])
        database.close()
        return (Path(folder) / FILE_NAME).read_bytes()


def _joined(view: ViewTable, rows: Mapping[str, pa.Table]) -> pa.Table:
    with _plain().cursor() as connection:
        for relation, table in rows.items():
            connection.register(relation, table)
        # DuckDB does not accept LEFT before SEMI and ANTI.
        sql = view.narrow_sql.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
        return connection.sql(sql).to_arrow_table()


@functools.cache
def _plain() -> duckdb.DuckDBPyConnection:
    """Return the database for the SQL of all views; creating one takes longer than a small batch."""
    return duckdb.connect()
