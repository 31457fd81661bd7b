"""A joined view in a batch: all rows that make one of its rows have one key, and are found by its hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Generic

import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import KEY, right_id
from turnout.plan.sql_text import quoted
from turnout.plan.tables import JoinedView
from turnout.store.batch_rows import (
    KEPT,
    Mask,
    SourceRelations,
    chosen,
    columns_of,
    has_key_in,
    hash_sql,
    keys_relation,
    shown_sql,
)
from turnout.store.database import arrow_table, registered, scalar
from turnout.store.identity import key_text
from turnout.store.join_quality import move_quality
from turnout.store.views.join_keys import newest_of, numbered
from turnout.store.views.parts import Files, PartRunner, export_joined, write_rows
from turnout.store.views.view_rows import BatchState, Rows, V, ViewRows, taken_sides


class KeyedRows(ViewRows[V], Generic[V]):
    """The rows of a view whose sources share its key."""

    def __init__(self, state: BatchState, view: V) -> None:
        super().__init__(state, view)
        self._masks: list[Mask] = []
        self._numbers: list[pa.ChunkedArray] | None = None

    @staticmethod
    def row_hash_sql(view: V) -> str:
        return hash_sql(quoted(view.key))

    def _is_touched(self) -> bool:
        rows, view = self.state.rows, self.view
        self._masks = [rows.seen_by(view, source) for source in view.sources]
        return bool(len(rows.key_hashes(view))) or any(mask.any() for mask in self._masks)

    def _touched_rows(self) -> tuple[list[pa.Table], list[pa.ChunkedArray]]:
        """The rows of touched keys that are joined, and what stands for their keys."""
        rows, view = self.state.rows, self.view
        touched = [rows.touched(source).rows for source in view.sources]
        masks = self.state.left_out.joined(view, touched, self._masks, rows.key_hashes(view))
        numbers = self._key_numbers()
        return (
            [chosen(table, mask) for table, mask in zip(touched, masks, strict=True)],
            [chosen(number, mask) for number, mask in zip(numbers, masks, strict=True)],
        )

    def _all_rows(self) -> list[pa.Table]:
        every = self._all_relations()
        return [arrow_table(self.state.cursor, f"FROM {rows}") for rows in every.values()]

    def _all_relations(self) -> dict[str, str]:
        """All shown rows of each source that are joined, as relations."""
        left_out, view = self.state.left_out, self.view
        left_out.count_all(view)
        joined = left_out.condition(view.bounds[0] if view.bounds else None, view.key)
        return {
            s.source: f"(FROM ({shown_sql(s, self.state.table(s.table), columns_of(s, *KEPT))}) WHERE {joined})"
            for s in view.sources
        }

    def _key_numbers(self) -> list[pa.ChunkedArray]:
        """What stands for the keys of all rows that the batch concerns."""
        if self._numbers is None:
            self._numbers = numbered(self.view.key, [self.state.rows.touched(s).rows for s in self.view.sources])
        return self._numbers

    def old_rows(self) -> Sequence[str]:
        return [has_key_in(keys_relation(self.view), self.state.table(self.view.table))]

    def move_quality(self) -> bool:
        sides = [self.state.rows.touched(source) for source in self.view.sources]
        return move_quality(self.state.cursor, self.state.schema, self.view.table, self._key_numbers(), sides)


class JoinedRows(KeyedRows[JoinedView]):
    """Spark joins keys and ids; the columns are added to the ids that it gives."""

    @staticmethod
    def identity_sql(view: JoinedView) -> str:
        """The left row, and where several right rows of a key are shown, the pair.

        So the rows of a view that has one row of a key are known by the key, under every join.
        """
        key = key_text(view.left.key)
        left = key if view.left.latest else f"CASE WHEN _id IS NULL THEN ':' || {key} ELSE CAST(_id AS VARCHAR) END"
        # Other right sides have one row of a key at most, whatever the join is.
        many = [right_id(number) for number, right in enumerate(view.rights) if view.pairs and not right.latest]
        return " || ':' || ".join([left, *(f"coalesce(CAST({own} AS VARCHAR), '')" for own in many)])

    def few(self, most: int) -> Rows | None:
        if self.state.whole and self.size() > most:
            return None
        if self.state.whole:
            rows = self._all_rows()
            numbers = numbered(self.view.key, rows)
        else:
            rows, numbers = self._touched_rows()
        self.held = {source.source: table for source, table in zip(self.view.sources, rows, strict=True)}
        self._narrow = {}
        for name, source, number, table in zip(self.view.relations, self.view.sources, numbers, rows, strict=True):
            narrow = pa.table({KEY: number, "_id": table["_id"], "_ts": table["_ts"]})
            self._narrow[name] = narrow if source is self.view.left or self.view.pairs else newest_of(narrow, KEY)
        return self._narrow if sum(table.num_rows for table in self._narrow.values()) <= most else None

    def in_parts(self, run: PartRunner) -> Iterable[pa.Table]:
        if self.state.whole:
            return run.over(*self.export(run.folder, run.parts(self.size())))
        # On one core, because planning takes longer than all of the rows.
        return run.over(self.view.narrow_sql_if_unique, [write_rows(self._narrow, run.folder)])

    def export(self, folder: Path, parts: int) -> tuple[str, list[Files]]:
        """Write all rows, as far as the join needs them, to files; and the SQL to run over each part."""
        self.relations = self._all_relations()
        return export_joined(self.state.cursor, self.view, self.relations, folder, parts)

    def old_rows(self) -> Sequence[str]:
        conditions = list(super().old_rows())
        left, key = self.view.left, quoted(self.view.key)
        if not left.latest and self.state.rows.evicts(left):
            evicted = SourceRelations(left.source).evicted
            conditions.append(f"{key} IS NULL AND _id IN (SELECT _id FROM {evicted} WHERE {key} IS NULL)")
        return conditions

    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        held, self.held = self.held, None
        if held is None:
            yield self._widened_sql(*self._all_ids(given))
            return
        for ids in given:
            with registered(self.state.cursor, _view_rows=self._widened(ids, held)):
                yield "FROM _view_rows"

    def _widened(self, ids: pa.Table, held: Rows) -> pa.Table:
        """The rows of some ids, with the columns of their source rows."""
        sides = taken_sides(self.view, ids, held)
        columns = {name: sides[0][name] for name in self.view.left.columns}
        for number, names in enumerate(self.view.right_names, 1):
            if number in sides:
                columns |= {name: sides[number][column] for column, name in names.items()}
        # All sides of a row have one key, and at least one side is there.
        columns |= {name: pc.coalesce(*(side[name] for side in sides.values())) for name in (self.view.key, "_hash")}
        return pa.table(columns | {name: ids[name] for name in ids.column_names})

    def _all_ids(self, given: Iterable[pa.Table]) -> tuple[str, list[str]]:
        """A table with all ids, which may go to disk, and its columns."""
        columns: list[str] = []
        for part in given:
            with registered(self.state.cursor, _view_rows=part):
                into = "INSERT INTO _view_ids" if columns else "CREATE OR REPLACE TEMP TABLE _view_ids AS"
                scalar(self.state.cursor, f"{into} FROM _view_rows")
            columns = part.column_names
        return "_view_ids", columns

    def _widened_sql(self, ids: str, id_columns: Sequence[str]) -> str:
        """The SQL of what `_widened` gives; `ids` is a relation of these columns."""
        view, rows = self.view, self.relations
        sides = ["l"]
        columns = {name: f"l.{quoted(name)}" for name in view.left.columns}
        joined = f"{ids} AS i LEFT JOIN {rows[view.left.source]} AS l ON l._id = i._id"
        for number, (right, names) in enumerate(zip(view.rights, view.right_names, strict=True)):
            if right_id(number) not in id_columns:
                continue
            sides.append(f"r{number}")
            joined += f" LEFT JOIN {rows[right.source]} AS r{number} ON r{number}._id = i.{right_id(number)}"
            columns |= {name: f"r{number}.{quoted(column)}" for column, name in names.items()}
        # All sides of a row have one key, and at least one side is there.
        columns[view.key] = f"coalesce({', '.join(f'{side}.{quoted(view.key)}' for side in sides)})"
        selected = ", ".join(f"{value} AS {quoted(name)}" for name, value in columns.items())
        hashed = f"coalesce({', '.join(f'{side}._hash' for side in sides)}) AS _hash"
        return f"SELECT {selected}, i.*, {hashed} FROM {joined}"
