"""The tables of one generation in the store: made, published, and dropped. How they are filled is `batches.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import duckdb

from turnout.plan.guards import Figures, Matched
from turnout.plan.sql_text import quoted
from turnout.plan.tables import SHOWN_OF_STORE, Layout
from turnout.store import identity
from turnout.store.batch_rows import hash_names, hash_sql, shown_sql
from turnout.store.batches import Batch, Progress
from turnout.store.database import Database, first_row, scalar
from turnout.store.left_out import KeysLeftOut
from turnout.store.outgoing import create_book
from turnout.store.views import kind_of
from turnout_client.column_types import ColumnType

_HASHING = "SELECT " + hash_sql("'turnout'") + " AS probe"
"""Tells one hash function from another."""


class GenerationTables:
    """The schema `g<N>`. One thread writes it; readers see whole batches."""

    def __init__(self, database: Database, generation: int, layout: Layout, bad_rows: int = 100_000) -> None:
        self.database = database
        self.bad_rows = bad_rows
        """How many rows of `bad_records` are kept."""
        self.generation = generation
        self.layout = layout
        self.schema = f"g{generation}"
        self.kept_views: set[str] = set()
        """The views whose rows were copied: batches keep them up to date while the others wait to be built."""
        # What stands in the tables, once that was read.
        self._lives: Mapping[tuple[str, int], int] | None = None
        self._left_out: KeysLeftOut | None = None

    def create(self, cursor: duckdb.DuckDBPyConnection, *, views_built: bool) -> None:
        """Make the empty tables inside the caller's transaction; with nothing to catch up on, its views are built."""
        cursor.execute(f"CREATE SCHEMA {self.schema}")
        for source in self.layout.sources:
            hidden = ", ".join(["_id BIGINT, _ts BIGINT", *(f"{name} UBIGINT" for name in hash_names(source))])
            if source.latest:
                hidden += ", _deleted BOOLEAN, _shown BOOLEAN"
            shape = f"{_declared(source.columns)}, {hidden}, {_row(identity.of_source(source))}"
            cursor.execute(f"CREATE TABLE {self.table(source.table)} ({shape})")
        for view in self.layout.views:
            hidden = ", ".join([*(f"{name} BIGINT" for name in view.ids), "_hash UBIGINT"])
            shape = f"{_declared(view.columns)}, {hidden}, {_row(kind_of(view).identity_sql(view))}"
            cursor.execute(f"CREATE TABLE {self.table(view.table)} ({shape})")
        cursor.execute(f"""
            CREATE TABLE {self.schema}.bad_records (
                _id BIGINT, ts TIMESTAMP WITH TIME ZONE, topic VARCHAR, "partition" INTEGER, "offset" BIGINT,
                field VARCHAR, reason VARCHAR, value VARCHAR, {_row(identity.BAD_RECORD)});
            CREATE TABLE {self.schema}.join_quality (
                _id BIGINT, view VARCHAR, leftRows BIGINT, rightRows BIGINT, matched BIGINT, unmatchedLeft BIGINT,
                unmatchedRight BIGINT, duplicateRightKeys BIGINT, nullKeys BIGINT,
                leftOutKeys BIGINT, {_row(identity.QUALITY)});
            CREATE TABLE {self.schema}.versions (name VARCHAR, version BIGINT);
            CREATE TABLE {self.schema}.progress (
                batch_id BIGINT, offsets VARCHAR, records BIGINT, views_built BOOLEAN, bad BIGINT);
            INSERT INTO {self.schema}.progress VALUES (-1, '{{}}', 0, {views_built}, 0);
            CREATE TABLE {self.schema}.lives (topic VARCHAR, "partition" INTEGER, life UTINYINT);
            CREATE TABLE {self.schema}.left_out (name VARCHAR, key VARCHAR, _hash UBIGINT);
            CREATE TABLE {self.schema}.hashing AS {_HASHING};
        """)
        for index, name in enumerate(name for view in self.layout.views for name in view.quality_sides):
            quality = f"INSERT INTO {self.schema}.join_quality VALUES (?, ?, 0, 0, 0, 0, 0, 0, 0, 0)"
            cursor.execute(quality, [index, name])
        create_book(cursor, self.schema, self.layout)

    def renew(self) -> None:
        """Hash all keys again if DuckDB's hash has changed."""
        with self.database.transaction() as cursor:
            if first_row(cursor, f"FROM {self.schema}.hashing EXCEPT {_HASHING}") is not None:
                self._renew_hashes(cursor)

    def _renew_hashes(self, cursor: duckdb.DuckDBPyConnection) -> None:
        for source in self.layout.sources:
            for column in (source.key, *source.hashed):
                hashed = f"{source.hash_name(column)} = {hash_sql(quoted(column))}"
                cursor.execute(f"UPDATE {self.table(source.table)} SET {hashed}")
        for view in self.layout.views:
            cursor.execute(f"UPDATE {self.table(view.table)} SET _hash = {kind_of(view).row_hash_sql(view)}")
        cursor.execute(f"UPDATE {self.schema}.left_out SET _hash = {hash_sql('key')}")
        cursor.execute(f"CREATE OR REPLACE TABLE {self.schema}.hashing AS {_HASHING}")

    def drop(self, cursor: duckdb.DuckDBPyConnection) -> None:
        cursor.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")

    def publish(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Point the stable names at this generation, inside the caller's transaction; others are removed."""
        shown = {table: f"FROM {self.table(table)}" for table in self.layout.tables}
        shown |= {source.table: shown_sql(source, self.table(source.table)) for source in self.layout.sources}
        for table, rows in shown.items():
            cursor.execute(f"CREATE OR REPLACE VIEW main.{quoted(table)} AS {rows}")
        views = "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"
        for (name,) in cursor.execute(views).fetchall():
            if name not in shown and name not in SHOWN_OF_STORE:
                cursor.execute(f"DROP VIEW main.{quoted(name)}")
        cursor.execute("UPDATE turnout.published SET generation = ?", [self.generation])

    def progress(self, cursor: duckdb.DuckDBPyConnection | None = None) -> Progress:
        with nullcontext(cursor) if cursor else self.database.read() as reading:
            row = first_row(reading, f"SELECT batch_id, offsets, records, views_built FROM {self.schema}.progress")
        return Progress(*row) if row else Progress()

    def newest_record(self) -> int | None:
        """The latest record time in its source tables, in milliseconds since 1970; None without rows."""
        times = " UNION ALL ".join(f"SELECT max(_ts) FROM {self.table(s.table)}" for s in self.layout.sources)
        with self.database.read() as cursor:
            found = [time for (time,) in cursor.execute(times).fetchall() if time is not None]
        return max(found, default=None)

    def lives(self, cursor: duckdb.DuckDBPyConnection) -> Mapping[tuple[str, int], int]:
        """How often partitions were deleted until the last batch, of those that were."""
        if self._lives is None:
            found = cursor.execute(f'SELECT topic, "partition", life FROM {self.schema}.lives').fetchall()
            self._lives = {(topic, partition): life for topic, partition, life in found}
        return self._lives

    def left_out(self, cursor: duckdb.DuckDBPyConnection | None = None) -> KeysLeftOut:
        """The keys that are left out of views after the last batch."""
        if self._left_out is None:
            found: dict[str, dict[str, int]] = {}
            with nullcontext(cursor) if cursor else self.database.read() as reading:
                left_out = reading.execute(f"SELECT name, key, _hash FROM {self.schema}.left_out").fetchall()
            for name, key, hashed in left_out:
                found.setdefault(name, {})[key] = hashed
            self._left_out = found
        return self._left_out

    def figures(self, cursor: duckdb.DuckDBPyConnection, from_latest: Collection[str]) -> Figures:
        """Count what guards compare, in the caller's snapshot; `from_latest` are the topics read from their ends."""
        views = self.layout.views
        quality = cursor.execute(f"SELECT view, leftRows, matched FROM {self.schema}.join_quality").fetchall()
        view_of = {name: view.table for view in views for name in view.quality_sides}
        read, bad = cursor.execute(f"SELECT records, bad FROM {self.schema}.progress").fetchall()[0]
        empty = {
            source.source
            for source in self.layout.sources
            if source.topic in from_latest and not self._count(cursor, source.table)
        }
        return Figures(
            rows={view.table: self._count(cursor, view.table) for view in views},
            matched={name: Matched(view_of[name], left, matched) for name, left, matched in quality if name in view_of},
            read=read,
            bad=bad,
            not_begun=frozenset(view.table for view in views if empty & {source.source for source in view.sources}),
        )

    def _count(self, cursor: duckdb.DuckDBPyConnection, table: str) -> int:
        return scalar(cursor, f"SELECT count(*) FROM {self.table(table)}")

    def number_from_start(self) -> None:
        """A new stream counts its batches from 0."""
        with self.database.transaction() as cursor:
            cursor.execute(f"UPDATE {self.schema}.progress SET batch_id = -1")

    @contextmanager
    def batch(self, batch_id: int | None) -> Iterator[Batch | None]:
        """One batch in one transaction; None where the batch is already in the store (Spark replays after a crash).

        What is read while catching up has no number: where it begins is known from the store itself.
        """
        with self.database.transaction() as cursor:
            progress = self.progress(cursor)
            replayed = batch_id is not None and batch_id <= progress.batch_id
            batch = None if replayed else Batch(self, cursor, progress)
            yield batch
        if batch is not None:
            self._lives, self._left_out = batch.lives, batch.left_out.keys
            batch.tell()

    def table(self, name: str) -> str:
        """The physical table of this generation."""
        return f"{self.schema}.{quoted(name)}"


def _declared(columns: Mapping[str, ColumnType]) -> str:
    return ", ".join(f"{quoted(name)} {kind.duckdb}" for name, kind in columns.items())


def _row(expression: str) -> str:
    return f"{identity.ROW} VARCHAR GENERATED ALWAYS AS ({expression}) VIRTUAL"
