"""One batch of a generation, written in one transaction of the store.

Source rows, view rows, bad records, join quality and the batch's number. The join itself is not done here: the rows of
the keys that a batch touches are handed out, and the view's new rows are taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.decode.shape import Decoded
from turnout.plan.chains import Chain
from turnout.plan.joins import LIFE_BITS, MOST_LIVES, OFFSET_BITS, quoted
from turnout.plan.tables import SourceTable, ViewTable
from turnout.plan.times import moment_sql
from turnout.store.affected import (
    KEPT,
    Affected,
    Changed,
    chosen,
    columns_of,
    evicted,
    hash_sql,
    keys_table,
    narrowed,
    new,
    newest_of,
    numbered,
    put,
    shown_sql,
    stored_sql,
    touched,
    was,
    widened,
)
from turnout.store.chain_files import Work, chain_rows_sql, join_steps
from turnout.store.chains import ChainRows, numbers_of, root_hash_sql, whole_relations
from turnout.store.database import literal, next_version, registered, scalar
from turnout.store.feed import MAX_DELTA_ROWS, Commit, DeltaLog, TablePlace, Wanted
from turnout.store.identity import ties
from turnout.store.join_quality import move_chain_quality, move_quality, write_quality
from turnout.store.left_out import KeysLeftOut, LeftOutState, without
from turnout.store.outgoing import OutgoingRows
from turnout.store.view_files import Files, export_rows, widened_sql

if TYPE_CHECKING:
    from turnout.store.generation_tables import GenerationTables

_PLACE = 'topic, "partition", "offset"'
_BAD_COLUMNS = ("ts", "topic", "partition", "offset", "field", "reason", "value")
_FAULTS = "_faults"
"""What is wrong with records of a batch, by the number of the source that reads them."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation has got: its last batch, the offsets after it, and whether its views are built."""

    batch_id: int = -1
    offsets: str = "{}"
    records: int = 0
    views_built: bool = False


class Batch:
    """A batch being written. Call `load`, then for each view `affected` and `replace`, then `finish`."""

    def __init__(
        self,
        tables: GenerationTables,
        cursor: duckdb.DuckDBPyConnection,
        progress: Progress,
        lives: Mapping[tuple[str, int], int],
        left_out: KeysLeftOut,
    ) -> None:
        """`lives` is how often partitions were deleted, of those that were."""
        self._tables = tables
        self._layout = tables.layout
        self._cursor = cursor
        self.views_built = progress.views_built
        self.offsets = progress.offsets
        """Where the batch before this one ended."""
        self._keys = Affected(cursor, tables.table)
        # The rows that a view's ids are of: in memory, or as relations.
        self._held: dict[str, dict[str, pa.Table]] = {}
        self._kept: dict[str, Mapping[str, str]] = {}
        self._numbers: dict[str, list[pa.ChunkedArray]] = {}
        self._chains: dict[str, ChainRows] = {}
        self._versions: dict[str, int] = {}
        self.lives = dict(lives)
        # As it was when the batch began: half of a change would be worse than none.
        self._wanted = tables.database.feed.wanted
        self._sinks = tables.database.sinks.of_tables()
        self.log = DeltaLog(cursor, self._wants)
        self.records = 0
        self.bad = 0
        self.evicted: dict[str, int] = {}
        self.left_out = LeftOutState(cursor, tables.schema, tables.table, dict(left_out))

    def _wants(self, table: str) -> Wanted | None:
        """What somebody wants to know of changed rows. While a generation catches up nobody looks at it."""
        if not self.views_built or self.records > MAX_DELTA_ROWS:
            return None
        wanted = self._wanted.get(table)
        if table in self._sinks:
            return (wanted or Wanted()) | Wanted(frozenset({self._layout.key(table)}))
        return wanted

    def begin_life(self, topic: str, partition: int) -> None:
        """A partition was deleted: what it will hold comes after all that it held, though its offsets are lower."""
        life = min(MOST_LIVES, self.lives.get((topic, partition), 0) + 1)
        self.lives[topic, partition] = life
        lives = f"{self._tables.schema}.lives"
        self._cursor.execute(f'DELETE FROM {lives} WHERE topic = ? AND "partition" = ?', [topic, partition])
        self._cursor.execute(f"INSERT INTO {lives} VALUES (?, ?, ?)", [topic, partition, life])

    def _ids(self, source: SourceTable) -> str:
        """The SQL of a row's `_id`, from that of its record."""
        own = {partition: life for (of, partition), life in self.lives.items() if of == source.topic}
        cases = " ".join(f"WHEN {partition} THEN {life << LIFE_BITS}" for partition, life in own.items())
        return f"_id + CASE _id >> {OFFSET_BITS} {cases} ELSE 0 END" if cases else "_id"

    def load(self, decoded: Decoded) -> None:
        """Take decoded records: the rows of sources, and what is wrong with records."""
        self.records = decoded.records
        if not decoded.records:
            return
        if decoded.faults is not None:
            self._cursor.register(_FAULTS, decoded.faults)
        waiting = []
        for index, source in enumerate(self._layout.sources):
            if self.views_built or source.latest or source.max_rows is not None:
                waiting.append((source, decoded.rows[index]))
            else:
                # All of them at once: nothing else has to be known yet.
                with registered(self._cursor, _rows=decoded.rows[index]):
                    into = f"INSERT INTO {self._tables.table(source.table)} BY NAME"
                    self.log.add(source.table, f"{into} {stored_sql(source, '_rows', self._ids(source))}")
        views = self._layout.views if self.views_built else ()
        if waiting:
            self._keys.collect_new(waiting, self._ids)
        for source, _ in waiting:
            if excess := self._keys.collect_evicted(source):
                self.evicted[source.table] = excess
        keyed = [view for view in views if view.chain is None]
        for view in keyed:
            self._keys.collect_keys(view)
        for source, _ in waiting:
            self._keys.look_up(source, keyed)
        for source, _ in waiting:
            self._merge(source) if source.latest else self._append(source)
        if decoded.faults is not None:
            self._note_bad_records()

    def _append(self, source: SourceTable) -> None:
        table = self._tables.table(source.table)
        if self._keys.evicts(source):
            place = TablePlace(source.table, table, source.columns, ["_id"])
            self.log.remove(place, f"_id IN (SELECT _id FROM {evicted(source)})")
        plain = source.max_rows is None
        rows = stored_sql(source, new(source), self._ids(source)) if plain else f"FROM {new(source)}"
        self.log.add(source.table, f"INSERT INTO {table} BY NAME {rows}")

    def _merge(self, source: SourceTable) -> None:
        """`rows: latest`: of each new key keep the newest of each partition, and show the newest of those.

        A tombstone is kept as a row that is not shown, so that an older record of another partition stays hidden.
        """
        table = self._tables.table(source.table)
        self._keys.take_newest(source)
        old = f"rowid IN (SELECT _at FROM {was(source)})"
        self.log.remove(TablePlace(source.table, table, source.columns, ["_id", "_shown"]), old)
        self.log.add(source.table, f"INSERT INTO {table} BY NAME FROM {put(source)}")

    def _note_bad_records(self) -> None:
        # Sources that read one topic complain of the same.
        faults = f"SELECT {self._placed()}, _ts, field, reason, text FROM {_FAULTS}"
        scalar(
            self._cursor,
            f"CREATE OR REPLACE TEMP TABLE _bad AS "
            f"SELECT DISTINCT _id, _ts, {_PLACE}, field, reason, text FROM ({faults})",
        )
        self.bad = scalar(self._cursor, "SELECT count(*) FROM _bad")
        if self.bad:
            # The rows that were written first go, before others come: no row goes in the batch that it came in.
            table = f"{self._tables.schema}.bad_records"
            over = scalar(self._cursor, f"SELECT count(*) FROM {table}") + self.bad - self._tables.bad_rows
            if over > 0:
                place = TablePlace("bad_records", table, _BAD_COLUMNS, ["_id"])
                self.log.remove(place, f"rowid IN (SELECT rowid FROM {table} ORDER BY rowid LIMIT {over})")
            newest = f"(FROM _bad ORDER BY _ts DESC, _id DESC LIMIT {self._tables.bad_rows})"
            shown = f"SELECT _id, {moment_sql('_ts')}, {_PLACE}, field, reason, text FROM {newest} ORDER BY _ts, _id"
            self.log.add("bad_records", f"INSERT INTO {table} {shown}")

    def _placed(self) -> str:
        """The SQL of where a faulty record was, and of the `_id` that it has among those of its topic."""
        sources = list(enumerate(self._layout.sources))
        topics = " ".join(f"WHEN {number} THEN {literal(source.topic)}" for number, source in sources)
        ids = " ".join(f"WHEN {number} THEN {self._ids(source)}" for number, source in sources)
        return (
            f"CASE source {ids} END AS _id, CASE source {topics} END AS topic, "
            f'CAST(_id >> {OFFSET_BITS} AS INTEGER) AS "partition", _id & {(1 << OFFSET_BITS) - 1} AS "offset"'
        )

    def affected(self, view: ViewTable, most: int | None = None) -> dict[str, pa.Table] | None:
        """The shown rows of the keys that this batch touches, for each side of `view`; None where it touches none.

        Of a joined view as far as the join needs them: `narrow_sql_if_unique` is enough. Of a chain that needs more
        than `most` there is nothing in it: `join_steps` works with those.
        """
        if not self.records:
            return None
        if view.chain is not None:
            chain = self._chains[view.table] = self._chain(view, view.chain)
            if not chain.touched:
                return None
            sides = chain.rows(most)
            return {} if sides is None else self._handed_out(view, [], sides)
        masks = [self._keys.of_view(view, source) for source in view.sources]
        if not len(self._keys.touched(view)) and not any(mask.any() for mask in masks):
            return None
        moved = [self._keys.moved(source).rows for source in view.sources]
        masks = self.left_out.joined(view, moved, masks, self._keys.touched(view))
        rows = [chosen(every, mask) for every, mask in zip(moved, masks, strict=True)]
        keys = [chosen(own, mask) for own, mask in zip(self._key_numbers(view), masks, strict=True)]
        return self._handed_out(view, keys, rows)

    def _chain(self, view: ViewTable, chain: Chain) -> ChainRows:
        return ChainRows(self._cursor, self._tables.table, view, chain, self._changed(view), self.left_out)

    def _changed(self, view: ViewTable) -> dict[str, Changed]:
        return {source.source: self._keys.changed(source) for source in view.sources}

    def join_steps(self, view: ViewTable, work: Work) -> None:
        """The ids of a chain's rows, step by step through files: of all, or of what `affected` found."""
        known = self._chains.get(view.table)
        if known is None:
            self.left_out.count_all(view)
        self._kept[view.table] = rows = known.relations() if known else whole_relations(view, self._tables.table)
        join_steps(self._cursor, view, rows, known.near if known else None, work, self.left_out.condition)

    def _key_numbers(self, view: ViewTable) -> list[pa.ChunkedArray]:
        """What stands for the keys of all rows that the batch concerns."""
        if view.table not in self._numbers:
            self._numbers[view.table] = numbered(view.key, [self._keys.moved(s).rows for s in view.sources])
        return self._numbers[view.table]

    def _handed_out(
        self, view: ViewTable, keys: Sequence[pa.ChunkedArray], rows: Sequence[pa.Table]
    ) -> dict[str, pa.Table]:
        """What Spark gets of some rows of each source, by the names that it knows them by."""
        if view.own:
            keyed = (table.filter(pc.is_valid(table[view.key])) for table in rows)
            return {name: table.drop_columns("_hash") for name, table in zip(view.relations, keyed, strict=True)}
        self._held[view.table] = {source.source: table for source, table in zip(view.sources, rows, strict=True)}
        return narrowed(view, keys, rows) if view.chain is None else numbers_of(view, view.chain, rows)

    def replace(self, view: ViewTable, parts: Iterable[pa.Table]) -> None:
        """Put the view's new rows of the touched keys in place of its old ones; `parts` as Spark gave them."""
        table, key = self._tables.table(view.table), quoted(view.key)
        place = TablePlace(view.table, table, view.columns, ties([*view.ids, "_hash"]))
        if (chain := self._chains.get(view.table)) is not None:
            for condition in chain.old_rows():
                self.log.remove(place, condition)
            self._insert_rows(view, parts, chain.new_rows())
            return
        self.log.remove(place, touched(keys_table(view), table))
        if not view.left.latest and not view.own and self._keys.evicts(view.left):
            gone = f"{key} IS NULL AND _id IN (SELECT _id FROM {evicted(view.left)} WHERE {key} IS NULL)"
            self.log.remove(place, gone)
        self._insert_rows(view, parts)

    def export(self, view: ViewTable, folder: Path, parts: int) -> tuple[str, list[Files]]:
        """What `everything` or `affected` hands out, as far as needed, in files; and the SQL to run over each part."""
        if not self.views_built:
            rows = self._kept[view.table] = self._every(view)
        else:
            rows = {source.source: quoted(f"_side_{source.source}") for source in view.sources}
            for source in view.sources:
                seen = self._keys.moved(source).rows.filter(self._keys.of_view(view, source))
                self._cursor.register(f"_side_{source.source}", seen)
        return export_rows(self._cursor, view, rows, folder, parts)

    def _every(self, view: ViewTable) -> dict[str, str]:
        """All shown rows of its sides that are joined, as relations."""
        self.left_out.count_all(view)
        joined = self.left_out.condition(view.bounds[0] if view.bounds else None, view.key)
        return {
            s.source: f"(FROM ({shown_sql(s, self._tables.table(s.table), columns_of(s, *KEPT))}) WHERE {joined})"
            for s in view.sources
        }

    def size(self, view: ViewTable) -> int:
        """How many rows the sides of a view have."""
        return sum(scalar(self._cursor, f"SELECT count(*) FROM {self._tables.table(s.table)}") for s in view.sources)

    def everything(self, view: ViewTable) -> dict[str, pa.Table]:
        """What Spark needs of all shown rows of its sides, by the names that it knows them by."""
        every = self._every(view) if view.chain is None else whole_relations(view, self._tables.table)
        rows = [self._cursor.execute(f"FROM {every[s.source]}").to_arrow_table() for s in view.sources]
        if view.chain is not None:
            self.left_out.count_all(view)
            for number, step in enumerate(view.chain.steps):
                some = without(rows[number + 1], step.right_on, self.left_out.of_step(view, number))
                rows[number + 1] = some if step.pairs else newest_of(some, step.right_on)
            return self._handed_out(view, [], rows)
        return self._handed_out(view, numbered(view.key, rows), rows)

    def build(self, view: ViewTable, parts: Iterable[pa.Table]) -> None:
        """Fill the whole view, once its sources have caught up; `parts` as Spark gave them."""
        self._insert_rows(view, parts)
        self.log.changed.add(view.table)

    def _insert_rows(self, view: ViewTable, parts: Iterable[pa.Table], condition: str = "true") -> None:
        """Add rows to a view: as they are, or those of some ids, with the columns of the rows that were handed out."""
        insert = f"INSERT INTO {self._tables.table(view.table)} BY NAME"
        held = self._held.pop(view.table, None)
        if view.chain is not None and held is None:
            rows = chain_rows_sql(view, self._kept.pop(view.table))
            self.log.add(view.table, f"{insert} FROM ({rows}) WHERE {condition}")
            return
        if not view.own and held is None:
            self.log.add(view.table, f"{insert} {self._put_in(view, parts)}")
            return
        hashed = f", {hash_sql(quoted(view.key))} AS _hash" if view.own else ""
        hashed = f", {root_hash_sql(view.chain)} AS _hash" if view.chain is not None else hashed
        for part in parts:
            with registered(self._cursor, _view_rows=part if held is None else widened(view, part, held)):
                self.log.add(view.table, f"{insert} FROM (SELECT *{hashed} FROM _view_rows) WHERE {condition}")

    def _put_in(self, view: ViewTable, parts: Iterable[pa.Table]) -> str:
        """The query of a view's rows, once all ids are there: in a table that may go to disk."""
        columns: list[str] = []
        for part in parts:
            with registered(self._cursor, _view_rows=part):
                into = "INSERT INTO _view_ids" if columns else "CREATE OR REPLACE TEMP TABLE _view_ids AS"
                scalar(self._cursor, f"{into} FROM _view_rows")
            columns = part.column_names
        return widened_sql(view, "_view_ids", columns, self._kept.pop(view.table))

    def dead_letters(self) -> pa.Table | None:
        """The records that gave no row, as they came, with where from and why; None where there are none."""
        if not self.bad:
            return None
        topics = [source.topic for source in self._layout.sources]
        readers = " ".join(f"WHEN {literal(topic)} THEN {topics.count(topic)}" for topic in dict.fromkeys(topics))
        letters = self._cursor.execute(
            f"SELECT first(key) AS key, first(value) AS value, {_PLACE}, arg_min(reason, source) AS reason "
            f"FROM (SELECT source, {self._placed()}, reason, key, value FROM {_FAULTS} WHERE whole) "
            f"GROUP BY {_PLACE} HAVING count(DISTINCT source) = CASE topic {readers} END ORDER BY {_PLACE}"
        ).to_arrow_table()
        return letters if letters.num_rows else None

    def tell(self) -> None:
        """After the commit: tell the listeners of the store what changed."""
        self._tables.database.feed.tell(Commit(self._tables.generation, self._versions, self.log.deltas()))

    def _keep_outgoing(self) -> None:
        """Keep the changed rows of tables that sinks write, as far as they were collected."""
        deltas = self.log.deltas() if self._sinks else {}
        for table in deltas.keys() & self._sinks.keys() & self._versions.keys():
            key, columns = self._layout.key(table), self._layout.columns(table)
            rows = OutgoingRows(self._cursor, self._tables.schema, table, key, columns)
            rows.keep(deltas[table], self._versions[table], self._tables.generation, self._sinks[table])

    def finish(self, batch_id: int | None, offsets: str, *, views_built: bool) -> None:
        """Count join quality, versions and progress; the transaction ends after this."""
        for view in self._layout.views if views_built else ():
            if not self.views_built:
                write_quality(self._cursor, self._tables.schema, view)
            elif not self.records or not self._move_quality(view):
                continue
            self.log.changed.add("join_quality")
        if self.left_out.came or self.left_out.back:
            self.log.changed.add("join_quality")
        self._versions = next_version(self._cursor, self._tables.schema, *self.log.changed)
        self._keep_outgoing()
        self._cursor.execute(
            f"UPDATE {self._tables.schema}.progress "
            f"SET batch_id = coalesce(?, batch_id), offsets = ?, records = records + ?, views_built = ?",
            [batch_id, offsets, self.records, views_built],
        )

    def _move_quality(self, view: ViewTable) -> bool:
        cursor, schema = self._cursor, self._tables.schema
        if view.chain is not None:
            return move_chain_quality(cursor, schema, view, self._changed(view), self._chains[view.table])
        sides = [self._keys.moved(source) for source in view.sources]
        return move_quality(cursor, schema, view, self._key_numbers(view), sides)
