"""A view of somebody's own SQL in a batch: Spark gets all columns of the rows of touched keys, and gives rows back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.sql_text import quoted
from turnout.plan.tables import SqlView
from turnout.store.database import registered
from turnout.store.identity import key_text
from turnout.store.views.joined import KeyedRows
from turnout.store.views.parts import PartRunner, export_columns, write_rows
from turnout.store.views.view_rows import Rows


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
        keyed = (table.filter(pc.is_valid(table[self.view.key])) for table in rows)
        self._sent = {name: table.drop_columns("_hash") for name, table in zip(self.view.relations, keyed, strict=True)}
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
        for source in self.view.sources:
            seen = self.state.rows.touched(source).rows.filter(self.state.rows.seen_by(self.view, source))
            self.state.cursor.register(f"_side_{source.source}", seen)
        return {source.source: quoted(f"_side_{source.source}") for source in self.view.sources}

    def new_rows(self, given: Iterable[pa.Table]) -> Iterator[str]:
        for rows in given:
            with registered(self.state.cursor, _view_rows=rows):
                yield f"SELECT *, {self.row_hash_sql(self.view)} AS _hash FROM _view_rows"
