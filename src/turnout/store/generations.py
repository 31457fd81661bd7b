"""The tables of one generation in the store: made, filled batch by batch, and dropped.

A batch is one transaction: source rows, view rows, bad records, join quality and the batch's number. The join itself
is not done here: the rows of the keys that a batch touches are handed out, and the view's new rows are taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa

from turnout.columns import ColumnType
from turnout.joins import newest_sql, partition_newest_sql, quoted
from turnout.layout import Layout, SourceTable, ViewTable
from turnout.store import identity
from turnout.store.database import Database, next_version, sql_text
from turnout.store.deltas import DeltaLog
from turnout.store.feed import MAX_DELTA_ROWS, Commit, Wanted
from turnout.store.quality import QualityCount, keys_table, touched, write_quality

_PLACE = 'topic, "partition", "offset"'


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a generation has got: its last batch, the offsets after it, and whether its views are built."""

    batch_id: int = -1
    offsets: str = "{}"
    records: int = 0
    views_built: bool = False


@dataclass(slots=True)
class BatchResult:
    """What one batch changed."""

    records: int = 0
    bad: int = 0
    evicted: dict[str, int] = field(default_factory=dict)


class GenerationTables:
    """The schema `g<N>`. One thread writes it; readers see whole batches."""

    def __init__(self, database: Database, generation: int, layout: Layout) -> None:
        self.database = database
        self.generation = generation
        self.layout = layout
        self.schema = f"g{generation}"

    def create(self, cursor: duckdb.DuckDBPyConnection, *, views_built: bool) -> None:
        """Make the empty tables inside the caller's transaction; with nothing to catch up on, its views are built."""
        cursor.execute(f"CREATE SCHEMA {self.schema}")
        for source in self.layout.sources:
            hidden = "_id BIGINT, _ts TIMESTAMP WITH TIME ZONE, _hash UBIGINT"
            if source.latest:
                hidden += ", _deleted BOOLEAN, _shown BOOLEAN"
            shape = f"{_declared(source.columns)}, {hidden}, {_row(identity.of_source(source))}"
            cursor.execute(f"CREATE TABLE {self.table(source.table)} ({shape})")
        for view in self.layout.views:
            hidden = "_id BIGINT, _right_id BIGINT, _hash UBIGINT"
            shape = f"{_declared(view.columns)}, {hidden}, {_row(identity.of_view(view))}"
            cursor.execute(f"CREATE TABLE {self.table(view.table)} ({shape})")
        cursor.execute(
            f"CREATE TABLE {self.schema}.bad_records (_id BIGINT, ts TIMESTAMP WITH TIME ZONE, topic VARCHAR, "
            f'"partition" INTEGER, "offset" BIGINT, field VARCHAR, reason VARCHAR, value VARCHAR, '
            f"{_row(identity.BAD_RECORD)})"
        )
        cursor.execute(
            f"CREATE TABLE {self.schema}.join_quality (_id BIGINT, view VARCHAR, leftRows BIGINT, rightRows BIGINT, "
            f"matched BIGINT, unmatchedLeft BIGINT, unmatchedRight BIGINT, duplicateRightKeys BIGINT, nullKeys BIGINT, "
            f"{_row(identity.QUALITY)})"
        )
        for index, view in enumerate(self.layout.views):
            cursor.execute(
                f"INSERT INTO {self.schema}.join_quality VALUES (?, ?, 0, 0, 0, 0, 0, 0, 0)",
                [index, view.table],
            )
        cursor.execute(f"CREATE TABLE {self.schema}.versions (name VARCHAR, version BIGINT)")
        cursor.execute(
            f"CREATE TABLE {self.schema}.progress "
            f"(batch_id BIGINT, offsets VARCHAR, records BIGINT, views_built BOOLEAN)"
        )
        cursor.execute(f"INSERT INTO {self.schema}.progress VALUES (-1, '{{}}', 0, ?)", [views_built])

    def drop(self, cursor: duckdb.DuckDBPyConnection) -> None:
        cursor.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")

    def publish(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Point the stable names at this generation, inside the caller's transaction."""
        shown = {source.table for source in self.layout.sources if source.latest}
        for table in self.layout.tables:
            where = "WHERE _shown" if table in shown else ""
            cursor.execute(f"CREATE OR REPLACE VIEW main.{quoted(table)} AS FROM {self.table(table)} {where}")
        cursor.execute("UPDATE turnout.published SET generation = ?", [self.generation])

    def progress(self, cursor: duckdb.DuckDBPyConnection | None = None) -> Progress:
        if cursor is None:
            with self.database.read() as reading:
                return self.progress(reading)
        row = cursor.execute(f"SELECT batch_id, offsets, records, views_built FROM {self.schema}.progress").fetchone()
        return Progress(*row) if row else Progress()

    @contextmanager
    def batch(self, batch_id: int) -> Iterator[Batch | None]:
        """One batch in one transaction; None where the batch is already in the store (Spark replays after a crash)."""
        with self.database.transaction() as cursor:
            progress = self.progress(cursor)
            batch = None if batch_id <= progress.batch_id else Batch(self, cursor, progress)
            yield batch
        if batch is not None:
            self.database.feed.tell(Commit(self.generation, batch.versions, batch.log.deltas()))

    def table(self, name: str) -> str:
        """The physical table of this generation."""
        return f"{self.schema}.{quoted(name)}"


class Batch:
    """A batch being written. Call `load`, then for each view `affected` and `replace`, then `finish`."""

    def __init__(self, tables: GenerationTables, cursor: duckdb.DuckDBPyConnection, progress: Progress) -> None:
        self._tables = tables
        self._layout = tables.layout
        self._cursor = cursor
        self._progress = progress
        self._before: dict[str, QualityCount] = {}
        self._changed: list[str] = []
        self.versions: dict[str, int] = {}
        # As it was when the batch began: half of a change would be worse than none.
        self._wanted = tables.database.feed.wanted
        self.log = DeltaLog(cursor, self._wants)
        self.result = BatchResult()

    @property
    def views_built(self) -> bool:
        return self._progress.views_built

    @property
    def offsets(self) -> str:
        """Where the batch before this one ended."""
        return self._progress.offsets

    def _wants(self, table: str) -> Wanted | None:
        """What somebody wants to know of changed rows. While a generation catches up nobody looks at it."""
        few = self.result.records <= MAX_DELTA_ROWS
        return self._wanted.get(table) if self.views_built and few else None

    def load(self, records: pa.Table) -> None:
        """Take decoded records: source rows, and what is wrong with the others."""
        self.result.records = records.num_rows
        if not records.num_rows:
            return
        self._cursor.register("_records", records)
        for index, source in enumerate(self._layout.sources):
            self._collect_new(index, source)
            self._collect_evicted(source)
        if self.views_built:
            for view in self._layout.views:
                self._collect_keys(view)
                self._before[view.table] = QualityCount.of_keys(self._cursor, self._tables.schema, view)
        for source in self._layout.sources:
            self._merge(source) if source.latest else self._append(source)
        self._note_bad_records()

    def _run(self, sql: str) -> int:
        """Run a statement; the number of rows it changed, where it changes rows."""
        row = self._cursor.execute(sql).fetchone()
        return int(row[0]) if row else 0

    def _collect_new(self, index: int, source: SourceTable) -> None:
        columns = ", ".join(f"row_{index}.{quoted(c)} AS {quoted(c)}" for c in source.columns)
        self._run(
            f"CREATE OR REPLACE TEMP TABLE {_new(source)} AS SELECT {columns}, _id, _ts, "
            f"{_hash(f'row_{index}.{quoted(source.key)}')} AS _hash, _deleted FROM _records "
            f"WHERE row_{index} IS NOT NULL"
        )

    def _collect_evicted(self, source: SourceTable) -> None:
        """The oldest rows beyond `max_rows`, of what is there and what comes."""
        table, new = self._tables.table(source.table), _new(source)
        excess = 0
        if source.max_rows is not None:
            total = f"SELECT (SELECT count(*) FROM {table}) + (SELECT count(*) FROM {new})"
            excess = max(0, self._run(total) - source.max_rows)
        chosen = f"_id, {quoted(source.key)}, _hash"
        oldest = (
            f"SELECT {chosen} FROM (SELECT {chosen}, _ts FROM {table} UNION ALL SELECT {chosen}, _ts FROM {new}) "
            f"ORDER BY _ts, _id LIMIT {excess}"
        )
        self._run(f"CREATE OR REPLACE TEMP TABLE {_evicted(source)} AS {oldest}")
        if excess:
            self.result.evicted[source.table] = excess

    def _collect_keys(self, view: ViewTable) -> None:
        """The keys whose view rows change. A null key is among them only where one row of it is shown (`latest`)."""
        key = quoted(view.key)
        parts = []
        for source in (view.left, view.right):
            nulls = "" if source.latest and source is view.left else f" WHERE {key} IS NOT NULL"
            parts += [f"SELECT _hash FROM {t}{nulls}" for t in (_new(source), _evicted(source))]
        self._run(f"CREATE OR REPLACE TEMP TABLE {keys_table(view)} AS {' UNION '.join(parts)}")

    def _append(self, source: SourceTable) -> None:
        table = self._tables.table(source.table)
        chosen = ", ".join([quoted(c) for c in source.columns] + ["_id", "_ts", "_hash"])
        evicted, gone, staying = self.result.evicted.get(source.table), 0, ""
        if evicted:
            gone = self.log.remove(source.table, table, f"_id IN (SELECT _id FROM {_evicted(source)})", ["_id"])
            staying = f" WHERE _id NOT IN (SELECT _id FROM {_evicted(source)})"
        added = self.log.add(source.table, f"INSERT INTO {table} BY NAME SELECT {chosen} FROM {_new(source)}{staying}")
        if added or gone:
            self._changed.append(source.table)

    def _merge(self, source: SourceTable) -> None:
        """`rows: latest`: of each touched key keep the newest of each partition, and show the newest of those.

        A tombstone is kept as a row that is not shown, so that an older record of another partition stays hidden.
        """
        table, new = self._tables.table(source.table), _new(source)
        old = touched(new, table)
        every = f"(SELECT * EXCLUDE (_shown, _row) FROM {table} WHERE {old} UNION ALL BY NAME SELECT * FROM {new})"
        self._run(f"CREATE OR REPLACE TEMP TABLE _kept AS {partition_newest_sql(every, source.key)}")
        winners = newest_sql("_kept_rows", source.key)
        changed = self.log.remove(source.table, table, old, ["_id", "_shown"])
        added = self.log.add(
            source.table,
            f"INSERT INTO {table} BY NAME WITH _kept_rows AS (SELECT * EXCLUDE (_nth) FROM _kept), "
            f"winners AS ({winners}) "
            f"SELECT *, NOT _deleted AND _id IN (SELECT _id FROM winners) AS _shown FROM _kept_rows",
        )
        if changed or added:
            self._changed.append(source.table)

    def _note_bad_records(self) -> None:
        faults = " UNION ALL ".join(
            f"SELECT _id, _ts, {_PLACE}, unnest(faults_{index}) AS fault, _text FROM _records "
            f"WHERE len(faults_{index}) > 0"
            for index in range(len(self._layout.sources))
        )
        self.result.bad = self.log.add(
            "bad_records",
            f"INSERT INTO {self._tables.schema}.bad_records SELECT DISTINCT _id, _ts, {_PLACE}, "
            f"fault.field, fault.reason, _text FROM ({faults})",
        )
        if self.result.bad:
            self._changed.append("bad_records")

    def affected(self, view: ViewTable) -> dict[str, pa.Table] | None:
        """The shown rows of the keys that this batch touches, for each side of `view`; None where it touches none."""
        if not self.result.records:
            return None
        left = self._rows_of_keys(view, view.left)
        if not view.left.latest:
            keyless = f"{_selected(view.left, _new(view.left))} AND {quoted(view.key)} IS NULL"
            left += f" UNION ALL {keyless} AND _id NOT IN (SELECT _id FROM {_evicted(view.left)})"
        rows = {
            view.left.source: self._cursor.execute(left).to_arrow_table(),
            view.right.source: self._cursor.execute(self._rows_of_keys(view, view.right)).to_arrow_table(),
        }
        keys = self._run(f"SELECT count(*) FROM {keys_table(view)}")
        return rows if keys or any(table.num_rows for table in rows.values()) else None

    def _rows_of_keys(self, view: ViewTable, source: SourceTable) -> str:
        table = self._tables.table(source.table)
        return f"{_selected(source, table)} AND {touched(keys_table(view), table)}"

    def replace(self, view: ViewTable, rows: pa.Table) -> None:
        """Put the view's new rows of the touched keys in place of its old ones."""
        table, key = self._tables.table(view.table), quoted(view.key)
        ids = ["_id", "_right_id"]
        removed = self.log.remove(view.table, table, touched(keys_table(view), table), ids)
        if not view.left.latest:
            gone = f"{key} IS NULL AND _id IN (SELECT _id FROM {_evicted(view.left)} WHERE {key} IS NULL)"
            removed += self.log.remove(view.table, table, gone, ids)
        added = self._insert_rows(view, rows)
        if removed or added:
            self._changed.append(view.table)

    def export(self, view: ViewTable, folder: Path) -> dict[str, Path]:
        """Write all shown rows of both sides as Parquet files, by source."""
        files = {}
        for source in (view.left, view.right):
            files[source.source] = folder / f"{source.source}.parquet"
            rows = _selected(source, self._tables.table(source.table))
            self._run(f"COPY ({rows}) TO '{sql_text(files[source.source])}' (FORMAT parquet)")
        return files

    def size(self, view: ViewTable) -> int:
        """How many rows the two sides of a view have."""
        return sum(self._run(f"SELECT count(*) FROM {self._tables.table(s.table)}") for s in (view.left, view.right))

    def everything(self, view: ViewTable) -> dict[str, pa.Table]:
        """All shown rows of both sides, by source."""
        return {
            source.source: self._cursor.execute(_selected(source, self._tables.table(source.table))).to_arrow_table()
            for source in (view.left, view.right)
        }

    def build(self, view: ViewTable, rows: pa.Table) -> None:
        """Fill the whole view, once its sources have caught up."""
        self._insert_rows(view, rows)
        self._changed.append(view.table)

    def build_from_files(self, view: ViewTable, folder: Path) -> None:
        """Fill the whole view from the Parquet files in `folder`."""
        self._insert(view, f"read_parquet('{sql_text(folder)}/*.parquet')")
        self._changed.append(view.table)

    def _insert_rows(self, view: ViewTable, rows: pa.Table) -> int:
        self._cursor.register("_view_rows", rows)
        added = self._insert(view, "_view_rows")
        self._cursor.unregister("_view_rows")
        return added

    def _insert(self, view: ViewTable, rows: str) -> int:
        return self.log.add(
            view.table,
            f"INSERT INTO {self._tables.table(view.table)} BY NAME "
            f"SELECT *, {_hash(quoted(view.key))} AS _hash FROM {rows}",
        )

    def dead_letters(self) -> pa.Table | None:
        """The records that gave no row, as they came, with where from and why; None where there are none."""
        if not self.result.bad:
            return None
        whole = " OR ".join(f"row_{i} IS NOT NULL" for i in range(len(self._layout.sources)))
        faults = ", ".join(f"faults_{i}" for i in range(len(self._layout.sources)))
        letters = self._cursor.execute(
            f"SELECT _key AS key, _value AS value, {_PLACE}, coalesce({faults})[1].reason AS reason "
            f"FROM _records WHERE NOT ({whole})"
        ).to_arrow_table()
        return letters if letters.num_rows else None

    def finish(self, batch_id: int, offsets: str, *, views_built: bool) -> None:
        """Count join quality, versions and progress; the transaction ends after this."""
        for view in self._layout.views if views_built else ():
            if self.views_built and not self._before:
                continue
            write_quality(self._cursor, self._tables.schema, view, self._before.get(view.table))
            self._changed.append("join_quality")
        self.versions = next_version(self._cursor, self._tables.schema, *dict.fromkeys(self._changed))
        self._cursor.execute(
            f"UPDATE {self._tables.schema}.progress "
            f"SET batch_id = ?, offsets = ?, records = records + ?, views_built = ?",
            [batch_id, offsets, self.result.records, views_built],
        )


def _declared(columns: Mapping[str, ColumnType]) -> str:
    return ", ".join(f"{quoted(name)} {kind.duckdb}" for name, kind in columns.items())


def _row(expression: str) -> str:
    return f"{identity.ROW} VARCHAR GENERATED ALWAYS AS ({expression}) VIRTUAL"


def _hash(key: str) -> str:
    """A hash of a key that is the same in every version of the store; null keys share one."""
    return f"coalesce(md5_number_lower(CAST({key} AS VARCHAR)), 0::UBIGINT)"


def _selected(source: SourceTable, table: str) -> str:
    """The rows of a source that are shown, with what the view's SQL needs of them."""
    columns = ", ".join([quoted(column) for column in source.columns] + ["_id", "_ts"])
    return f"SELECT {columns} FROM {table} WHERE {'_shown' if source.latest else 'true'}"


def _new(source: SourceTable) -> str:
    return quoted(f"_new_{source.source}")


def _evicted(source: SourceTable) -> str:
    return quoted(f"_evicted_{source.source}")
