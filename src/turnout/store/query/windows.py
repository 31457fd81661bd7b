"""Reading tables: a window of one table, the list of all, or a whole table as a stream, each of one moment.

Every relation in schema `main` is a table; `NAME@7` is its counterpart in generation 7. Names come from the
catalog, and hidden columns (their names begin with `_`) are never shown. The filter language is `where.py`; windows
that are followed are `window_rows.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import duckdb
import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.nearest import suggestion
from turnout.plan.position import Position
from turnout.plan.sql_text import quoted
from turnout.plan.tables import BOOKS_OF_GENERATION, RESERVED
from turnout.plan.where import SortKey, Term, compile_sort, compile_where, known_column
from turnout.store import identity
from turnout.store.database import Readable, published_generations, scalar
from turnout_client.column_types import ColumnType

log = logging.getLogger(__name__)

_ROWID = "_rowid"
_OF_GENERATION = re.compile(r"(.+)@([0-9]{1,9})", re.ASCII | re.DOTALL)
STREAM_BATCH_ROWS = 50_000
_COUNTED_ROWS = 2_000
_FAR_SHARE, _FAR_ROWS = 0.01, 5_000
"""A page is far down below more than this part of all rows, and this number. For others DuckDB keeps the first rows."""

_SAMPLED_ROWS = 4_000
_SAMPLED_LETTERS = 100
_PIECE_BYTES = 1_000_000
_CATALOG = """
SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
WHERE database_name = current_database() AND NOT internal ORDER BY schema_name, table_name, column_index
"""
GONE = Position(-1, 0)
"""The place of a table that is not there any more."""
# What DuckDB raises when the store itself is in trouble, and what clients read about it.
_UNAVAILABLE: tuple[tuple[type[duckdb.Error], str], ...] = (
    (duckdb.IOException, "its disk fails or is full"),
    (duckdb.OutOfMemoryException, "it is out of memory"),
    (duckdb.FatalException, "it stopped after an earlier failure"),
    (duckdb.InternalException, "it failed internally"),
    (duckdb.ConnectionException, "it is closed"),
)


@dataclass(frozen=True, slots=True)
class Window:
    """What to read. `columns` None: all; `limit` None: to the end."""

    table: str
    columns: tuple[str, ...] | None = None
    where: tuple[Term, ...] = ()
    sort: tuple[SortKey, ...] = ()
    offset: int = 0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True, slots=True)
class WindowResult:
    """Rows of one moment; `total` counts what `where` keeps, not only this window.

    The rows are in memory, or come in batches for as long as their `open_window` block.
    """

    table: str
    position: Position
    total: int
    columns: tuple[Column, ...]
    rows: pa.Table | pa.RecordBatchReader


@dataclass(frozen=True, slots=True)
class TableInfo:
    name: str
    columns: tuple[Column, ...]
    rows: int
    generation: int
    version: int


@dataclass(frozen=True, slots=True)
class Positions:
    """The published generation, the candidate and the version of every table, of one moment."""

    published: int
    candidate: int | None
    shared: Mapping[str, int]
    generations: Mapping[int, Mapping[str, int]]

    def of(self, name: str) -> Position:
        """The position of the table `name`; `GONE` where its generation was retired."""
        plain, generation = split_name(name)
        if generation is None:
            own = self.generations.get(self.published, {})
            return Position(self.published, own.get(plain, self.shared.get(plain, 0)))
        if generation not in self.generations:
            return GONE
        return Position(generation, self.generations[generation].get(plain, 0))


def read_window(database: Readable, window: Window) -> WindowResult:
    """The window's rows in memory."""
    with open_snapshot(database) as snapshot:
        table, total = snapshot.prepare(window)
        rows = collected(snapshot.select(table, window, total), database, window, None)
        return WindowResult(window.table, snapshot.position(table), total, chosen_columns(table, window), rows)


@contextmanager
def open_window(database: Readable, window: Window) -> Iterator[WindowResult]:
    """The window's rows as a stream, for tables that memory should not hold.

    The block keeps a snapshot open, and DuckDB cannot reclaim what it still sees: drain it into a file, not
    into a slow client.
    """
    with open_snapshot(database) as snapshot:
        table, total = snapshot.prepare(window)
        position = snapshot.position(table)
        # Last: the next statement on this cursor would end the stream silently.
        with snapshot.select(table, window, total).to_arrow_reader(STREAM_BATCH_ROWS) as reader:
            yield WindowResult(window.table, position, total, chosen_columns(table, window), reader)


def list_tables(database: Readable, *, own: bool = True) -> list[TableInfo]:
    """All tables, by name; without Turnout's `own` those of sources and views."""
    with open_snapshot(database) as snapshot:
        return [
            TableInfo(
                table.name, chosen_columns(table), snapshot.count(table), table.generation, snapshot.version(table)
            )
            for table in map(snapshot.table, snapshot.names)
            if own or table.name not in RESERVED
        ]


def read_positions(database: Readable, generations: Collection[int] = ()) -> Positions:
    """The positions of all tables now; of the published generation, and of `generations` where they live."""
    with store_faults("read"), database.read() as cursor:
        published, candidate = published_generations(cursor)
        known = cursor.execute(
            "SELECT schema_name FROM duckdb_tables() WHERE database_name = current_database() "
            "AND table_name = 'versions' AND schema_name <> 'turnout'"
        ).fetchall()
        living = {schema for (schema,) in known}
        wanted = [number for number in {published, candidate or 0, *generations} if f"g{number}" in living]
        return Positions(
            published,
            candidate,
            dict(cursor.execute("SELECT name, version FROM turnout.versions").fetchall()),
            {n: dict(cursor.execute(f"SELECT name, version FROM g{n}.versions").fetchall()) for n in wanted},
        )


def collected(
    selected: duckdb.DuckDBPyRelation, store: Readable, window: Window, counted: Callable[[int, int], None] | None
) -> pa.Table:
    """The rows of a window in memory; TurnoutError where one that has an end has more bytes than may be.

    `counted` is told how many rows and bytes there are, while they come.
    """
    most = store.max_bytes if window.limit is not None else None
    if most is None and counted is None:
        return selected.to_arrow_table()
    pieces: list[pa.RecordBatch] = []
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    with selected.to_arrow_reader(_COUNTED_ROWS) as reader:
        for batch in reader:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if counted is not None:
                counted(rows, size)
            if most is not None and size > most:
                raise TurnoutError(
                    code="answer_too_large",
                    message=f"the rows have more than the {most // 1_000_000} MB allowed",
                    hint="ask for fewer rows or columns, or for a file: format=arrow",
                )
            batches.append(batch)
            if sum(waiting.nbytes for waiting in batches) > _PIECE_BYTES:
                pieces.append(_copied(batches))
                batches.clear()
        if batches:
            pieces.append(_copied(batches))
        return pa.Table.from_batches(pieces, reader.schema)


def _copied(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with memory for just its rows: what DuckDB hands over has room for far more.

    The memory is the C library's: Arrow's own pool keeps what another thread freed.
    """
    pool = pa.system_memory_pool()
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(column, pool) for column in columns], schema=batches[0].schema)


@contextmanager
def store_faults(deed: str) -> Iterator[None]:
    """Tell a store in trouble as TurnoutError; `deed` is what was tried, such as `read`."""
    try:
        yield
    except tuple(kind for kind, _ in _UNAVAILABLE) as error:
        log.error("the store cannot be %s: %s", deed, error)
        reason = next(text for kind, text in _UNAVAILABLE if isinstance(error, kind))
        raise TurnoutError(
            code="store_unavailable",
            message=f"the live store cannot be {deed} now: {reason}",
            hint="try again soon; the log of the server has the details",
        ) from error


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One relation of the catalog: what to select from, and its columns, hidden ones apart."""

    name: str
    schema: str
    generation: int
    source: str
    columns: Mapping[str, ColumnType]
    hidden: frozenset[str]


class Snapshot:
    """One read transaction: catalog, versions and rows of one moment."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self.cursor = cursor
        """For statements over the `source` of tables."""
        self.published, self.candidate = published_generations(cursor)

    @cached_property
    def _catalog(self) -> Mapping[tuple[str, str], Mapping[str, str]]:
        found: dict[tuple[str, str], dict[str, str]] = {}
        for schema, table, column, duckdb_type in self.cursor.execute(_CATALOG).fetchall():
            found.setdefault((schema, table), {})[column] = duckdb_type
        return found

    @property
    def names(self) -> list[str]:
        return [table for schema, table in self._catalog if schema == "main"]

    def table(self, name: str) -> StoredTable:
        """The table of that name, or of `NAME@generation`."""
        if ("main", name) in self._catalog:
            # The table behind the name: only tables have row ids.
            own = f"g{self.published}"
            return self._described(name, own if (own, name) in self._catalog else "turnout", name, self.published)
        plain, number = split_name(name)
        if number is not None and (found := self.of_generation(plain, number)) is not None:
            return found
        raise self._unknown(name)

    @property
    def living(self) -> list[int]:
        """All generations that have tables."""
        return sorted({int(schema[1:]) for schema, _ in self._catalog if re.fullmatch("g[0-9]+", schema)})

    def of_generation(self, name: str, generation: int) -> StoredTable | None:
        """A table of a generation, published or not; None where it has none of that name.

        Clients do not read a generation's bookkeeping.
        """
        schema = f"g{generation}"
        if (schema, name) not in self._catalog or name.partition(":")[0] in BOOKS_OF_GENERATION:
            return None
        return self._described(f"{name}@{generation}", schema, name, generation)

    def prepare(self, window: Window) -> tuple[StoredTable, int]:
        """The window's table and the number of rows that its `where` keeps, everything else checked."""
        table = self.table(window.table)
        for name in window.columns or ():
            known_column(name, table.columns, "columns", "bad_columns")
        compile_sort(window.sort, table.columns)
        return table, self.count(table, *compile_where(window.where, table.columns))

    def newest_record(self) -> int | None:
        """The time of the newest Kafka record that is shown, in milliseconds since 1970."""
        dated = [name for name in self.names if "_ts" in self._catalog["main", name]]
        if not dated:
            return None
        parts = " UNION ALL ".join(f"SELECT max(_ts) AS ms FROM main.{quoted(name)}" for name in dated)
        found: int | None = self.cursor.execute(f"SELECT max(ms) FROM ({parts})").fetchall()[0][0]
        return found

    def count(self, table: StoredTable, condition: str = "TRUE", parameters: Sequence[object] = ()) -> int:
        return scalar(self.cursor, f"SELECT count(*) FROM {table.source} WHERE {condition}", parameters)

    def select(
        self, table: StoredTable, window: Window, total: int, extra: Sequence[str] = ()
    ) -> duckdb.DuckDBPyRelation:
        """The window's rows; `total` is how many its `where` keeps."""
        condition, parameters = compile_where(window.where, table.columns)
        order = compile_sort(window.sort, table.columns, identity.ties(table.hidden))
        columns = ", ".join([*(quoted(column.name) for column in chosen_columns(table, window)), *extra])
        order = f" ORDER BY {order}" if order else ""
        found = f"FROM {table.source} WHERE {condition}"
        if window.limit is None:
            return self.cursor.sql(f"SELECT {columns} {found}{order} OFFSET ?", params=[*parameters, window.offset])
        # Rows by their ids: the sort then carries none of the columns that are only shown, which takes a third of the
        # time in 1M rows.
        near, bounds, above = self._near(table, window, total)
        ids = f"SELECT {_ROWID} {found} AND {near}{order} LIMIT ? OFFSET ?"
        text = f"SELECT {columns} FROM {table.source} WHERE {_ROWID} IN ({ids}){order}"
        return self.cursor.sql(text, params=[*parameters, *bounds, window.limit, window.offset - above])

    def _near(self, table: StoredTable, window: Window, total: int) -> tuple[str, list[object], int]:
        """A condition that a page far down meets with few other rows, its values, and the number of rows above these.

        It takes two scans of one column instead of a sort of all rows. A sample of the first column of the order tells
        between which values the page lies. Then the rows are counted: where the sample is wrong, all rows are sorted.
        """
        all_rows: tuple[str, list[object], int] = "TRUE", [], 0
        if not window.sort or window.limit is None or not max(_FAR_ROWS, total * _FAR_SHARE) < window.offset < total:
            return all_rows
        condition, parameters = compile_where(window.where, table.columns)
        first, end = window.sort[0], min(total, window.offset + window.limit)
        key, kind = quoted(first.column), table.columns[first.column]
        direction, before, after = ("DESC", ">", "<") if first.descending else ("ASC", "<", ">")
        sampled = f"left({key}, {_SAMPLED_LETTERS})" if kind.name == "string" else key
        # No parameter for the divisor: DuckDB would divide integers of 128 bits.
        rows = self.cursor.execute(
            f"SELECT CAST({sampled} AS VARCHAR) FROM {table.source} WHERE {condition} "
            f"AND hash({_ROWID}) % {max(1, total // _SAMPLED_ROWS)} = 0 ORDER BY {sampled} {direction} NULLS LAST",
            parameters,
        ).fetchall()
        # Four standard deviations of a row's place in the sample.
        spread = 2 * len(rows) ** 0.5
        top, bottom = (int(at / total * len(rows) + far) for at, far in ((window.offset, -spread), (end, spread)))
        value, above, below = f"CAST(? AS {kind.duckdb})", "FALSE", "FALSE"
        bounds: list[object] = []
        if 0 <= top < len(rows):
            above = f"({key} {before} {value}) IS TRUE" if rows[top] != (None,) else f"{key} IS NOT NULL"
            bounds += [text for text in rows[top] if text is not None]
        upper = len(bounds)
        if bottom < len(rows) and rows[bottom] != (None,):
            below = f"({key} {after} {value}) IS NOT FALSE"
            bounds += rows[bottom]
        near = f"NOT {above} AND NOT {below}"
        counts = f"SELECT count(*) FILTER ({above}), count(*) FILTER ({near}) FROM {table.source} WHERE {condition}"
        rows_above, rows_near = self.cursor.execute(counts, [*bounds[:upper], *bounds, *parameters]).fetchall()[0]
        return (near, bounds, rows_above) if rows_above <= window.offset <= end <= rows_above + rows_near else all_rows

    def version(self, table: StoredTable) -> int:
        """How often the table changed; a generation counts its own tables, the rest is counted for all."""
        # max() also answers where no change was counted yet.
        text = f"SELECT coalesce(max(version), 0) FROM {table.schema}.versions WHERE name = ?"
        return scalar(self.cursor, text, [split_name(table.name)[0]])

    def position(self, table: StoredTable) -> Position:
        return Position(table.generation, self.version(table))

    def _described(self, name: str, schema: str, relation: str, generation: int) -> StoredTable:
        columns, casts, hidden = {}, [], set()
        for column, duckdb_type in self._catalog[schema, relation].items():
            if column.startswith("_"):
                hidden.add(column)
                continue
            columns[column] = _type(duckdb_type)
            if columns[column].duckdb != duckdb_type:
                casts.append(f"CAST({quoted(column)} AS {columns[column].duckdb}) AS {quoted(column)}")
        replaced = f" REPLACE ({', '.join(casts)})" if casts else ""
        # A generation's own table keeps rows that newer ones cover.
        shown = " WHERE _shown" if "_shown" in hidden else ""
        row = "" if identity.ROW in hidden else f", CAST(_id AS VARCHAR) AS {identity.ROW}"
        source = f"(SELECT *{replaced}{row}, rowid AS {_ROWID} FROM {schema}.{quoted(relation)}{shown})"
        return StoredTable(name, schema, generation, source, columns, frozenset(hidden))

    def _unknown(self, name: str) -> TurnoutError:
        generations = self.living
        hint = f"{suggestion(split_name(name)[0], self.names)}tables: {', '.join(self.names)}"
        if generations:
            hint += f"; of a generation as NAME@{generations[-1]} (living: {', '.join(map(str, generations))})"
        return TurnoutError(code="unknown_table", message=f"no table {show(name)}", hint=hint)


def split_name(name: str) -> tuple[str, int | None]:
    """`final_ui@7` as its two parts."""
    found = _OF_GENERATION.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, None)


@contextmanager
def open_snapshot(database: Readable) -> Iterator[Snapshot]:
    with store_faults("read"), database.read() as cursor:
        # Arrow carries the session's zone into every file; it must not be that of the machine.
        cursor.execute("SET TimeZone = 'UTC'")
        yield Snapshot(cursor)


def _type(duckdb_type: str) -> ColumnType:
    """A type that no source can declare is shown as text."""
    try:
        return ColumnType.parse(ColumnType.from_duckdb(duckdb_type))
    except ValueError:
        return ColumnType.parse("string")


def chosen_columns(table: StoredTable, window: Window | None = None) -> tuple[Column, ...]:
    names = table.columns if window is None or window.columns is None else window.columns
    return tuple(Column(name, table.columns[name].name) for name in names)
