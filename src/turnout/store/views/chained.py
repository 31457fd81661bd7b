"""A chain in a batch: its rows share no key, so the touched ones are traced from join to join (`chain_trace.py`).

Over many rows each of its steps is done by itself, as a join of two sides in parts that share no value, by files. What
a step gave is the left side of the next: ids in a table of the store, which may go to disk. So no more is in memory
than for any other view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import pyarrow as pa

from turnout.plan.chains import number_name
from turnout.plan.joins import KEY, right_id, side
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView, SourceTable, joined_view
from turnout.store.batch_rows import hash_sql
from turnout.store.database import registered, scalar
from turnout.store.identity import key_text, of_source
from turnout.store.join_quality import move_chain_quality
from turnout.store.left_out import without
from turnout.store.views.chain_trace import ChainTrace
from turnout.store.views.parts import PartRunner, export_joined, newest_of, unambiguous
from turnout.store.views.view_rows import IdRows, Rows


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
            own, names = right_id(number), view.chain.names[number]
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
        for number, (step, names) in enumerate(zip(view.chain.steps, view.chain.names, strict=True)):
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

    def old_rows(self) -> Sequence[str]:
        return self._trace.old_rows()

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
        changes = {source.source: self.state.rows.of(source).change for source in self.view.sources}
        return move_chain_quality(self.state.cursor, self.state.schema, self.view, changes, self._trace.known)
