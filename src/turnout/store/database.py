"""The live store's file: one DuckDB database, opened once by the process.

Owns the connection, transactions and the tables that all generations share. What is in a generation's own tables is
`generation_tables.py`; how tables are read is `windows.py`.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from turnout.errors import TurnoutError, first_line
from turnout.plan.offsets import Offsets
from turnout.plan.sql_text import literal
from turnout.store.feed import Feed
from turnout.store.outgoing import SinkPositions

FILE_NAME = "store.duckdb"

_BOOKKEEPING = """
CREATE SCHEMA IF NOT EXISTS turnout;
CREATE TABLE IF NOT EXISTS turnout.store (id VARCHAR);
INSERT INTO turnout.store SELECT CAST(uuid() AS VARCHAR) WHERE NOT EXISTS (FROM turnout.store);
CREATE TABLE IF NOT EXISTS turnout.published (generation INTEGER, previous VARCHAR);
INSERT INTO turnout.published (generation) SELECT 0 WHERE NOT EXISTS (FROM turnout.published);
CREATE TABLE IF NOT EXISTS turnout.counter (generation INTEGER);
INSERT INTO turnout.counter SELECT 0 WHERE NOT EXISTS (FROM turnout.counter);
CREATE TABLE IF NOT EXISTS turnout.versions (name VARCHAR, version BIGINT);
CREATE TABLE IF NOT EXISTS turnout.generations (
    generation INTEGER, plan VARCHAR, layout VARCHAR, start_offsets VARCHAR, target_offsets VARCHAR);
ALTER TABLE turnout.published ADD COLUMN IF NOT EXISTS previous_sections VARCHAR;
ALTER TABLE turnout.published ADD COLUMN IF NOT EXISTS candidate INTEGER;
ALTER TABLE turnout.published ADD COLUMN IF NOT EXISTS candidate_since BIGINT;
ALTER TABLE turnout.published ADD COLUMN IF NOT EXISTS candidate_config VARCHAR;
ALTER TABLE turnout.generations ADD COLUMN IF NOT EXISTS sections VARCHAR;
CREATE TABLE IF NOT EXISTS turnout.config_history (
    _id BIGINT, ts TIMESTAMP WITH TIME ZONE, generation INTEGER, requester VARCHAR, requestId VARCHAR,
    outcome VARCHAR, changes VARCHAR, document VARCHAR, on_disk VARCHAR);
CREATE TABLE IF NOT EXISTS turnout.orchestrator_logs (
    _id BIGINT, ts TIMESTAMP WITH TIME ZONE, level VARCHAR, msg VARCHAR);
CREATE TABLE IF NOT EXISTS turnout.control_raw (
    _id BIGINT, ts TIMESTAMP WITH TIME ZONE, "partition" INTEGER, "offset" BIGINT, requester VARCHAR,
    raw VARCHAR, requestId VARCHAR, outcome VARCHAR, detail VARCHAR, _acknowledged BOOLEAN);
ALTER TABLE turnout.control_raw ADD COLUMN IF NOT EXISTS _milliseconds BIGINT;
ALTER TABLE turnout.control_raw ADD COLUMN IF NOT EXISTS _arrived TIMESTAMP WITH TIME ZONE;
CREATE TABLE IF NOT EXISTS turnout.applies (
    message BIGINT, config VARCHAR, request_id VARCHAR, expected_generation BIGINT, dry_run BOOLEAN, force BOOLEAN);
CREATE TABLE IF NOT EXISTS turnout.control_places (
    _id BIGINT, "partition" INTEGER, "offset" BIGINT, milliseconds BIGINT);
CREATE TABLE IF NOT EXISTS turnout.saved_views (name VARCHAR, view VARCHAR);
CREATE TABLE IF NOT EXISTS turnout.removed_rows (
    name VARCHAR, outcome VARCHAR, count BIGINT, build DOUBLE, catchUp DOUBLE, publish DOUBLE);
CREATE TABLE IF NOT EXISTS turnout.swaps (
    _id BIGINT, ts TIMESTAMP WITH TIME ZONE, generation INTEGER, "from" VARCHAR, "to" VARCHAR, requester VARCHAR,
    requestId VARCHAR, controlOffset BIGINT, sourceOffsets VARCHAR, buildSeconds DOUBLE, catchUpSeconds DOUBLE,
    publishSeconds DOUBLE, outcome VARCHAR, detail VARCHAR);
ALTER TABLE turnout.swaps ADD COLUMN IF NOT EXISTS sources VARCHAR;
CREATE TABLE IF NOT EXISTS turnout.alerts (
    _id BIGINT, ts TIMESTAMP WITH TIME ZONE, alert VARCHAR, event VARCHAR, key VARCHAR, "row" VARCHAR,
    delivered VARCHAR, _record VARCHAR);
CREATE TABLE IF NOT EXISTS turnout.alert_rows (alert VARCHAR, record VARCHAR);
CREATE TABLE IF NOT EXISTS turnout.alert_positions (
    alert VARCHAR, watched VARCHAR, generation INTEGER, version BIGINT);
CREATE OR REPLACE VIEW main.orchestrator_logs AS FROM turnout.orchestrator_logs;
CREATE OR REPLACE VIEW main.control_raw AS FROM turnout.control_raw;
CREATE OR REPLACE VIEW main.swaps AS FROM turnout.swaps;
CREATE OR REPLACE VIEW main.alerts AS FROM turnout.alerts;
"""


PUBLISHED = "SELECT generation FROM turnout.published"
_FETCHED_BY_ID = 1_000
CLOSE_SECONDS = 60.0
"""No statement of a batch takes longer. What runs on must not keep the process: all that is committed is in the log."""


class Interruptible(Protocol):
    """Work that can be ended from another thread: a connection, or a process."""

    def interrupt(self) -> None: ...


class Readable(Protocol):
    """What can be read: the store, or one read of it that others can end."""

    @property
    def max_bytes(self) -> int | None:
        """The most bytes of a window's rows; None for any number."""

    @property
    def sinks(self) -> SinkPositions:
        """The sinks that run."""

    @property
    def ends(self) -> Offsets:
        """The ends of the topics that generations read, as last measured."""

    def read(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """One snapshot: all that is read inside is of one moment."""

    def ending(self, connection: Interruptible) -> AbstractContextManager[None]:
        """Work elsewhere, which ends where the read is ended."""


class Database:
    """The open store. Threads share it; each transaction has a cursor of its own."""

    max_bytes: int | None = None

    def __init__(self, path: Path, memory_limit: str) -> None:
        self.path = path
        self._memory_limit = memory_limit
        self.feed = Feed()
        self.sinks = SinkPositions()
        self.ends = Offsets({})
        self._shared = threading.RLock()
        self._connection = self._connect()

    @classmethod
    def open(cls, folder: Path, memory_limit: str = "2GB") -> Database:
        """Open the store in `folder`, making both where they are missing."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder / FILE_NAME, memory_limit)

    def _connect(self) -> duckdb.DuckDBPyConnection:
        new = not self.path.exists()
        try:
            # The format of DuckDB 1 takes no longer, and an older Turnout opens it too.
            kept = {"storage_compatibility_version": "v1.0.0"}
            connection = duckdb.connect(str(self.path), config={"memory_limit": self._memory_limit, **kept})
        except duckdb.IOException as error:
            if new and "No space" in str(error):
                self.path.unlink(missing_ok=True)  # the beginning of a file is no store, also when there is room again
            raise _unavailable(self.path, error) from error
        try:
            # Finding the best compression of texts takes more than half of the time that loading rows does.
            connection.execute("SET disabled_compression_methods = 'dictionary,fsst,dict_fsst,zstd'")
            # Rows of up to so many ids are fetched from the blocks that they are in; DuckDB's 50 scan the table for 51.
            connection.execute(f"SET GLOBAL dynamic_or_filter_threshold = {_FETCHED_BY_ID}")
            # A checkpoint writes much that has not changed: after 16 MB, as by default, it took a third of the time of
            # a batch of 50,000 records. What is not in one yet is read from the log after a kill: 64 MB in a second.
            connection.execute("SET checkpoint_threshold = '64MB'")
            spilled = self.path.with_suffix(".tmp")
            # A process that was killed left it; the open store keeps others out.
            shutil.rmtree(spilled, ignore_errors=True)
            connection.execute(f"SET temp_directory = {literal(spilled)}")
            # One transaction: statement by statement, each would wait for the disk.
            connection.execute(f"BEGIN; {_BOOKKEEPING} COMMIT")
        except duckdb.Error as error:
            connection.close()
            raise _unavailable(self.path, error) from error
        return connection

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A cursor for one thread; the caller closes it."""
        try:
            return self._connection.cursor()
        except duckdb.Error as error:
            raise store_failed(error) from error

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction: kept when the block ends, undone when it raises."""
        with self.cursor() as cursor:
            try:
                with moment(cursor):
                    yield cursor
            except (duckdb.IOException, duckdb.FatalException) as error:
                raise store_failed(error) from error

    read = transaction
    """One snapshot: all that is read inside is of one moment."""

    def ending(self, connection: Interruptible) -> AbstractContextManager[None]:
        """Nobody ends a read of the store itself."""
        return nullcontext()

    @contextmanager
    def write(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One transaction on the shared tables and names. Writers of these take turns, so they never conflict."""
        with self._shared, self.transaction() as cursor:
            yield cursor
        self.feed.tell()

    def identity(self) -> str:
        """A name that no other store has: versions of one store say nothing about another."""
        with self.read() as cursor:
            return str(cursor.execute("SELECT id FROM turnout.store").fetchall()[0][0])

    def broken(self, error: BaseException) -> bool:
        """Whether, after this error, only opening again helps: DuckDB held it to be fatal, or a reopening failed."""
        cause = error.__cause__ or error
        fatal = (duckdb.FatalException, duckdb.InternalException, duckdb.ConnectionException)
        return isinstance(cause, fatal) or "invalidated" in str(cause)

    def reopen(self) -> None:
        """Close and open again: the way out after an error that DuckDB holds to be fatal, such as a full disk."""
        with self._shared:
            self.close()
            self._connection = self._connect()

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Close when the statements of other threads have ended: DuckDB refuses to while one runs, and so the limit."""
        until = time.monotonic() + timeout_seconds
        while True:
            try:
                return self._connection.close()
            except duckdb.ResourceInUseException as error:
                if time.monotonic() >= until:
                    raise TurnoutError(
                        code="store_unavailable",
                        message=f"the store cannot be closed: a statement still runs after {timeout_seconds:g} s",
                        hint="restart Turnout if this stays; what was committed is kept",
                    ) from error
                time.sleep(0.01)


@contextmanager
def moment(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """One transaction of a cursor that goes on afterwards."""
    try:
        cursor.execute("BEGIN")
        yield
        cursor.execute("COMMIT")
    except BaseException:
        # A failed COMMIT has already ended the transaction; the first error is the one to tell.
        with suppress(duckdb.Error):
            cursor.execute("ROLLBACK")
        raise


def scalar(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()
) -> int:
    """Run a statement; the number that it answers (a count, or how many rows it changed), 0 where it answers none."""
    row = first_row(cursor, sql, parameters)
    return int(row[0]) if row else 0


def first_row(
    cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()
) -> tuple[Any, ...] | None:
    """Run a statement that answers few rows; its first row, None where it answers none."""
    values = parameters if isinstance(parameters, Mapping) else list(parameters)
    return next(iter(cursor.execute(sql, values).fetchall()), None)


def arrow_table(cursor: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> pa.Table:
    """Run a statement; its rows in memory, as a relation gives them: a result of `execute` copies them."""
    return cursor.sql(sql, params=list(parameters)).to_arrow_table()


@contextmanager
def registered(connection: duckdb.DuckDBPyConnection, **tables: pa.Table) -> Iterator[None]:
    """Rows under names that SQL knows, for a block: not held longer than needed."""
    for name, table in tables.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            connection.unregister(name)


def published_generations(cursor: duckdb.DuckDBPyConnection) -> tuple[int, int | None]:
    """What is published, and the candidate that waits to be."""
    [(published, candidate)] = cursor.execute("SELECT generation, candidate FROM turnout.published").fetchall()
    return published, candidate


def stored_offsets_sql(generation: int) -> str:
    """The SQL of how far a generation has stored its topics, as JSON; before its first batch, where it begins."""
    start = f"(SELECT start_offsets FROM turnout.generations WHERE generation = {generation})"
    return f"SELECT coalesce(nullif(offsets, '{{}}'), {start}, '{{}}') FROM g{generation}.progress"


def next_version(cursor: duckdb.DuckDBPyConnection, schema: str, *tables: str) -> dict[str, int]:
    """Count a change of `tables` in `schema`, inside the caller's transaction; their versions after it."""
    if not tables:
        return {}
    changed = cursor.execute(
        f"UPDATE {schema}.versions SET version = version + 1 WHERE list_contains(?, name) RETURNING name, version",
        [list(tables)],
    ).fetchall()
    versions = {name: int(version) for name, version in changed}
    for table in tables:
        if table not in versions:
            cursor.execute(f"INSERT INTO {schema}.versions VALUES (?, 1)", [table])
            versions[table] = 1
    return versions


def give_back() -> None:
    """Give memory that dropped tables have left to the C library back to the system; nothing where that has no way to.

    With a swap every 20 seconds the process had 450 instead of 570 MB after six minutes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def store_failed(error: duckdb.Error) -> TurnoutError:
    """The store itself is at fault, not what was asked of it."""
    return TurnoutError(
        code="store_unavailable",
        message=f"the store failed: {first_line(error)}",
        hint="check that the disk of data_dir has room; Turnout tries again",
    )


def _unavailable(path: Path, error: Exception) -> TurnoutError:
    first = first_line(error)
    message = f"the store {path.name} cannot be opened: {first}"
    hint = "check that data_dir is writable and that its disk has room"
    if "lock" in first.lower():
        holder = re.search(r"PID (\d+)", first)
        message = f"another turnout{f' (process {holder[1]})' if holder else ''} uses data_dir {path.parent}"
        hint = "stop it, or give this one another data_dir"
    return TurnoutError(code="store_unavailable", message=message, hint=hint)


def is_store_failure(error: BaseException) -> bool:
    """Whether the store, and not what was asked of it, is at fault."""
    return isinstance(error, duckdb.Error) or (isinstance(error, TurnoutError) and error.code == "store_unavailable")
