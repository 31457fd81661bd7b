"""Summaries of a table: read at once, or kept up to date by the rows that each batch removed and added.

Kept groups are merged with changed rows in a small DuckDB beside the store, by the same SQL that reads them, so both
are the same numbers. Where changed rows do not tell (the last row with the greatest value has gone, percentiles), the
table is read again.
"""

from __future__ import annotations

import itertools
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
from turnout.store.query.summary_sql import (
    MOST_KEPT,
    RECORD_MS,
    ROWS,
    SIGN,
    TOTAL,
    End,
    Statement,
    compile_summary,
    named,
    ordered,
)
from turnout.store.query.window_rows import SmallDatabase, wanted_columns
from turnout.store.query.windows import Column, open_snapshot

MAX_GROUPS = 100_000
"""More groups than that are a mistake: nobody reads them, and each costs memory in the store."""

MAX_KEPT_GROUPS = 10_000

NUMBER = "_number"
"""The column that tells groups of several summaries apart."""

_DOES_NOT_FIT = (duckdb.ConversionException, duckdb.OutOfRangeException)


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """Groups of one moment; `total` counts all of them, not only these."""

    table: str
    position: Position
    by: tuple[str, ...]
    columns: tuple[Column, ...]
    groups: pa.Table
    total: int


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
            found = arrow_table(snapshot.cursor, text, statement.parameters)
        return _result(summary, statement, snapshot.position(table), *_totalled(found))


def read_groups(database: Readable, summary: Summary) -> KeptGroups | None:
    """All groups, of one moment, to be kept; None where they are too many, or cannot be kept exactly."""
    with open_snapshot(database) as snapshot:
        table = snapshot.table(summary.table)
        statement = compile_summary(summary, table.columns, RECORD_MS in table.hidden)
        text = f"{statement.read_kept(table.source)} LIMIT {MAX_KEPT_GROUPS + 1}"
        with _sum_faults():
            groups = arrow_table(snapshot.cursor, text, statement.parameters)
        if groups.num_rows > MAX_KEPT_GROUPS or not _is_sure(statement, groups):
            return None
        columns = frozenset([*_counted_by(summary), *term_columns(summary.where, table.columns)])
        position = snapshot.position(table)
        return KeptGroups(summary, statement, columns, position, groups)


class Merge:
    """One query that merges changed rows into the kept groups of several summaries: planning takes most of a small one.

    Columns that a summary does not have are null in its groups.

    An example: `by=kind, values=count,max(balance)` over 12 rows of gold. The kept group has the number of rows, and of
    the end `max` the ten greatest values with their *bound*, the last value up to which none is missing:

        gold: rows 12, values [90, 80, 80, 70, 60, 50, 40, 30, 20, 10], bound 10     (two smaller values are not kept)

    A batch removes the rows with 90 and 80, and adds one with 85. Changed rows are groups of their own, with a sign:

        came: rows +1, [85]        went: rows -2, [90, 80]

    `_gathered` puts the three lists beside each other, `_pooled` joins what was kept and what came, `_near` cuts at the
    bound, `_left` takes away as many of equal values as went, and `_kept` has the result:

        gold: rows 11, values [85, 80, 70, 60, 50, 40, 30, 20, 10], bound 10

    Had all values down to the bound gone, the two smaller ones would be the greatest, and nobody knows them: the end is
    *lost*, and the table is read again.
    """

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements
        self.names: dict[str, None] = {}
        for one in statements:
            self.names.update(dict.fromkeys([*one.groups, *one.parts]))
            self.names.update(dict.fromkeys(name for end in one.ends for name in (end.values, end.bound)))
        texts = dict.fromkeys(text for one in statements for text in one.shown)
        self.shown = {text: f"c{number}" for number, text in enumerate(texts)}

    def sql(self, kept: str, changed: str, cells: Mapping[str, str]) -> tuple[str, list[object]]:
        """Groups as of `read_kept`, those of the first summary first, with what is shown of them; its parameters.

        `cells` are the columns of `changed` that have the SQL of rows.
        """
        rows = [f"SELECT {', '.join([NUMBER, f'0 AS {SIGN}', *self.names])} FROM {kept}"]
        for number, one in enumerate(self._statements):
            made = {name: cells[text] for name, text in one.of_row.items()}
            columns = [f"{number}", SIGN, *(made.get(name, "NULL") for name in self.names)]
            rows.append(f"SELECT {', '.join(columns)} FROM {changed} WHERE {one.where}")
        parameters = [value for one in self._statements for value in one.parameters]
        return self._shown(f"({' UNION ALL '.join(rows)})"), parameters

    def _shown(self, rows: str) -> str:
        parts = {name: part for one in self._statements for name, part in one.parts.items()}
        ends = dict.fromkeys(end for one in self._statements for end in one.ends)
        groups = dict.fromkeys(name for one in self._statements for name in one.groups)
        made = [NUMBER, *groups]
        made += [f"CAST(sum({name}) AS {part.kind}) AS {name}" for name, part in parts.items() if not part.is_end]
        # A group without rows is none, but where there is only one.
        single = ["-1", *(f"{number}" for number, one in enumerate(self._statements) if not one.groups)]
        some = f"HAVING sum({ROWS}) > 0 OR {NUMBER} IN ({', '.join(single)})"
        text = f"SELECT {', '.join([*made, *map(_gathered, ends)])} FROM {rows} GROUP BY ALL {some}"
        for step in (_pooled, _near, _left, _kept) if ends else ():
            text = f"SELECT {', '.join(['*', *map(step, ends)])} FROM ({text})"
        order = ", ".join(filter(None, [NUMBER, ordered(_common_order(self._statements), self.shown)]))
        return f"SELECT *, {named(self.shown)} FROM ({text}) ORDER BY {order}"


def _gathered(end: End) -> str:
    """Select for a group what was kept of an end, and the values next to it of rows that came and rows that went.

    Of those that went one more than is kept: it tells whether more went than are listed.
    """
    near = f"{end.function}({end.part}"
    return (
        f"any_value({end.values}) AS old_{end.values}, any_value({end.bound}) AS old_{end.bound}, "
        f"{near}, {MOST_KEPT}) FILTER ({SIGN} > 0) AS came_{end.values}, "
        f"{near}, {MOST_KEPT + 1}) FILTER ({SIGN} < 0) AS went_{end.values}"
    )


def _pooled(end: End) -> str:
    """All known values; none is missing up to the nearest bound of the three lists they are from."""
    nearest, direction = ("greatest", "DESC") if end.function == "max" else ("least", "ASC")
    values = end.values
    return (
        f"list_sort(list_concat(old_{values}, came_{values}), '{direction}') AS all_{values}, "
        f"{nearest}(old_{end.bound}, came_{values}[{MOST_KEPT}], went_{values}[{MOST_KEPT + 1}]) AS new_{end.bound}"
    )


def _near(end: End) -> str:
    """Cut both lists, known values and those that went, at the bound.

    That some are missing at the bound does no harm. Where more went than are listed, all values like the last one that
    is listed may have gone.
    """
    sign, last = ">" if end.function == "max" else "<", f"went_{end.values}[{MOST_KEPT + 1}]"
    within = f"(new_{end.bound} IS NULL OR v {sign}= new_{end.bound})"
    sure = f"({last} IS NULL OR v {sign} {last})"
    return (
        f"list_filter(all_{end.values}, lambda v: {within} AND {sure}) AS near_all_{end.values}, "
        f"list_filter(went_{end.values}, lambda v: {within}) AS near_went_{end.values}"
    )


def _left(end: End) -> str:
    """Without those that went: of equal values as many as went. Mostly none did, and the lists are as they are."""
    known, went = f"near_all_{end.values}", f"near_went_{end.values}"
    before = f"len(list_filter({known}[1:i - 1], lambda w: w = v))"
    left = f"list_filter({known}, lambda v, i: {before} >= len(list_filter({went}, lambda w: w = v)))"
    return f"CASE WHEN len({went}) > 0 THEN {left} ELSE {known} END AS left_{end.values}"


def _kept(end: End) -> str:
    """Select what is kept of an end; it is lost where all values went that were known, and there may be others."""
    left = f"left_{end.values}"
    bound = f"CASE WHEN len({left}) > {MOST_KEPT} THEN {left}[{MOST_KEPT}] ELSE new_{end.bound} END"
    return (
        f"{left}[1] AS {end.part}, {left}[1:{MOST_KEPT}] AS {end.values}, {bound} AS {end.bound}, "
        f"coalesce(len({left}), 0) = 0 AND new_{end.bound} IS NOT NULL AS {end.lost}"
    )


def merged_together(statements: Sequence[Statement]) -> list[list[int]]:
    """Divide summaries into those that one `Merge` can take: their groups have to come in one order."""
    found: list[list[int]] = []
    for number in sorted(range(len(statements)), key=lambda number: -len(statements[number].order)):
        one = statements[number]
        for numbers in found:
            common = _common_order([statements[n] for n in numbers])
            if [key for key in common if key[0] in one.groups or not key[0].startswith("g_")] == list(one.order):
                numbers.append(number)
                break
        else:
            found.append([number])
    return found


def _common_order(statements: Sequence[Statement]) -> tuple[tuple[str, bool], ...]:
    """The longest order of all; groups that another summary does not have are null there, and order nothing."""
    return max((one.order for one in statements), key=len)


class SummaryQueries(SmallDatabase):
    """Calculations on kept groups."""

    # Of few rows the planning takes longest, and these steps of it gain nothing there.
    _optimizers_off = "join_order,statistics_propagation,cte_inlining,common_subplan"

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
        numbered = [pa.repeat(pa.scalar(number, pa.int32()), one.groups.num_rows) for number, one in enumerate(kept)]
        groups = [one.groups.add_column(0, NUMBER, column) for one, column in zip(kept, numbered, strict=True)]
        with registered(self._connection, kept=pa.concat_tables(groups, promote_options="default")):
            text, parameters = merge.sql("kept", "changed", cells)
            made = arrow_table(self._connection, text, parameters).combine_chunks()
        numbers = made.column(NUMBER).to_numpy()
        ends = np.searchsorted(numbers, np.arange(len(kept) + 1))
        parts = (made.slice(begin, end - begin) for begin, end in itertools.pairwise(ends))
        return [one.advanced(part, merge.shown, steps) for one, part in zip(kept, parts, strict=True)]


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
    return SummaryResult(summary.table, position, by, columns, groups, total)


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
