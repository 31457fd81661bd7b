"""The difference of a table between two generations: how many rows each change concerns, and a window of these.

Rows that are equal in all compared columns are the same, each as often as both tables have it. The others are paired
within their key: the most alike first, where a key has at most `MAX_ALIKE` of them on a side, else in the order of
their columns. A pair is a changed row; what has no partner was added or removed. All of it is SQL in one transaction,
over temporary tables of the rows that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.nearest import suggestion
from turnout.plan.offsets import Offsets
from turnout.plan.position import Position
from turnout.plan.sql_text import quoted
from turnout.plan.where import compile_sort, compile_where, known_column
from turnout.store.database import Readable, stored_offsets_sql
from turnout.store.identity import ROW
from turnout.store.outgoing import BOOK
from turnout.store.query.windows import STREAM_BATCH_ROWS, Snapshot, StoredTable, Window, collected, open_snapshot
from turnout.store.row_json import equal_in_json, json_sql
from turnout_client.column_types import ColumnType

MAX_ALIKE = 8
"""Differing rows of one key on a side that are compared with all of the other side."""

CHANGES = ("added", "removed", "changed")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "bad_records": ("topic", "partition", "offset", "field"),
    "join_quality": ("view",),
}
"""What rows of tables without a key are matched by."""


@dataclass(frozen=True, slots=True)
class DifferenceQuestion:
    """What to compare; a row is kept where its old or its new cells fulfil `where`.

    Without generations, the published one is compared with the candidate.
    """

    window: Window
    from_generation: int | None = None
    to_generation: int | None = None
    change: str | None = None
    """One of `CHANGES`, if only its rows are wanted."""

    def generations(self, published: int, candidate: int | None) -> tuple[int, int | None]:
        """What is compared while these are published and the candidate."""
        before, after = self.from_generation, self.to_generation
        return published if before is None else before, candidate if after is None else after


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column that both tables have; `changed` counts the changed rows in which it differs."""

    name: str
    type: str
    changed: int


@dataclass(frozen=True, slots=True)
class DifferenceResult:
    """Two tables of one moment. `total` counts all differences of the wanted changes, not only those in `rows`.

    `rows` has a column `change`, then those of the old rows as `from.NAME` and those of the new rows as `to.NAME`.
    """

    table: str
    positions: tuple[Position, Position]
    lags: tuple[int | None, int | None]
    """The records that each generation had not read when the ends of its topics were last measured, if they were."""
    counts: Mapping[str, int]
    total: int
    key: tuple[str, ...]
    columns: tuple[ComparedColumn, ...]
    only_from: tuple[str, ...]
    """The columns that only the old table has, or has with another type."""
    only_to: tuple[str, ...]
    missing: str | None
    """`from` or `to`: the generation that has no such table."""
    sinks: Mapping[str, int]
    """The records that each sink of the table would write if the new generation were published instead of the old."""
    rows: pa.Table | pa.RecordBatchReader


def read_difference(database: Readable, asked: DifferenceQuestion) -> DifferenceResult:
    """The difference, with its rows in memory."""
    with _compared(database, asked) as (result, selected):
        return replace(result, rows=collected(selected, database, asked.window, None))


@contextmanager
def open_difference(database: Readable, asked: DifferenceQuestion) -> Iterator[DifferenceResult]:
    """The difference, with its rows as a stream for the time of the block; see `open_window`."""
    with _compared(database, asked) as (result, selected), selected.to_arrow_reader(STREAM_BATCH_ROWS) as rows:
        yield replace(result, rows=rows)


@contextmanager
def _compared(
    database: Readable, asked: DifferenceQuestion
) -> Iterator[tuple[DifferenceResult, duckdb.DuckDBPyRelation]]:
    """The result without rows, and the statement that gives them."""
    window = asked.window
    with open_snapshot(database) as snapshot:
        numbers = _generations(snapshot, asked)
        found = [snapshot.of_generation(window.table, number) for number in numbers]
        known = found[1] or found[0]
        if known is None:
            raise _unknown_table(window.table, snapshot, numbers)
        nothing = replace(known, source=f"(SELECT * FROM {known.source} WHERE false)")
        before, after = (
            one or replace(nothing, schema=f"g{number}", generation=number)
            for one, number in zip(found, numbers, strict=True)
        )
        comparison = _Comparison(snapshot, before, after, asked)
        comparison.pair()
        sinks = database.sinks.writing(window.table)
        records = comparison.sink_records() if sinks and found[1] else 0
        counts, columns = comparison.counts()
        result = DifferenceResult(
            table=window.table,
            positions=(snapshot.position(before), snapshot.position(after)),
            lags=(_lag(snapshot, numbers[0], database.ends), _lag(snapshot, numbers[1], database.ends)),
            counts=counts,
            total=sum(counts[change] for change in ([asked.change] if asked.change else CHANGES)),
            key=comparison.key,
            columns=columns,
            only_from=tuple(name for name in before.columns if name not in comparison.columns),
            only_to=tuple(name for name in after.columns if name not in comparison.columns),
            missing=None if all(found) else "to" if found[0] else "from",
            sinks=dict.fromkeys(sinks, records),
            rows=pa.table({}),
        )
        yield result, comparison.select()


class _Comparison:
    """The SQL of one comparison. `f` is the old row of a pair and `t` the new one; their `_n` is the same."""

    def __init__(self, snapshot: Snapshot, before: StoredTable, after: StoredTable, asked: DifferenceQuestion) -> None:
        self._snapshot = snapshot
        self._run = snapshot.cursor.execute
        self._tables = before, after
        self._window = window = asked.window
        self._change = asked.change
        both = {name: kind for name, kind in after.columns.items() if before.columns.get(name) == kind}
        if not both:
            message = f"{window.table}: generations {before.generation} and {after.generation} have no column in common"
            raise TurnoutError("bad_parameter", message, "read both tables by their rows: NAME@7")
        self.columns: Mapping[str, ColumnType] = both
        for term in window.where:
            if term.column == ROW:
                known_column(ROW, both, "where", "bad_where")
        self._condition, self._values = compile_where(window.where, both)
        self._cells = ", ".join(map(quoted, both))
        old, new = (self._key_of(table) for table in (before, after))
        self._keys = old or new or "", new or old or ""
        key = _KEYS.get(window.table) or self._keys[1:]
        # Without a key that both have, only equal rows belong together.
        self.key = key if set(key) <= both.keys() else tuple(both)
        self._order = compile_sort(window.sort, both, [*self.key, "_fn", "_tn"])

    def pair(self) -> None:
        """Make `_differing`: each row that differs, `_old` or not, with a number that only its partner shares."""
        cells, (old, new) = self._cells, (table.source for table in self._tables)
        self._run(
            f"CREATE TEMP TABLE _uneven AS SELECT {cells}, sum(_side) AS _more FROM "
            f"(SELECT {cells}, 1 AS _side FROM {old} UNION ALL SELECT {cells}, -1 FROM {new}) "
            f"GROUP BY {cells} HAVING sum(_side) <> 0"
        )
        again = "SELECT u.* FROM _uneven AS u, range(CAST(abs(_more) AS BIGINT) - 1) WHERE abs(_more) > 1"
        key = ", ".join(map(quoted, self.key))
        self._run(
            f"CREATE TEMP TABLE _differing AS SELECT {cells}, _more > 0 AS _old, "
            f"coalesce({self._condition}, false) AS _kept, "
            f"row_number() OVER (PARTITION BY {key}, _more > 0 ORDER BY {cells}) AS _n "
            f"FROM (FROM _uneven UNION ALL ({again}))",
            self._values,
        )
        self._run("DROP TABLE _uneven")
        self._pair_alike(key)

    def _pair_alike(self, key: str) -> None:
        """Number the new rows of keys with several by their most alike old rows.

        In each round the pairs come together that are the best for both; so the best of all do, as long as there are.
        """
        unlike = " + ".join(
            f"CAST(f.{name} IS DISTINCT FROM t.{name} AS INTEGER)" for name in map(quoted, self.columns)
        )
        several = f"max(_n) BETWEEN 2 AND {MAX_ALIKE} AND bool_or(_old) AND NOT bool_and(_old)"
        [(left,)] = self._run(
            f"CREATE TEMP TABLE _alike AS SELECT f.rowid AS _f, t.rowid AS _t, f._n AS _n, "
            f"(({unlike}) * {MAX_ALIKE + 1} + f._n) * {MAX_ALIKE + 1} + t._n AS _rank "
            f"FROM (SELECT {key} FROM _differing GROUP BY {key} HAVING {several}) AS k "
            f"JOIN _differing AS f ON f._old AND {_equal('k', 'f', self.key)} "
            f"JOIN _differing AS t ON NOT t._old AND {_equal('f', 't', self.key)}"
        ).fetchall()
        if not left:
            return
        self._run("UPDATE _differing SET _n = -_n WHERE rowid IN (SELECT _t FROM _alike)")
        self._run("CREATE TEMP TABLE _best (_f BIGINT, _t BIGINT, _n BIGINT)")
        best = "min(_rank) OVER (PARTITION BY _f) = _rank AND min(_rank) OVER (PARTITION BY _t) = _rank"
        taken = "_f IN (SELECT _f FROM _best) OR _t IN (SELECT _t FROM _best)"
        while left:
            self._run(f"INSERT INTO _best SELECT _f, _t, _n FROM _alike QUALIFY {best}")
            left -= self._run(f"DELETE FROM _alike WHERE {taken}").fetchall()[0][0]
        self._run("UPDATE _differing SET _n = b._n FROM _best AS b WHERE _differing.rowid = b._t")

    def counts(self) -> tuple[Mapping[str, int], tuple[ComparedColumn, ...]]:
        """The rows of each change, and the changed rows of each column."""
        both = "f._n IS NOT NULL AND t._n IS NOT NULL"
        changed = [f"{both} AND f.{name} IS DISTINCT FROM t.{name}" for name in map(quoted, self.columns)]
        counted = [f"count(*) FILTER (WHERE {one})" for one in ("f._n IS NULL", "t._n IS NULL", both, *changed)]
        [(added, removed, pairs, *cells)] = self._run(f"SELECT {', '.join(counted)} FROM {self._pairs}", []).fetchall()
        old = f"SELECT count(*) FROM {self._tables[0].source} WHERE {self._condition}"
        [(same,)] = self._run(
            f"SELECT ({old}) - count(*) FROM _differing WHERE _old AND _kept", self._values
        ).fetchall()
        columns = zip(self.columns.items(), cells, strict=True)
        return (
            {"added": added, "removed": removed, "changed": pairs, "same": same},
            tuple(ComparedColumn(name, kind.name, count) for (name, kind), count in columns),
        )

    def select(self) -> duckdb.DuckDBPyRelation:
        """The rows of the window; a removed row is sorted by its old values, any other by its new ones."""
        names = [quoted(name) for name in self.columns]
        pairs = [f"f.{name} AS _f{at}, t.{name} AS _t{at}" for at, name in enumerate(names)]
        sorted_by = [f"CASE WHEN t._n IS NULL THEN f.{name} ELSE t.{name} END AS {name}" for name in names]
        change = "CASE WHEN f._n IS NULL THEN 'added' WHEN t._n IS NULL THEN 'removed' ELSE 'changed' END"
        shown = [
            f"_{s[0]}{at} AS {quoted(f'{s}.{name}')}" for s in ("from", "to") for at, name in enumerate(self.columns)
        ]
        text = (
            f"SELECT _change AS change, {', '.join(shown)} FROM "
            f"(SELECT {change} AS _change, f._n AS _fn, abs(t._n) AS _tn, {', '.join([*pairs, *sorted_by])} "
            f"FROM {self._pairs}) WHERE _change = coalesce(?, _change) ORDER BY {self._order}"
        )
        limit = [] if self._window.limit is None else [self._window.limit]
        asked = [self._change, *limit, self._window.offset]
        return self._snapshot.cursor.sql(f"{text} {'LIMIT ? ' * len(limit)}OFFSET ?", params=asked)

    def sink_records(self) -> int:
        """How many records a sink writes for the swap: of row ids that are new or gone, or have another JSON."""
        old, new = self._tables
        named_alike = list(old.columns) == list(new.columns)
        names = [self._keys, *((name, name) for name in new.columns if named_alike)]
        cells = [self._record_cell(*both) for both in names]
        sides = [
            f"(SELECT {ROW}, {', '.join(f'{both[at]} AS _c{number}' for number, both in enumerate(cells))} "
            f"FROM {table.source})"
            for at, table in enumerate(self._tables)
        ]
        same = [f"f._c{number} IS NOT DISTINCT FROM t._c{number}" for number in range(len(cells))]
        unchanged = " AND ".join([f"f.{ROW} = t.{ROW}", *same]) if named_alike else "false"
        text = f"SELECT count(*) FROM {sides[0]} AS f FULL JOIN {sides[1]} AS t ON f.{ROW} = t.{ROW} AND {same[0]}"
        [(records,)] = self._run(f"{text} WHERE ({unchanged}) IS NOT TRUE").fetchall()
        return int(records)

    def _record_cell(self, old: str, new: str) -> tuple[str, str]:
        """The SQL of a cell in both tables, which is equal where its JSON is."""
        names, kinds = (quoted(old), quoted(new)), (self._tables[0].columns[old], self._tables[1].columns[new])
        if kinds[0] == kinds[1] and equal_in_json(kinds[0]):
            return names
        first, second = (f"CAST(to_json({json_sql(*one)}) AS VARCHAR)" for one in zip(names, kinds, strict=True))
        return first, second

    @property
    def _pairs(self) -> str:
        """All pairs and rows without a partner that `where` keeps, to be selected from."""
        return (
            f"(FROM _differing WHERE _old) AS f FULL JOIN (FROM _differing WHERE NOT _old) AS t "
            f"ON f._n = t._n AND {_equal('f', 't', self.key)} WHERE f._kept OR t._kept"
        )

    def _key_of(self, table: StoredTable) -> str | None:
        found = self._run(f"SELECT key FROM {table.schema}.{BOOK} WHERE name = ?", [self._window.table]).fetchall()
        return found[0][0] if found else None


def _lag(snapshot: Snapshot, generation: int, ends: Offsets) -> int | None:
    read = Offsets.from_json(snapshot.cursor.execute(stored_offsets_sql(generation)).fetchall()[0][0])
    known = Offsets({place: end for place, end in ends.next.items() if place in read.next})
    return read.behind(known) if read.next.keys() == known.next.keys() != set() else None


def _equal(one: str, other: str, columns: Sequence[str]) -> str:
    return " AND ".join(f"{one}.{name} IS NOT DISTINCT FROM {other}.{name}" for name in map(quoted, columns))


def _generations(snapshot: Snapshot, asked: DifferenceQuestion) -> tuple[int, int]:
    """The numbers of the two generations, which live."""
    before, after = asked.generations(snapshot.published, snapshot.candidate)
    living = ", ".join(map(str, snapshot.living))
    if after is None:
        hint = f"build one by a message with `publish: false`, or name a generation as `to` (living: {living})"
        raise TurnoutError("no_candidate", "there is no candidate to compare with what is shown", hint)
    for name, number in (("from", before), ("to", after)):
        if number not in snapshot.living:
            message = f"{name}: generation {number} does not live"
            raise TurnoutError("unknown_generation", message, f"name one that does: {living}")
    if before == after:
        message = f"from and to are both generation {before}"
        raise TurnoutError("bad_parameter", message, f"name two that live: {living}")
    return before, after


def _unknown_table(name: str, snapshot: Snapshot, generations: Sequence[int]) -> TurnoutError:
    known = [table for table in snapshot.names if any(snapshot.of_generation(table, one) for one in generations)]
    hint = f"{suggestion(name, known)}tables: {', '.join(known)}"
    words = " and ".join(map(str, generations))
    return TurnoutError("unknown_table", f"generations {words} have no table {show(name)}", hint)
