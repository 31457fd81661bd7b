"""Views of sources that share a key, in a batch: the rows that make a row of the view are found by the hash of its key.

Of a joined view Spark gets keys and ids. SQL that somebody wrote gets all columns of the rows of touched keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Generic

import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import KEY, right_id
from turnout.plan.sql_text import quoted
from turnout.plan.tables import JoinedView, SqlView
from turnout.store.batch_rows import Mask, chosen, has_key_in, hash_sql, keys_relation
from turnout.store.database import arrow_table, registered, scalar
from turnout.store.identity import ROW, key_text
from turnout.store.join_quality import move_quality
from turnout.store.views.parts import Files, PartRunner, export_columns, export_joined, newest_of, numbered, write_rows
from turnout.store.views.view_rows import IdRows, OldRows, Rows, V, ViewRows


class KeyedRows(ViewRows[V], Generic[V]):
    """The rows of a view whose sources share its key."""

    @cached_property
    def _masks(self) -> list[Mask]:
        """The touched rows of each source that the view sees after the batch."""
        return [self.state.rows.seen_by(self.view, source) for source in self.view.sources]

    @cached_property
    def _numbers(self) -> list[pa.ChunkedArray]:
        """What stands for the keys of all rows that the batch concerns."""
        return numbered(self.view.key, [self.state.rows.of(source).touched.rows for source in self.view.sources])

    @staticmethod
    def row_hash_sql(view: V) -> str:
        return hash_sql(quoted(view.key))

    def _is_touched(self) -> bool:
        return bool(len(self.state.rows.key_hashes(self.view))) or any(mask.any() for mask in self._masks)

    def _touched_rows(self) -> tuple[list[pa.Table], list[pa.ChunkedArray]]:
        """The rows of touched keys that are joined, and what stands for their keys."""
        rows, view = self.state.rows, self.view
        touched = [rows.of(source).touched.rows for source in view.sources]
        masks = self.state.left_out.joined(view, touched, self._masks, rows.key_hashes(view))
        return (
            [chosen(table, mask) for table, mask in zip(touched, masks, strict=True)],
            [chosen(number, mask) for number, mask in zip(self._numbers, masks, strict=True)],
        )

    def _all_relations(self) -> dict[str, str]:
        """All shown rows of each source that are joined, as relations."""
        left_out, view = self.state.left_out, self.view
        left_out.count_all(view)
        joined = left_out.condition(view.bounds[0] if view.bounds else None, view.key)
        return {source: f"(FROM {rows} WHERE {joined})" for source, rows in super()._all_relations().items()}

    def old_rows(self) -> Sequence[OldRows]:
        return [(f"_hash IN (SELECT _hash FROM {keys_relation(self.view)})", None)]

    def move_quality(self) -> bool:
        sides = [self.state.rows.of(source).touched for source in self.view.sources]
        return move_quality(self.state.cursor, self.state.schema, self.view.table, self._numbers, sides)


class JoinedRows(KeyedRows[JoinedView], IdRows[JoinedView]):
    """Spark joins keys and ids; the columns are added to the ids that it gives."""

    @staticmethod
    def identity_sql(view: JoinedView, left: str = "") -> str:
        """The left row, and where several right rows of a key are shown, the pair.

        So the rows of a view that has one row of a key are known by the key, under every join.
        """
        key = key_text(view.left.key)
        alone = f"CASE WHEN _id IS NULL THEN ':' || {key} ELSE CAST(_id AS VARCHAR) END"
        left = left or (key if view.left.latest else alone)
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
        self._hold(rows)
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
        self._relations = self._all_relations()
        return export_joined(self.state.cursor, self.view, self._relations, folder, parts)

    def old_rows(self) -> Sequence[OldRows]:
        [(of_keys, _)] = super().old_rows()
        found: list[OldRows] = [(of_keys, partial(self._read_old, of_keys))]
        left, key = self.view.left, quoted(self.view.key)
        if not left.latest and self.state.rows.of(left).evicted is not None:
            evicted = self.state.rows.of(left).relation("evicted")
            found.append((f"{key} IS NULL AND _id IN (SELECT _id FROM {evicted} WHERE {key} IS NULL)", None))
        return found

    def _read_old(self, of_keys: str, columns: list[str]) -> pa.Table:
        """Read the ids of the old rows of touched keys; their columns are in the source rows that were looked up."""
        view, table = self.view, self.state.table(self.view.table)
        row, condition = ROW, has_key_in(keys_relation(view), table)
        if not (view.outer or view.left.latest):
            # Without the key, everything that is read is so short that row ids first would take longer.
            row, condition = f"{self.identity_sql(view, 'CAST(_id AS VARCHAR)')} AS {ROW}", of_keys
        sql = f"SELECT {', '.join(view.ids)}, {row}, rowid AS _at FROM {table} WHERE {condition}"
        held = {source.source: self.state.rows.of(source).stored for source in view.sources}
        return self._widened(arrow_table(self.state.cursor, sql), held, columns)

    def _fills(self, number: int) -> tuple[str, str] | None:
        return (self.view.key, self.view.key) if self.view.outer else None

    def _all_ids(self, given: Iterable[pa.Table]) -> tuple[str, list[str]]:
        columns: list[str] = []
        for part in given:
            with registered(self.state.cursor, _view_rows=part):
                into = "INSERT INTO _view_ids" if columns else "CREATE OR REPLACE TEMP TABLE _view_ids AS"
                scalar(self.state.cursor, f"{into} FROM _view_rows")
            columns = part.column_names
        return "_view_ids", columns


class OwnSqlRows(KeyedRows[SqlView]):
    """Its rows have no ids: they are numbered among those of their key."""

    @staticmethod
    def identity_sql(view: SqlView) -> str:
        return f"{key_text(view.left.key)} || ':' || CAST(_nth AS VARCHAR)"

    def few(self, most: int) -> Rows | None:
        self._sent: Rows | None = None
        if (self.size() if self.state.whole else self.state.records) > most:
            return None
        rows = self._all_rows() if self.state.whole else self._touched_rows()[0]
        self._sent = {
            name: table.filter(pc.is_valid(table[self.view.key])).select([*source.columns, "_id", "_ts"])
            for (name, source), table in zip(self.view.relations.items(), rows, strict=True)
        }
        return self._sent if sum(table.num_rows for table in self._sent.values()) <= most else None

    def in_parts(self, run: PartRunner) -> Iterable[pa.Table]:
        if self._sent is not None:
            # On one core, because planning takes longer than all of the rows.
            return run.over(self.view.sql, [write_rows(self._sent, run.folder)])
        # Rows of all columns take twice as much memory as ids, about.
        parts = run.parts(2 * self.size()) if self.state.whole else run.cores
        rows = self._all_relations() if self.state.whole else self._touched_relations()
        return run.over(self.view.sql, export_columns(self.state.cursor, self.view, rows, run.folder, parts))

    def _touched_relations(self) -> Mapping[str, str]:
        for source, mask in zip(self.view.sources, self._masks, strict=True):
            self.state.cursor.register(f"_side_{source.source}", self.state.rows.of(source).touched.rows.filter(mask))
        return {source.source: quoted(f"_side_{source.source}") for source in self.view.sources}

    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        for rows in given:
            with registered(self.state.cursor, _view_rows=rows):
                yield self._hashed("FROM _view_rows")
