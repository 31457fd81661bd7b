"""Summaries of a table: read at once, or kept up to date by the rows that each batch removed and added.

Kept groups are merged with changed rows in a small DuckDB beside the store, by the same SQL that reads them, so both
are the same numbers. Where changed rows do not tell (the last row with the greatest value has gone, percentiles), the
table is read again.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.position import Position
from turnout.plan.where import term_columns
from turnout.store.database import Readable, arrow_table, registered
from turnout.store.feed import MAX_DELTA_ROWS, Delta, Wanted
from turnout.store.identity import ROW
from turnout.store.query.summary import RECORD_TIME, Summary, bad
from turnout.store.query.summary_merge import NUMBER, Merge, merged_together
from turnout.store.query.summary_sql import RECORD_MS, SIGN, TOTAL, Statement, compile_summary
from turnout.store.query.window_rows import wanted_columns
from turnout.store.query.windows import Column, open_snapshot

MAX_GROUPS = 100_000
"""More groups than that are a mistake: nobody reads them, and each costs memory in the store."""

MAX_KEPT_GROUPS = 10_000

_DOES_NOT_FIT = (duckdb.ConversionException, duckdb.OutOfRangeException)


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

    @property
    def position(self) -> Position:
        return Position(self.generation, self.version)


@dataclass(frozen=True, slots=True)
class KeptGroups:
    """All groups of a summary with their parts, as they were at one position of its table."""

    summary: Summary
    statement: Statement
    columns: frozenset[str]
    """The columns that a row is counted by."""
    position: Position
    groups: pa.Table

    def advanced(self, merged: pa.Table, shown: Mapping[str, str], steps: int) -> Advanced | None:
        """With groups as `Merge` answers them, so many versions later; None where they are not sure."""
        lost = any(pc.any(merged[end.lost]).as_py() for end in self.statement.ends)
        if lost or merged.num_rows > MAX_KEPT_GROUPS or not _is_sure(self.statement, merged):
            return None
        position = Position(self.position.generation, self.position.version + steps)
        groups = merged.select(self.groups.column_names)
        kept = replace(self, position=position, groups=groups)
        columns = [shown[text] for text in self.statement.shown]
        first = merged.slice(0, self.statement.limit).select(columns)
        return kept, _result(self.summary, self.statement, kept.position, first, merged.num_rows)


Advanced = tuple[KeptGroups, SummaryResult]
"""Groups after some changes, and what is shown of them."""


def keepable(summary: Summary) -> bool:
    """Whether changed rows can tell what becomes of it: here they have no times of records, and no ids."""
    functions = {value.function for value in summary.values}
    hidden = any(group.column == RECORD_TIME for group in summary.by) or any(t.column == ROW for t in summary.where)
    return functions <= {"count", "sum", "avg", "min", "max"} and not hidden


def wanted(summary: Summary) -> Wanted:
    """What has to be known of rows that go, to keep the summary up to date."""
    return wanted_columns(_counted_by(summary), summary.where)


def _counted_by(summary: Summary) -> list[str]:
    values = (value.column for value in summary.values if value.column is not None)
    return [*(group.column for group in summary.by), *values]


def read_summary(database: Readable, summary: Summary) -> SummaryResult:
    """The first groups of a summary, as they are answered, of one moment."""
    with open_snapshot(database) as snapshot:
        table = snapshot.table(summary.table)
        statement = compile_summary(summary, table.columns, RECORD_MS in table.hidden)
        text = statement.show(f"({statement.read(table.source)})")
        with _sum_faults():
            found = snapshot.relation(text, statement.parameters).to_arrow_table()
        return _result(summary, statement, snapshot.position(table), *_totalled(found))


def read_groups(database: Readable, summary: Summary) -> KeptGroups | None:
    """All groups, of one moment, to be kept; None where they are too many, or cannot be kept exactly."""
    with open_snapshot(database) as snapshot:
        table = snapshot.table(summary.table)
        statement = compile_summary(summary, table.columns, RECORD_MS in table.hidden)
        text = f"{statement.read_kept(table.source)} LIMIT {MAX_KEPT_GROUPS + 1}"
        with _sum_faults():
            groups = snapshot.relation(text, statement.parameters).to_arrow_table()
        if groups.num_rows > MAX_KEPT_GROUPS or not _is_sure(statement, groups):
            return None
        columns = frozenset([*_counted_by(summary), *term_columns(summary.where, table.columns)])
        position = snapshot.position(table)
        return KeptGroups(summary, statement, columns, position, groups)


class SummaryQueries(threading.local):
    """Calculations on kept groups; a database for each thread, so that none waits."""

    @functools.cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """Made for the first summary of a thread: most threads never have one."""
        connection = duckdb.connect(config={"threads": 1})
        connection.execute("SET TimeZone = 'UTC'")
        # Of few rows the planning takes longest, and these steps of it gain nothing there.
        connection.execute("SET disabled_optimizers = 'join_order,statistics_propagation,cte_inlining,common_subplan'")
        return connection

    def show(self, kept: KeptGroups) -> SummaryResult:
        with registered(self._connection, kept=kept.groups), _sum_faults():
            found = arrow_table(self._connection, kept.statement.show("kept"))
        return _result(kept.summary, kept.statement, kept.position, *_totalled(found))

    def advance(self, kept: Sequence[KeptGroups], deltas: Sequence[Delta]) -> list[Advanced | None]:
        """Several summaries after the same changes; None for those whose table has to be read."""
        if sum(delta.size for delta in deltas) > MAX_DELTA_ROWS:
            return [None] * len(kept)
        found: list[Advanced | None] = [None] * len(kept)
        cells = self._load(deltas, kept)
        waiting = merged_together([one.statement for one in kept])
        while waiting:
            numbers = waiting.pop()
            try:
                made = self._merge([kept[number] for number in numbers], len(deltas), cells)
            except _DOES_NOT_FIT:
                # A sum does not fit: alone, each tells whether it is its own. Reading says so to those who asked.
                waiting += [[number] for number in numbers] if len(numbers) > 1 else []
                continue
            for number, one in zip(numbers, made, strict=True):
                found[number] = one
        return found

    def _load(self, deltas: Sequence[Delta], kept: Sequence[KeptGroups]) -> Mapping[str, str]:
        """Changed rows as a table, with a column for each SQL that summaries have of rows: planned once for all."""
        known = set.intersection(*(set(delta.removed.column_names) for delta in deltas))
        names = sorted(name for name in known if not name.startswith("_"))
        rows = pa.concat_tables(
            side.select(names).append_column(SIGN, pa.repeat(pa.scalar(sign, pa.int64()), side.num_rows))
            for delta in deltas
            for side, sign in ((delta.removed, -1), (delta.added, 1))
        )
        texts = dict.fromkeys(text for one in kept for text in one.statement.of_row.values())
        cells = {text: f"_{number}" for number, text in enumerate(texts)}
        made = ", ".join(["*", *(f"{text} AS {name}" for text, name in cells.items())])
        with registered(self._connection, coming=rows):
            self._connection.execute(f"CREATE OR REPLACE TABLE changed AS SELECT {made} FROM coming")
        return cells

    def _merge(self, kept: Sequence[KeptGroups], steps: int, cells: Mapping[str, str]) -> list[Advanced | None]:
        merge = Merge([one.statement for one in kept])
        groups = [_numbered(one.groups, number) for number, one in enumerate(kept)]
        with registered(self._connection, kept=pa.concat_tables(groups, promote_options="default")):
            text, parameters = merge.sql("kept", "changed", cells)
            made = arrow_table(self._connection, text, parameters).combine_chunks()
        numbers = made.column(NUMBER).to_numpy()
        ends = np.searchsorted(numbers, np.arange(len(kept) + 1))
        parts = (made.slice(begin, end - begin) for begin, end in itertools.pairwise(ends))
        return [one.advanced(part, merge.shown, steps) for one, part in zip(kept, parts, strict=True)]


def _numbered(groups: pa.Table, number: int) -> pa.Table:
    return groups.add_column(0, NUMBER, pa.repeat(pa.scalar(number, pa.int32()), groups.num_rows))


def _is_sure(statement: Statement, groups: pa.Table) -> bool:
    """Whether all values were added exactly."""
    return not any(pc.max(groups[name]).as_py() for name in statement.unsure)


def _result(summary: Summary, statement: Statement, position: Position, groups: pa.Table, total: int) -> SummaryResult:
    if total > MAX_GROUPS:
        raise bad(
            "by",
            f"{total} groups, more than {MAX_GROUPS}",
            "group by a column with fewer values, or in wider bins; or use `where`",
            "too_many_groups",
        )
    columns = tuple(Column(name, kind.name) for name, kind in statement.columns.items())
    by = tuple(group.name for group in summary.by)
    groups = groups.rename_columns([column.name for column in columns])
    return SummaryResult(summary.table, position.generation, position.version, by, columns, groups, total)


def _totalled(found: pa.Table) -> tuple[pa.Table, int]:
    """Groups with their total in a column, apart."""
    return found.drop_columns([TOTAL]), found.column(TOTAL)[0].as_py() if found.num_rows else 0


@contextmanager
def _sum_faults() -> Iterator[None]:
    """Convert errors of sums that do not fit their type to TurnoutError."""
    try:
        yield
    except _DOES_NOT_FIT as error:
        hint = "use avg, or a filter that leaves fewer or smaller numbers"
        raise bad("values", "a sum does not fit its type", hint) from error
