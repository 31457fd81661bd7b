"""A chain in a batch: its rows share no key, so the touched ones are traced from join to join (`chain_trace.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.chains import number_name
from turnout.plan.joins import right_id, side
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView
from turnout.store.batch_rows import hash_sql
from turnout.store.database import arrow_table, registered
from turnout.store.identity import key_text, of_source
from turnout.store.join_quality import move_chain_quality
from turnout.store.left_out import without
from turnout.store.views.chain_steps import join_steps
from turnout.store.views.chain_trace import ChainTrace, whole_relations
from turnout.store.views.join_keys import newest_of, unambiguous
from turnout.store.views.parts import PartRunner
from turnout.store.views.view_rows import BatchState, Rows, ViewRows, taken_sides


class ChainedRows(ViewRows[ChainView]):
    """Spark joins a number for each column that steps join by, and ids; the columns are added to the ids it gives."""

    def __init__(self, state: BatchState, view: ChainView) -> None:
        super().__init__(state, view)
        self._known_trace: ChainTrace | None = None

    @property
    def _trace(self) -> ChainTrace:
        """The rows that the batch changes; once the rows of all sources are stored."""
        if self._known_trace is None:
            state, changes = self.state, [self.state.rows.change(source) for source in self.view.sources]
            self._known_trace = ChainTrace(state.cursor, state.table, self.view, changes, state.left_out)
        return self._known_trace

    @staticmethod
    def identity_sql(view: ChainView) -> str:
        """The left row, and of each step what tells its right row from others that the same row could have there."""
        parts = [f"CASE WHEN _id IS NULL THEN '' ELSE {of_source(view.left)} END"]
        before = ["_id"]
        for number, (step, right) in enumerate(zip(view.chain.steps, view.rights, strict=True)):
            own, names = right_id(number), view.chain.names[number]
            several = step.pairs and not (right.latest and step.right_on == right.key)
            if step.hides:
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
            if not step.hides:
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
        self.held = {source.source: table for source, table in zip(self.view.sources, rows, strict=True)}
        return self._narrow(rows)

    def _all_rows(self) -> list[pa.Table]:
        every = whole_relations(self.view, self.state.table)
        rows = [arrow_table(self.state.cursor, f"FROM {every[s.source]}") for s in self.view.sources]
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
        cursor, left_out = self.state.cursor, self.state.left_out
        if self.state.whole:
            left_out.count_all(self.view)
            self.relations = whole_relations(self.view, self.state.table)
            join_steps(cursor, self.view, self.relations, None, run, left_out.condition)
        else:
            self.relations = self._trace.relations()
            join_steps(cursor, self.view, self.relations, self._trace.needed_rights, run, left_out.condition)
        return ()

    def old_rows(self) -> Sequence[str]:
        return self._trace.old_rows()

    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        condition = "true" if self.state.whole else self._trace.new_rows()
        held, self.held = self.held, None
        hashed = f"{self.row_hash_sql(self.view)} AS _hash"
        if held is None:
            yield f"FROM (SELECT *, {hashed} FROM ({self._widened_sql()})) WHERE {condition}"
            return
        for ids in given:
            with registered(self.state.cursor, _view_rows=self._widened(ids, held)):
                yield f"FROM (SELECT *, {hashed} FROM _view_rows) WHERE {condition}"

    def _widened(self, ids: pa.Table, held: Rows) -> pa.Table:
        """The rows of some ids, with the columns of their source rows."""
        sides = taken_sides(self.view, ids, held)
        columns = {name: sides[0][name] for name in self.view.left.columns}
        for number, (step, names) in enumerate(zip(self.view.chain.steps, self.view.right_names, strict=True), 1):
            if number not in sides:
                continue
            columns |= {name: sides[number][column] for column, name in names.items()}
            if step.fills:
                known = [columns[step.left_on]] if step.left_on in columns else []
                columns[step.left_on] = pc.coalesce(*known, sides[number][step.right_on])
        return pa.table(columns | {name: ids[name] for name in ids.column_names})

    def _widened_sql(self) -> str:
        """The SQL of what `_widened` gives, over the ids in `_chain`."""
        view, rows = self.view, self.relations
        columns = {name: f"l.{quoted(name)}" for name in view.left.columns}
        ids, joined = ["_id"], f"_chain AS i LEFT JOIN {rows[view.left.source]} AS l ON l._id = i._id"
        for number, (step, right) in enumerate(zip(view.chain.steps, view.rights, strict=True)):
            if step.hides:
                continue
            ids.append(right_id(number))
            joined += f" LEFT JOIN {rows[right.source]} AS r{number} ON r{number}._id = i.{right_id(number)}"
            columns |= {name: f"r{number}.{quoted(column)}" for column, name in view.chain.names[number].items()}
            if step.fills:
                known = columns.get(step.left_on, "NULL")
                columns[step.left_on] = f"coalesce({known}, r{number}.{quoted(step.right_on)})"
        selected = [f"{value} AS {quoted(name)}" for name, value in columns.items()]
        return f"SELECT {', '.join([*selected, *(f'i.{one}' for one in ids)])} FROM {joined}"

    def move_quality(self) -> bool:
        changes = {source.source: self.state.rows.change(source) for source in self.view.sources}
        return move_chain_quality(self.state.cursor, self.state.schema, self.view, changes, self._trace.known)
