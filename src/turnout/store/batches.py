"""One batch of a generation, written in one transaction of the store.

Source rows, view rows, bad records, join quality and the batch's number. The join itself is not done here: `views`
hands out the rows that a batch touches, and takes back what Spark makes of them. `TrackedWrites` runs each INSERT and
DELETE, and keeps the rows that somebody follows, for the feed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from turnout.decode.decoder import Decoded
from turnout.plan.offsets import LIFE_BITS, MOST_LIVES, OFFSET_BITS
from turnout.plan.sql_text import literal, quoted
from turnout.plan.tables import SourceTable, ViewTable
from turnout.plan.times import moment_sql
from turnout.store.batch_rows import BatchRows, stored_sql
from turnout.store.database import arrow_table, next_version, registered, scalar
from turnout.store.feed import MAX_DELTA_ROWS, Commit, Delta, Wanted
from turnout.store.identity import ROW, ties
from turnout.store.join_quality import write_quality
from turnout.store.left_out import LeftOutState
from turnout.store.outgoing import OutgoingRows
from turnout.store.views import kind_of
from turnout.store.views.view_rows import BatchState, ViewRows

if TYPE_CHECKING:
    from turnout.store.generation_tables import GenerationTables

_PLACE = 'topic, "partition", "offset"'
_BAD_COLUMNS = ("ts", "topic", "partition", "offset", "field", "reason", "value")
_FAULTS = "_faults"
"""What is wrong with records of a batch, by the number of the source that reads them."""
_NEVER_TOLD = ("_ts", "_deleted", "_shown", "_at")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation has got: its last batch, the offsets after it, and whether its views are built."""

    batch_id: int = -1
    offsets: str = "{}"
    records: int = 0
    views_built: bool = False


class Batch:
    """A batch being written. Call `load`, then `replace` for each view that is touched, then `finish`."""

    def __init__(self, tables: GenerationTables, cursor: duckdb.DuckDBPyConnection, progress: Progress) -> None:
        self._tables = tables
        self._layout = tables.layout
        self._cursor = cursor
        self.views_built = progress.views_built
        views = tables.layout.views
        self.filled = [view for view in views if progress.views_built or view.table in tables.kept_views]
        """The views that have their rows, built or copied: of these the batch replaces what it touches."""
        self.offsets = progress.offsets
        """Where the batch before this one ended."""
        self._rows = BatchRows(cursor, tables.table)
        self._views: dict[str, ViewRows[Any]] = {}
        self._versions: dict[str, int] = {}
        self.lives = dict(tables.lives(cursor))
        # As it was when the batch began: half of a change would be worse than none.
        self._wanted = tables.database.feed.wanted
        self._sinks = tables.database.sinks.of_tables()
        self.log = TrackedWrites(cursor, self._wants)
        self.records = 0
        self.bad = 0
        self._faulty = 0
        """How many records have a fault; one can have several."""
        self.evicted: dict[str, int] = {}
        self.left_out = LeftOutState(cursor, tables.schema, tables.table, dict(tables.left_out(cursor)))

    def _wants(self, table: str) -> Wanted | None:
        """What somebody wants to know of changed rows. While a generation catches up nobody looks at it."""
        if not self.views_built or self.records > MAX_DELTA_ROWS:
            return None
        wanted = self._wanted.get(table)
        if table in self._sinks:
            return (wanted or Wanted()) | Wanted(frozenset({self._layout.of(table).key}))
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
        joined = {source.source for view in self.filled for source in view.sources}
        for index, source in enumerate(self._layout.sources):
            if self.views_built or source.source in joined or source.latest or source.max_rows is not None:
                waiting.append((source, decoded.rows[index]))
            else:
                # All of them at once: nothing else has to be known yet.
                with registered(self._cursor, _rows=decoded.rows[index]):
                    into = f"INSERT INTO {self._tables.table(source.table)} BY NAME"
                    self.log.add(source.table, f"{into} {stored_sql(source, '_rows', self._ids(source))}")
        if waiting:
            self._rows.collect_arriving(waiting, self._ids)
        for source, _ in waiting:
            if excess := self._rows.collect_evicted(source):
                self.evicted[source.table] = excess
        keyed = [view for view in self.filled if view.by_key]
        for view in keyed:
            self._rows.collect_keys(view)
        for source, _ in waiting:
            self._rows.look_up(source, keyed, followed=self._wants(source.table) is not None)
        for source, _ in waiting:
            self._merge(source) if source.latest else self._append(source)
        if decoded.faults is not None:
            self._note_bad_records()

    def _append(self, source: SourceTable) -> None:
        table, own = self._tables.table(source.table), self._rows.of(source)
        if own.evicted is not None:
            written = WrittenTable(source.table, table, source.columns, ["_id"])
            self.log.remove(written, f"_id IN (SELECT _id FROM {own.relation('evicted')})")
        arriving = own.relation("arriving")
        rows = stored_sql(source, arriving, self._ids(source)) if source.max_rows is None else f"FROM {arriving}"
        self.log.add(source.table, f"INSERT INTO {table} BY NAME {rows}")

    def _merge(self, source: SourceTable) -> None:
        """`rows: latest`: of each new key keep the newest of each partition, and show the newest of those.

        A tombstone is kept as a row that is not shown, so that an older record of another partition stays hidden.
        """
        table, own = self._tables.table(source.table), self._rows.of(source)
        self._rows.take_newest(source)
        self.log.remove_read(WrittenTable(source.table, table, source.columns, ["_id", "_shown"]), own.replaced)
        self.log.add(source.table, f"INSERT INTO {table} BY NAME FROM {own.relation('replacing')}")

    def _note_bad_records(self) -> None:
        # Sources that read one topic complain of the same.
        faults = f"SELECT {self._placed()}, _ts, field, reason, text FROM {_FAULTS}"
        distinct = f"SELECT DISTINCT _id, _ts, {_PLACE}, field, reason, text FROM ({faults})"
        self.bad = scalar(self._cursor, f"CREATE OR REPLACE TEMP TABLE _bad AS {distinct}")
        if self.bad:
            self._faulty = scalar(self._cursor, "SELECT count(DISTINCT (topic, _id)) FROM _bad")
            # The rows that were written first go, before others come: no row goes in the batch that it came in.
            table = f"{self._tables.schema}.bad_records"
            over = scalar(self._cursor, f"SELECT count(*) FROM {table}") + self.bad - self._tables.bad_rows
            if over > 0:
                written = WrittenTable("bad_records", table, _BAD_COLUMNS, ["_id"])
                self.log.remove(written, f"rowid IN (SELECT rowid FROM {table} ORDER BY rowid LIMIT {over})")
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

    def view(self, view: ViewTable) -> ViewRows[Any]:
        """The rows of a view in this batch; once its source rows are loaded."""
        if view.table not in self._views:
            state = BatchState(
                cursor=self._cursor,
                schema=self._tables.schema,
                table=self._tables.table,
                rows=self._rows,
                left_out=self.left_out,
                records=self.records,
                whole=view not in self.filled,
            )
            self._views[view.table] = kind_of(view)(state, view)
        return self._views[view.table]

    def replace(self, view: ViewTable, given: Iterable[pa.Table]) -> None:
        """Put the new rows of a view in place of its old ones, or fill it; `given` is what Spark gave."""
        table = self._tables.table(view.table)
        if view in self.filled:
            written = WrittenTable(view.table, table, view.columns, ties([*view.ids, "_hash"]))
            for condition, read in self.view(view).old_rows():
                self.log.remove(written, condition, read)
        else:
            self.log.changed.add(view.table)
        for rows in self.view(view).new_rows(given):
            self.log.add(view.table, f"INSERT INTO {table} BY NAME {rows}")

    def dead_letters(self) -> pa.Table | None:
        """The records that gave no row, as they came, with where from and why; None where there are none."""
        if not self.bad:
            return None
        topics = [source.topic for source in self._layout.sources]
        readers = " ".join(f"WHEN {literal(topic)} THEN {topics.count(topic)}" for topic in dict.fromkeys(topics))
        letters = arrow_table(
            self._cursor,
            f"SELECT first(key) AS key, first(value) AS value, {_PLACE}, arg_min(reason, source) AS reason "
            f"FROM (SELECT source, {self._placed()}, reason, key, value FROM {_FAULTS} WHERE whole) "
            f"GROUP BY {_PLACE} HAVING count(DISTINCT source) = CASE topic {readers} END ORDER BY {_PLACE}",
        )
        return letters if letters.num_rows else None

    def tell(self) -> None:
        """After the commit: tell the listeners of the store what changed."""
        self._tables.database.feed.tell(Commit(self._tables.generation, self._versions, self.log.deltas()))

    def _keep_outgoing(self) -> None:
        """Keep the changed rows of tables that sinks write, as far as they were collected."""
        deltas = self.log.deltas() if self._sinks else {}
        for table in deltas.keys() & self._sinks.keys() & self._versions.keys():
            shown = self._layout.of(table)
            rows = OutgoingRows(self._cursor, self._tables.schema, table, shown.key, shown.columns)
            rows.keep(deltas[table], self._versions[table], self._tables.generation, self._sinks[table])

    def finish(self, batch_id: int | None, offsets: str, *, views_built: bool) -> None:
        """Count join quality, versions and progress; the transaction ends after this."""
        for view in self._layout.views if views_built else self.filled:
            if view not in self.filled:
                for name, sides in view.quality_sides.items():
                    write_quality(self._cursor, self._tables.schema, name, sides)
            elif not self.records or not self.view(view).move_quality():
                continue
            self.log.changed.add("join_quality")
        if self.left_out.came or self.left_out.back:
            self.log.changed.add("join_quality")
        self._versions = next_version(self._cursor, self._tables.schema, *self.log.changed)
        self._keep_outgoing()
        self._cursor.execute(
            f"UPDATE {self._tables.schema}.progress SET batch_id = coalesce(?, batch_id), offsets = ?, "
            f"records = records + ?, views_built = ?, bad = bad + ?",
            [batch_id, offsets, self.records, views_built, self._faulty],
        )


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A table of a generation: its name, its relation, its columns, and the hidden ones that listeners get."""

    table: str
    relation: str
    columns: Collection[str]
    hidden: Sequence[str]


class TrackedWrites:
    """Runs the statements of one batch that add rows to tables or remove them, and notes which tables changed."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, wants: Callable[[str], Wanted | None]) -> None:
        self._cursor = cursor
        self._wants = wants
        self.changed: set[str] = set()
        self._removed: dict[str, list[pa.Table]] = {}
        self._added: dict[str, list[pa.Table]] = {}

    def remove(self, table: WrittenTable, condition: str, read: Callable[[list[str]], pa.Table] | None = None) -> None:
        """Remove rows of a table; `read` gives some of their columns, where the batch has what is in them.

        They are selected before: DELETE ... RETURNING fetches all columns of each row by itself, which takes six times
        as long for 5,000 rows.
        """
        wanted = self._wants(table.table)
        if wanted is None:
            self._run(table.table, f"DELETE FROM {table.relation} WHERE {condition}")
            return
        # Only of columns that there are: a viewer may ask for others, which is its own fault.
        columns = [name for name in table.columns if wanted.every or name in wanted.columns]
        names = ", ".join([*map(quoted, columns), *table.hidden, ROW])
        # Row ids first: only the blocks that have one of the rows are read whole.
        going = f"rowid IN (SELECT rowid FROM {table.relation} WHERE {condition})"
        sql = f"SELECT {names}, rowid AS _at FROM {table.relation} WHERE {going}"
        rows = read(columns) if read else arrow_table(self._cursor, sql)
        self.remove_read(table, rows.select([*columns, *table.hidden, ROW, "_at"]))

    def remove_read(self, table: WrittenTable, rows: pa.Table) -> None:
        """Remove rows that were read; `_at` is where they are."""
        if self._wants(table.table) is not None:
            self._removed.setdefault(table.table, []).append(_told(rows))
        self._cursor.register("_going", {"_at": rows["_at"].to_numpy()})
        self._run(table.table, f"DELETE FROM {table.relation} WHERE rowid IN (SELECT _at FROM _going)")

    def add(self, table: str, sql: str) -> None:
        """Run an INSERT into `table`."""
        if self._wants(table) is None:
            self._run(table, sql)
            return
        returned = arrow_table(self._cursor, f"{sql} RETURNING *")
        self._added.setdefault(table, []).append(_told(returned))
        if returned.num_rows:
            self.changed.add(table)

    def _run(self, table: str, sql: str) -> None:
        if self._cursor.execute(sql).fetchall()[0][0]:
            self.changed.add(table)

    def deltas(self) -> dict[str, Delta]:
        """What changed in each wanted table; a table with too many changed rows is left out."""
        deltas = {}
        for table in self._removed.keys() | self._added.keys():
            removed, added = self._removed.get(table, []), self._added.get(table, [])
            gone = pa.concat_tables(removed) if removed else added[0].slice(0, 0)
            delta = Delta(gone, pa.concat_tables(added) if added else gone.slice(0, 0))
            if delta.size <= MAX_DELTA_ROWS:
                deltas[table] = delta
        return deltas


def _told(rows: pa.Table) -> pa.Table:
    if "_shown" in rows.column_names:
        rows = rows.filter(pc.field("_shown"))
    return rows.drop_columns([n for n in rows.column_names if n in _NEVER_TOLD or n.startswith("_hash")])
