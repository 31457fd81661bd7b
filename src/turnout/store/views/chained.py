"""A chain in a batch: its rows share no key, so the touched ones are traced from join to join (`ChainTrace`).

Over many rows each of its steps is done by itself, as a join of two sides in parts that share no value, by files. What
a step gave is the left side of the next: ids in a table of the store, which may go to disk. So no more is in memory
than for any other view.

A row of a chain begins with its *root*: its left row, or, in a right or full join, a right row that nothing matches.
What a root gives depends on the right rows that its values meet, and theirs. So the roots are traced whose way meets a
changed right row, by hashes of the columns that steps join by; all that they give is worked out anew, and takes the
place of what they gave.

A right row is a root while nothing meets its value. Whether anything does is known only where all roots that could meet
it are worked out together: its value is then *closed*. Hashes may bring in rows of other values, and rows that are not
the newest: more is then worked out than was needed, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.chains import number_name
from turnout.plan.joins import KEY, right_id, side
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView, SourceTable, joined_view
from turnout.store.batch_rows import Hashes, Ids, columns_of, hash_names, hash_sql, hashes_of, newest_of, shown_sql
from turnout.store.database import arrow_table, registered, scalar
from turnout.store.identity import key_text, of_source
from turnout.store.left_out import LeftOutState, without
from turnout.store.views.parts import PartRunner, export_joined
from turnout.store.views.view_rows import BatchState, IdRows, OldRows, Rows, quality_change, unambiguous

_VALUES, _IDS = "_chain_values", "_chain_ids"
_NO_HASHES: Hashes = np.array([], np.uint64)
_NO_IDS: Ids = np.array([], np.int64)


class ChainedRows(IdRows[ChainView]):
    """Spark joins a number for each column that steps join by, and ids; the columns are added to the ids it gives."""

    @cached_property
    def _trace(self) -> ChainTrace:
        """The rows that the batch changes; once the rows of all sources are stored."""
        return ChainTrace(self.state, self.view)

    @staticmethod
    def identity_sql(view: ChainView) -> str:
        """The left row, and of each step what tells its right row from others that the same row could have there."""
        parts = [f"CASE WHEN _id IS NULL THEN '' ELSE {of_source(view.left)} END"]
        before = ["_id"]
        for number, (step, right) in enumerate(zip(view.chain.steps, view.rights, strict=True)):
            own, names = right_id(number), view.right_names[number]
            several = step.pairs and not (right.latest and step.right_on == right.key)
            if step.join.hides:
                parts.append("''")
            elif several and right.latest:
                parts.append(f"CASE WHEN {own} IS NULL THEN '' ELSE {key_text(names[right.key])} END")
            elif several:
                parts.append(f"coalesce(CAST({own} AS VARCHAR), '')")
            else:
                # One right row at most; without a row to the left of it, what it is joined by tells it from others.
                alone = f"coalesce({', '.join(before)}, NULL) IS NULL AND {own} IS NOT NULL"
                parts.append(f"CASE WHEN {alone} THEN {key_text(names.get(step.right_on, step.left_on))} ELSE '' END")
            before.append(own)
        return " || ':' || ".join(parts)

    @staticmethod
    def row_hash_sql(view: ChainView) -> str:
        """The hash of what the root is joined by where that is a right row, and null otherwise."""
        cases = ["WHEN _id IS NOT NULL THEN NULL"]
        for number, (step, names) in enumerate(zip(view.chain.steps, view.right_names, strict=True)):
            if not step.join.hides:
                value = hash_sql(quoted(names.get(step.right_on, step.left_on)))
                cases.append(f"WHEN {right_id(number)} IS NOT NULL THEN {value}")
        return f"CASE {' '.join(cases)} END"

    def _is_touched(self) -> bool:
        return self._trace.touched

    def few(self, most: int) -> Rows | None:
        if self.state.whole and self.size() > most:
            return None
        rows = self._all_rows() if self.state.whole else self._trace.rows(most)
        if rows is None:
            return None
        self._hold(rows)
        return self._narrow(rows)

    def _all_rows(self) -> list[pa.Table]:
        rows = super()._all_rows()
        self.state.left_out.count_all(self.view)
        for number, step in enumerate(self.view.chain.steps, 1):
            some = without(rows[number], step.right_on, self.state.left_out.of_step(self.view, number - 1))
            rows[number] = some if step.pairs else newest_of(some, step.right_on)
        return rows

    def _narrow(self, rows: Sequence[pa.Table]) -> Rows:
        """The numbers of what is joined by, and ids."""
        chain, sources = self.view.chain, self.view.sources
        numbers: dict[tuple[int, str], pa.ChunkedArray] = {}
        for domain in chain.domains:
            keys = [rows[at][column] for at, column in domain]
            hashes = [rows[at][sources[at].hash_name(column)] for at, column in domain]
            numbers |= dict(zip(domain, unambiguous(keys, hashes), strict=True))
        return {
            side(at): pa.table(
                {number_name(place): numbers[at, column] for place, column in enumerate(chain.used[at])}
                | {"_id": rows[at]["_id"]}
            )
            for at in range(len(rows))
        }

    def in_parts(self, run: PartRunner) -> Iterable[pa.Table]:
        """Leave the ids in the table `_chain`, step by step; nothing of them is in memory."""
        self._relations = self._all_relations()
        left = self.view.left.source
        if self.state.whole:
            self.state.left_out.count_all(self.view)
        else:
            self._relations = {**self._relations, left: self._trace.roots(self._relations[left])}
        scalar(self.state.cursor, f"CREATE OR REPLACE TEMP TABLE _chain AS SELECT _id FROM {self._relations[left]}")
        for number in range(len(self.view.rights)):
            self._join_step(number, run)
        self.state.cursor.execute("DROP TABLE IF EXISTS _chain_left")
        self.state.cursor.execute("DROP TABLE IF EXISTS _chain_found")
        return ()

    def _join_step(self, number: int, run: PartRunner) -> None:
        """Add the ids of the right side of a step to `_chain`."""
        cursor, step, right = self.state.cursor, self.view.chain.steps[number], self.view.rights[number]
        scalar(cursor, f"CREATE OR REPLACE TEMP TABLE _chain_left AS {self._left_sql(number)}")
        met = (
            f"SELECT {quoted(step.right_on)} AS {quoted(KEY)}, _id, _ts, {right.hash_name(step.right_on)} AS _hash "
            f"FROM {self._relations[right.source]} "
            f"WHERE {self.state.left_out.condition(self.view.step_bound(number), step.right_on)}"
        )
        met = met if self.state.whole else f"FROM ({met}) WHERE {self._trace.needed_rights(number)}"
        kind = right.columns[step.right_on]
        sides = [SourceTable(name, "", "", KEY, {KEY: kind}, latest=False, max_rows=None) for name in ("left", "right")]
        join = joined_view("step", sides, step.join, step.duplicates)
        size = scalar(cursor, f"SELECT (SELECT count(*) FROM _chain_left) + (SELECT count(*) FROM ({met}))")
        below = run.folder / f"step_{number}"
        below.mkdir()
        both = {"left": "_chain_left", "right": f"({met})"}
        sql, files = export_joined(cursor, join, both, below, run.parts(size))
        columns = "_id BIGINT" if step.join.hides else "_id BIGINT, _right_id BIGINT"
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE _chain_found ({columns})")
        for part in run.over(sql, files):
            with registered(cursor, _step_ids=part):
                scalar(cursor, "INSERT INTO _chain_found BY NAME FROM _step_ids")
        own = "" if step.join.hides else f", f._right_id AS {right_id(number)}"
        scalar(
            cursor,
            f"CREATE OR REPLACE TEMP TABLE _chain_next AS "
            f"SELECT x.*{own} FROM _chain_found AS f LEFT JOIN _chain AS x ON x.rowid = f._id",
        )
        cursor.execute("DROP TABLE _chain")
        cursor.execute("ALTER TABLE _chain_next RENAME TO _chain")

    def _left_sql(self, number: int) -> str:
        """What each row of `_chain` is joined by in a step, under its place in that table."""
        view, joined, values = self.view, "_chain AS x", []
        for at, column in view.chain.origins[number]:
            rows, name = self._relations[view.sources[at].source], "_id" if at == 0 else right_id(at - 1)
            joined += f" LEFT JOIN {rows} AS s{at} ON s{at}._id = x.{name}"
            values.append(f"s{at}.{quoted(column)}")
        kind = view.rights[number].columns[view.chain.steps[number].right_on].duckdb
        value = f"coalesce({', '.join(values)}, NULL)" if values else f"CAST(NULL AS {kind})"
        # Rows without a value match nothing, and are in any part.
        hashed = f"CASE WHEN {quoted(KEY)} IS NULL THEN hash(_id) ELSE {hash_sql(quoted(KEY))} END"
        found = f"SELECT {value} AS {quoted(KEY)}, x.rowid AS _id, CAST(0 AS BIGINT) AS _ts FROM {joined}"
        return f"SELECT *, {hashed} AS _hash FROM ({found})"

    def old_rows(self) -> Sequence[OldRows]:
        return [(condition, None) for condition in self._trace.old_rows()]

    def _hashed(self, rows: str) -> str:
        condition = "true" if self.state.whole else self._trace.new_rows()
        return f"FROM ({super()._hashed(rows)}) WHERE {condition}"

    def _fills(self, number: int) -> tuple[str, str] | None:
        step = self.view.chain.steps[number]
        return (step.left_on, step.right_on) if step.fills else None

    def _all_ids(self, given: Iterable[pa.Table]) -> tuple[str, Sequence[str]]:
        shown = [right_id(number) for number, step in enumerate(self.view.chain.steps) if not step.join.hides]
        return "_chain", ["_id", *shown]

    def move_quality(self) -> bool:
        changed = {source.source: self.state.rows.of(source).change for source in self.view.sources}
        moved = False
        for name, sides in self.view.quality_sides.items():
            rows_of_sides = [(source, column, rows) for source, column in sides for rows in changed[source.source]]
            if not any(rows.num_rows for _, _, rows in rows_of_sides):
                continue
            hashes = _union([hashes_of(source, rows, column) for source, column, rows in rows_of_sides])
            keys, before, after = [], [], []
            for source, column in sides:
                there = self._count_values(source, column, hashes)
                gone, came = (rows[column] for rows in changed[source.source])
                kind = there["key"].type
                chunks = [chunk for some in (there["key"], came, gone) for chunk in some.cast(kind).chunks]
                keys.append(pa.chunked_array(chunks, kind))
                counts = there["n"].to_numpy()
                after.append(np.concatenate([counts, np.zeros(len(came) + len(gone), np.int64)]))
                before.append(np.concatenate([counts, np.full(len(came), -1), np.full(len(gone), 1)]))
            moved |= self._add_quality(name, quality_change(keys, before, after))
        return moved

    def _count_values(self, source: SourceTable, column: str, hashes: Hashes) -> pa.Table:
        """The values of a side that have one of these hashes, and how many rows have each; values may repeat."""
        known = self._trace.known(self.view.sources.index(source), column, hashes)
        if known is not None:
            return pa.table({"key": known[column], "n": np.ones(known.num_rows, np.int64)})
        self.state.cursor.register("_touched", {"h": hashes})
        rows = shown_sql(source, f"{self.state.schema}.{quoted(source.table)}")
        near = f"{source.hash_name(column)} IN (SELECT h FROM _touched)"
        counted = f"SELECT {quoted(column)} AS key, count(*) AS n FROM ({rows}) WHERE {near} GROUP BY ALL"
        return arrow_table(self.state.cursor, counted)


class ChainTrace:
    """What a batch changes in one chain, after the rows of its sources are stored."""

    def __init__(self, state: BatchState, view: ChainView) -> None:
        self._cursor = state.cursor
        self._table = state.table
        self._view = view
        self._chain = chain = view.chain
        self._changed = [state.rows.of(source).change for source in view.sources]
        self._moved = [self._count(number, state.left_out) for number in range(len(chain.steps))]
        self._left_out = [state.left_out.of_step(view, number) for number in range(len(chain.steps))]
        self.closed: list[Hashes] = [_NO_HASHES for _ in chain.steps]
        """For each step the hashes of values whose roots are all among those that are worked out."""
        self._traced: list[Ids] = []
        # Where the traced rows are, and what was looked up: rows by the hashes of a column.
        self._places: list[Ids] = []
        self._known: dict[tuple[int, str], tuple[Hashes, pa.Table]] = {}
        left = self._changed[0]
        self._came = left.came["_id"].to_numpy()
        self._gone = left.gone["_id"].to_numpy()
        from_step = [self._trace(number, self._touched(number)) for number in range(len(chain.steps))]
        if chain.outer:
            self._close(from_step)
        ids, first = np.unique(np.concatenate([_NO_IDS, *self._traced]), return_index=True)
        stays = ~np.isin(ids, self._came)
        self.traced = ids[stays]
        """The ids of left rows that were there and stay, and are worked out anew."""
        self._traced_places = np.concatenate([_NO_IDS, *self._places])[first][stays]

    @property
    def touched(self) -> bool:
        """Whether rows of the view may change."""
        return any(len(ids) for ids in (self._came, self._gone, self.traced, *self.closed))

    def _count(self, number: int, left_out: LeftOutState) -> Hashes:
        """Count the rows of the values that changed rows have in a step; those that are left out now, or no more."""
        if (bound := self._view.step_bound(number)) is None:
            return _NO_HASHES
        rows = [(at, column, rows) for at, column in (*bound.lefts, *bound.rights) for rows in self._changed[at]]
        hashes = _union([hashes_of(self._view.sources[at], some, column) for at, column, some in rows])
        return left_out.count(self._view, bound, hashes) if len(hashes) else _NO_HASHES

    def _touched(self, number: int) -> Hashes:
        """What the changed right rows of a step are joined by; nothing changes for values that stay left out."""
        right, column = self._view.rights[number], self._chain.steps[number].right_on
        rows = [without(some, column, self._left_out[number]) for some in self._changed[number + 1]]
        return _union([self._moved[number], *(hashes_of(right, some, column) for some in rows)])

    def _trace(self, number: int, hashes: Hashes) -> Ids:
        """Close values of a step: find the left rows whose way meets them. Those that are new, by their ids."""
        hashes = np.setdiff1d(hashes, self.closed[number])
        if not len(hashes):
            return _NO_IDS
        self.closed[number] = _union([self.closed[number], hashes])
        found = []
        for at, column in self._chain.origins[number]:
            rows = self._look_up(at, column, hashes)
            if at == 0:
                found.append(rows["_id"].to_numpy())
                self._traced.append(found[-1])
                self._places.append(rows["_at"].to_numpy())
            else:
                met = hashes_of(self._view.sources[at], rows, self._chain.steps[at - 1].right_on)
                found.append(self._trace(at - 1, met))
        return np.concatenate([_NO_IDS, *found])

    def _close(self, from_step: Sequence[Ids]) -> None:
        """Close the values that changed rows meet, or met before, in right and full joins."""
        ids = np.concatenate([self._came, self._gone])
        for number, step in enumerate(self._chain.steps):
            if step.join.outer:
                met = np.setdiff1d(self._met(ids, number), self.closed[number])
                # Where the steps after it keep every row, the view tells what this step and those before gave.
                told = all(later.join.keeps_all for later in self._chain.steps[number + 1 :])
                self._trace(number, self._close_unmatched(number, met) if told else met)
            ids = np.concatenate([ids, from_step[number]])

    def _close_unmatched(self, number: int, hashes: Hashes) -> Hashes:
        """Close values that nothing matches but what is worked out anyway, by a look at the view as it is.

        Nothing changes for those that other rows match. The rest, whose hash is one of both kinds, is returned.
        """
        source, column = self._view.rights[number], self._chain.steps[number].right_on
        rows = self._look_up(number + 1, column, hashes)
        rows = rows.filter(pc.is_valid(rows[column]))
        self._cursor.register(_IDS, {"_id": np.concatenate([self._gone, *self._traced])})
        self._cursor.register(_VALUES, {"_id": rows["_id"].to_numpy()})
        own, before = right_id(number), ["_id", *self._shown_ids(number)]
        kept = " AND ".join(
            [
                f"{own} IN (SELECT _id FROM {_VALUES})",
                f"coalesce({', '.join(before)}) IS NOT NULL",
                f"(_id IS NULL OR _id NOT IN (SELECT _id FROM {_IDS}))",
                *(f"NOT coalesce({root}, false)" for root in self._right_roots().values()),
            ]
        )
        view = self._table(self._view.table)
        found = arrow_table(self._cursor, f"SELECT DISTINCT {own} AS _id FROM {view} WHERE {kept}")
        # A value has several rows, and one of them matched is enough.
        codes = rows[column].combine_chunks().dictionary_encode().indices.to_numpy()
        matched = np.bincount(codes, weights=pc.is_in(rows["_id"], found["_id"].combine_chunks()).to_numpy()) > 0
        own_hashes = rows[source.hash_name(column)].to_numpy()
        others, alone = np.unique(own_hashes[matched[codes]]), np.unique(own_hashes[~matched[codes]])
        self.closed[number] = _union([self.closed[number], np.setdiff1d(alone, others)])
        return np.intersect1d(alone, others)

    def _shown_ids(self, number: int) -> list[str]:
        """The hidden columns with the ids of right rows, of the steps before one."""
        return [right_id(place) for place, step in enumerate(self._chain.steps[:number]) if not step.join.hides]

    def _met(self, ids: Ids, number: int) -> Hashes:
        """What the rows of some left rows, and of changed roots of steps before, meet in a step, or met before."""
        met: dict[tuple[int, str], Hashes] = {}

        def note(at: int, *rows: pa.Table) -> None:
            for column in self._chain.used[at]:
                met[at, column] = _union([hashes_of(self._view.sources[at], some, column) for some in rows])

        gone = self._changed[0].gone
        self._cursor.register(_IDS, {"_id": ids})
        left = self._select(0, f"_id IN (SELECT _id FROM {_IDS})")
        note(0, left, gone.filter(pc.is_in(gone["_id"], pa.array(ids))))
        for before in range(number):
            step, right = self._chain.steps[before], self._view.rights[before]
            wanted = _union([met[origin] for origin in self._chain.origins[before]])
            wanted = _union([wanted, self.closed[before]]) if step.join.outer else wanted
            gone = self._changed[before + 1].gone
            was = gone.filter(pc.is_in(gone[right.hash_name(step.right_on)], pa.array(wanted)))
            note(before + 1, self._look_up(before + 1, step.right_on, wanted), was)
        return _union([met[origin] for origin in self._chain.origins[number]])

    def _look_up(
        self, at: int, column: str, hashes: Hashes, *, most: int | None = None, every: bool = False
    ) -> pa.Table:
        """The rows of a side whose column has one of these hashes: what steps join by, or `every` column."""
        self._cursor.register(_VALUES, {"h": hashes})
        hashed = self._view.sources[at].hash_name(column)
        condition = f"{hashed} IN (SELECT h FROM {_VALUES})" if len(hashes) else "false"
        rows = self._select(at, condition, most=most, every=every)
        if most is None or rows.num_rows <= most:
            self._known[at, column] = hashes, rows
        return rows

    def known(self, at: int, column: str, hashes: Hashes) -> pa.Table | None:
        """The rows of a side whose column has one of these hashes, and others, if they were looked up."""
        known, rows = self._known.get((at, column), (_NO_HASHES, None))
        return rows if np.isin(hashes, known).all() else None

    def _select(self, at: int, condition: str, *, most: int | None = None, every: bool = False) -> pa.Table:
        source = self._view.sources[at]
        table = self._table(source.table)
        shown = " AND _shown" if source.latest else ""
        if not condition.startswith("rowid"):
            # Row ids first, by a scan of eight bytes a row.
            condition = f"rowid IN (SELECT rowid FROM {table} WHERE {condition})"
        rows = f"{table} WHERE {condition}{shown}"
        return arrow_table(
            self._cursor,
            f"SELECT {_columns(source, None if every else self._chain.used[at])} FROM {rows}"
            + ("" if most is None else f" LIMIT {most + 1}"),
        )

    def rows(self, most: int) -> list[pa.Table] | None:
        """The rows of each side that the roots need, right ones as far as they take part; None for more than `most`."""
        came = self._changed[0].came
        if len(self.traced) + came.num_rows > most:
            return None
        left = came
        if len(self.traced) or came.num_rows == 0:
            self._cursor.register(_IDS, {"_at": self._traced_places})
            stored = self._select(0, f"rowid IN (SELECT _at FROM {_IDS})", every=True)
            left = pa.concat_tables([stored, came.select(stored.column_names).cast(stored.schema)])
        found = [left]
        for number, step in enumerate(self._chain.steps):
            wanted = [
                hashes_of(self._view.sources[at], found[at], column) for at, column in self._chain.origins[number]
            ]
            # With what changed, which join quality asks for.
            wanted += [self.closed[number] if step.join.outer else self._touched(number)]
            rows = self._look_up(number + 1, step.right_on, _union(wanted), most=most, every=True)
            if sum(table.num_rows for table in found) + rows.num_rows > most:
                return None
            rows = without(rows, step.right_on, self._left_out[number])
            found.append(rows if step.pairs else newest_of(rows, step.right_on))
        return found

    def roots(self, left: str) -> str:
        """The left rows of `rows` as a relation, for many; `left` is that of all."""
        ids = np.concatenate([self.traced, self._came])
        self._cursor.register(_IDS, {"_id": ids})
        self._cursor.execute(f"CREATE OR REPLACE TEMP TABLE _chain_roots AS SELECT _id FROM {_IDS}").fetchall()
        return f"(FROM {left} WHERE _id IN (FROM _chain_roots))"

    def needed_rights(self, number: int) -> str:
        """The condition of right rows that a step needs, by their `_hash`: its left rows are in `_chain_left`."""
        closed = self.closed[number] if self._chain.steps[number].join.outer else _NO_HASHES
        self._cursor.register(_VALUES, {"h": closed})
        return f"_hash IN (SELECT _hash FROM _chain_left UNION ALL SELECT h FROM {_VALUES})"

    def old_rows(self) -> list[str]:
        """The conditions of rows of the view that others take the place of."""
        found = []
        ids = np.concatenate([self._gone, self.traced])
        if len(ids):
            self._cursor.register(_IDS, {"_id": ids})
            found.append(f"_id IN (SELECT _id FROM {_IDS})")
        return [*found, *self._right_roots().values()]

    def new_rows(self) -> str:
        """The condition of worked out rows that are to be shown: other right rows only seem to match nothing."""
        return " OR ".join(["_id IS NOT NULL", *(f"({one})" for one in self._right_roots().values())])

    def _right_roots(self) -> dict[int, str]:
        """The conditions of rows whose root is a right row of a closed value, by step."""
        found = {}
        for number, step in enumerate(self._chain.steps):
            if step.join.outer and len(self.closed[number]):
                name = f"_closed_{number}"
                self._cursor.register(name, {"h": self.closed[number]})
                before = [f"{id_} IS NULL" for id_ in ("_id", *self._shown_ids(number))]
                own = f"{right_id(number)} IS NOT NULL AND _hash IN (SELECT h FROM {name})"
                found[number] = " AND ".join([*before, own])
        return found


def _columns(source: SourceTable, used: Sequence[str] | None) -> str:
    """The column list of a SELECT: all columns with the needed hidden ones, or some columns and their hashes."""
    if used is None:
        return columns_of(source, "_id", "_ts", *hash_names(source))
    return ", ".join(["_id", "rowid AS _at", *map(quoted, used), *(source.hash_name(column) for column in used)])


def _union(hashes: Sequence[Hashes]) -> Hashes:
    return np.unique(np.concatenate([_NO_HASHES, *hashes]))
