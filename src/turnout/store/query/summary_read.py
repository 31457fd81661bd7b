"""Summaries of a table: read at once, or kept up to date by the rows that each batch removed and added.

Kept groups are merged with changed rows in a small DuckDB beside the store, by the same SQL that reads them, so both
are the same numbers. Where changed rows do not tell (the last row with the greatest value has gone, percentiles), the
table is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.store.database import Readable, registered
from turnout.store.feed import MAX_DELTA_ROWS, Delta
from turnout.store.query.summary import RECORD_TIME, Summary, bad
from turnout.store.query.summary_sql import RECORD_MS, SIGN, TOTAL, Statement, compile_summary
from turnout.store.query.windows import Column, open_snapshot

MAX_GROUPS = 100_000
"""More groups than that are a mistake: nobody reads them, and each costs memory in the store."""

MAX_KEPT_GROUPS = 10_000


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """Groups of one moment; `total` counts all of them, not only these."""

    table: str
    generation: int
    version: int
    by: tuple[str, ...]
    columns: tuple[Column, ...]
    groups: pa.Table
    total: int


@dataclass(frozen=True, slots=True)
class KeptGroups:
    """All groups of a summary with their parts, as they were at one position of its table."""

    summary: Summary
    statement: Statement
    position: tuple[int, int]
    groups: pa.Table


def keepable(summary: Summary) -> bool:
    """Whether changed rows can tell what becomes of it: they have no times of records."""
    functions = {value.function for value in summary.values}
    return functions <= {"count", "sum", "avg", "min", "max"} and all(g.column != RECORD_TIME for g in summary.by)


def columns_of(summary: Summary) -> frozenset[str]:
    """The columns that a row is counted by."""
    values = (value.column for value in summary.values if value.column is not None)
    return frozenset([*(group.column for group in summary.by), *values, *(term.column for term in summary.where)])


def read_summary(database: Readable, summary: Summary) -> SummaryResult:
    """What is shown, of one moment."""
    with open_snapshot(database) as snapshot:
        table = snapshot.table(summary.table)
        statement = compile_summary(summary, table.columns, RECORD_MS in table.hidden)
        text = statement.show(f"({statement.read(table.source)})")
        try:
            found = snapshot.query(text, statement.parameters).to_arrow_table()
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            raise _too_large() from error
        return _result(summary, statement, (table.generation, snapshot.version(table)), found)


def read_groups(database: Readable, summary: Summary) -> KeptGroups | None:
    """All groups, of one moment, to be kept; None where they are too many, or cannot be kept exactly."""
    with open_snapshot(database) as snapshot:
        table = snapshot.table(summary.table)
        statement = compile_summary(summary, table.columns, RECORD_MS in table.hidden)
        text = f"{statement.read_kept(table.source)} LIMIT {MAX_KEPT_GROUPS + 1}"
        try:
            groups = snapshot.query(text, statement.parameters).to_arrow_table()
        except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            raise _too_large() from error
        if groups.num_rows > MAX_KEPT_GROUPS or not _is_sure(statement, groups):
            return None
        return KeptGroups(summary, statement, (table.generation, snapshot.version(table)), groups)


class SummaryQueries(threading.local):
    """Calculations on kept groups; a database for each thread, so that none waits."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})
        self._connection.execute("SET TimeZone = 'UTC'")
        self._loaded: tuple[Delta, ...] = ()

    def show(self, kept: KeptGroups) -> SummaryResult:
        with registered(self._connection, kept=kept.groups):
            try:
                found = self._connection.execute(kept.statement.show("kept")).to_arrow_table()
            except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
                raise _too_large() from error
        return _result(kept.summary, kept.statement, kept.position, found)

    def advance(self, kept: KeptGroups, deltas: Sequence[Delta], position: tuple[int, int]) -> KeptGroups | None:
        """The groups after some changes; None where the table has to be read."""
        if sum(delta.size for delta in deltas) > MAX_DELTA_ROWS:
            return None
        self._load(tuple(deltas))
        statement = kept.statement
        with registered(self._connection, kept=kept.groups):
            try:
                text = statement.merge("kept", "changed")
                groups = self._connection.execute(text, statement.parameters).to_arrow_table()
            except (duckdb.ConversionException, duckdb.OutOfRangeException):
                return None
        return KeptGroups(kept.summary, statement, position, groups) if _is_sure(statement, groups) else None

    def _load(self, deltas: tuple[Delta, ...]) -> None:
        """Changed rows as a table of DuckDB: all summaries of a table use the same, and read it much faster."""
        if len(deltas) == len(self._loaded) and all(map(lambda a, b: a is b, deltas, self._loaded)):
            return
        known = set.intersection(*(set(delta.removed.column_names) for delta in deltas))
        names = sorted(name for name in known if not name.startswith("_"))
        rows = pa.concat_tables(
            side.select(names).append_column(SIGN, pa.repeat(pa.scalar(sign, pa.int64()), side.num_rows))
            for delta in deltas
            for side, sign in ((delta.removed, -1), (delta.added, 1))
        )
        with registered(self._connection, coming=rows):
            self._connection.execute("CREATE OR REPLACE TABLE changed AS FROM coming")
        self._loaded = deltas


def _is_sure(statement: Statement, groups: pa.Table) -> bool:
    """Whether all parts are known: each end still has a row, and all values were added exactly."""
    # Null: there is no value.
    least = (pc.min(groups[f"k{number}"]).as_py() for number in statement.ends)
    unsure = (pc.max(groups[name]).as_py() for name in statement.unsure)
    return all(count is None or count > 0 for count in least) and not any(unsure)


def _result(summary: Summary, statement: Statement, position: tuple[int, int], found: pa.Table) -> SummaryResult:
    total = found.column(TOTAL)[0].as_py() if found.num_rows else 0
    if total > MAX_GROUPS:
        raise bad(
            "by",
            f"{total} groups, more than {MAX_GROUPS}",
            "group by a column with fewer values, or in wider bins; or use `where`",
            "too_many_groups",
        )
    columns = tuple(Column(name, kind.name) for name, kind in statement.columns.items())
    groups = found.drop_columns([TOTAL]).rename_columns([column.name for column in columns])
    by = tuple(group.name for group in summary.by)
    return SummaryResult(summary.table, *position, by, columns, groups, total)


def _too_large() -> Exception:
    return bad("values", "a sum does not fit its type", "use avg, or a filter that leaves fewer or smaller numbers")
