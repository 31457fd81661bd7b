"""The source rows that one batch concerns, in memory: those that arrive, those that go, those stored of touched keys.

Each table is searched once: row ids by a scan of eight-byte hashes, then the rows. What was stored, what arrives and
what goes together tell what is there afterwards, so nothing is looked up again. The rows are in Arrow and not in
temporary tables, which take longer to make than most batches take otherwise; `SourceRows` names them for SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.offsets import OFFSET_BITS
from turnout.plan.sql_text import quoted
from turnout.plan.tables import SourceTable, ViewTable
from turnout.store.database import arrow_table, scalar
from turnout.store.identity import ROW

KEPT = ("_id", "_ts", "_hash")
"""The hidden columns that every row of a source has, besides the hashes of columns that chains join by."""

Mask = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]
Ids = npt.NDArray[np.int64]


def keys_relation(view: ViewTable) -> str:
    """The relation with the hashes of the keys whose rows in `view` the batch touches."""
    return quoted(f"_keys_{view.table}")


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """The rows of a source that have a touched key: which were shown before the batch, and which are after it."""

    rows: pa.Table
    before: Mask
    after: Mask
    keyless_gone: int
    """How many more were shown before: of rows without a key only those that arrive are among `rows`."""


class ShownChange(NamedTuple):
    """The shown rows that a batch takes from a source, with the columns that chains need, and those that it brings."""

    gone: pa.Table
    came: pa.Table


class SourceRows:
    """The rows of one source that a batch concerns, once they are collected."""

    arriving: pa.Table
    stored: pa.Table
    """The stored rows of touched keys, with `rows: latest` also those of arriving keys."""
    replaced: pa.Table
    """With `rows: latest`: the stored rows of arriving keys, with `_at`, and with `_row` if their table is followed."""
    replacing: pa.Table
    """With `rows: latest`: the rows that take the place of stored ones, with `_shown`."""

    def __init__(self, source: SourceTable) -> None:
        self.source = source
        self.evicted: pa.Table | None = None
        """The oldest rows beyond `max_rows`, of those stored and those arriving."""

    def relation(self, role: str) -> str:
        """The name under which SQL finds rows: those `arriving` and `evicted`.

        With `rows: latest` those `replacing` stored ones; of those `arriving` only the hashes of their keys.
        """
        return quoted(f"_{role}_{self.source.source}")

    @cached_property
    def _gone(self) -> pa.Table:
        """The stored rows that are evicted."""
        if self.evicted is None:
            return self.arriving.slice(0, 0)
        return self.evicted.filter(self.evicted["_stored"])

    @cached_property
    def change(self) -> ShownChange:
        """The shown rows that go and come, once all sources are loaded."""
        source, came, gone = self.source, self.arriving, self._gone
        if source.latest:
            stored, came = (rows.filter(rows["_shown"]) for rows in (self.stored, self.replacing))
            again = pc.is_in(stored["_hash"], self.replacing["_hash"])
            gone = stored.filter(pc.and_(again, pc.invert(pc.is_in(stored["_id"], came["_id"]))))
            came = came.filter(pc.invert(pc.is_in(came["_id"], stored["_id"])))
        names = ["_id", source.key, *source.hashed, *hash_names(source)]
        return ShownChange(gone.select(names), came.select([*source.columns, "_id", "_ts", *hash_names(source)]))

    @cached_property
    def touched(self) -> TouchedRows:
        """The rows of the touched keys; once those of all sources are looked up."""
        stored, latest = self.stored, self.source.latest
        names = [*self.source.columns, *KEPT]
        came = self.replacing if latest else self.arriving
        rows = pa.concat_tables([stored.select(names), came.select(names).cast(stored.select(names).schema)])
        shown, comes = ((some["_shown"] if latest else pa.repeat(True, some.num_rows)) for some in (stored, came))
        stays = shown
        if latest:
            stays = pc.and_not(shown, pc.is_in(stored["_hash"], self.arriving["_hash"]))
        elif self.evicted is not None:
            stays = pc.invert(pc.is_in(stored["_id"], self.evicted["_id"]))
        before = np.concatenate([_mask(shown), np.zeros(came.num_rows, bool)])
        after = np.concatenate([_mask(stays), _mask(comes)])
        return TouchedRows(rows, before, after, self._gone[self.source.key].null_count)


class BatchRows:
    """The rows of one batch, by source and view."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, table: Callable[[str], str]) -> None:
        self._cursor = cursor
        self._table = table
        self._sources: dict[str, SourceRows] = {}
        self._keys: dict[str, pa.Array] = {}

    def of(self, source: SourceTable) -> SourceRows:
        return self._sources.setdefault(source.source, SourceRows(source))

    def collect_arriving(
        self, coming: Sequence[tuple[SourceTable, pa.Table]], ids: Callable[[SourceTable], str]
    ) -> None:
        """Take the rows that arrive for some sources; `ids` is the SQL of a row's `_id`, from that of its record.

        SQL knows them as they came, and with `_hash` only where it works on them: each name costs half a statement.
        """
        queries = []
        most = max(len(source.hashed) for source, _ in coming)
        for source, rows in coming:
            arriving = self.of(source).relation("arriving")
            self._register(arriving, rows)
            hashes = [*hashes_sql(source), *(f"NULL AS _hash_{n}" for n in range(len(source.hashed) + 1, most + 1))]
            queries.append(f"SELECT {ids(source)} AS _id, {', '.join(hashes)} FROM {arriving}")
        # In the order of the rows, which DuckDB keeps.
        numbered, at = arrow_table(self._cursor, " UNION ALL ".join(queries)), 0
        for source, rows in coming:
            own, at = numbered.slice(at, rows.num_rows), at + rows.num_rows
            names = [*source.columns, "_id", "_ts", *(["_deleted"] if source.latest else [])]
            rows = rows.select(names).set_column(len(source.columns), "_id", own["_id"])
            for name in hash_names(source):
                rows = rows.append_column(name, own[name])
            self.of(source).arriving = rows
            if source.max_rows is not None:
                self._register(self.of(source).relation("arriving"), rows)
            elif source.latest:
                self._register(self.of(source).relation("arriving"), {"_hash": rows["_hash"].to_numpy()})

    def collect_evicted(self, source: SourceTable) -> int:
        """Find the oldest rows beyond `max_rows`, of those stored and those arriving; return how many they are."""
        if source.max_rows is None:
            return 0
        own = self.of(source)
        table, coming = self._table(source.table), own.arriving
        excess = scalar(self._cursor, f"SELECT count(*) FROM {table}") + coming.num_rows - source.max_rows
        if excess <= 0:
            return 0
        names = ", ".join(["_id", *map(quoted, (source.key, *source.hashed)), *hash_names(source)])
        every = f"SELECT {names}, _ts FROM {table} UNION ALL SELECT {names}, _ts FROM {own.relation('arriving')}"
        going = arrow_table(self._cursor, f"SELECT {names} FROM ({every}) ORDER BY _ts, _id LIMIT {excess}")
        own.evicted = going.append_column("_stored", pc.invert(pc.is_in(going["_id"], coming["_id"])))
        self._register(own.relation("evicted"), own.evicted)
        own.arriving = coming.filter(pc.invert(pc.is_in(coming["_id"], going["_id"])))
        self._register(own.relation("arriving"), own.arriving)
        return int(excess)

    def collect_keys(self, view: ViewTable) -> None:
        """Find the keys whose view rows change; a null key only where one row of it is shown (`rows: latest`)."""
        hashes = []
        for source in view.sources:
            nulls = source.latest and source is view.left and view.shows_null_keys
            for rows in (self.of(source).arriving, self.of(source).evicted):
                if rows is not None:
                    keyed = rows if nulls or not rows[view.key].null_count else rows.filter(pc.is_valid(rows[view.key]))
                    hashes += keyed["_hash"].chunks
        self._keys[view.table] = pc.unique(pa.chunked_array(hashes, pa.uint64()))
        # DuckDB takes a millisecond less to begin with numbers of numpy than with those of Arrow.
        self._register(keys_relation(view), {"_hash": self._keys[view.table].to_numpy()})

    def look_up(self, source: SourceTable, views: Sequence[ViewTable], *, followed: bool) -> None:
        """Read the stored rows of all keys that these views need; with `rows: latest` also those of arriving keys."""
        own = self.of(source)
        keys = [keys_relation(view) for view in views if source in view.sources]
        keys += [own.relation("arriving")] if source.latest else []
        if not keys:
            return
        table = self._table(source.table)
        hashes = keys[0] if len(keys) == 1 else f"({' UNION ALL '.join(f'SELECT _hash FROM {name}' for name in keys)})"
        latest = ["_deleted", "_shown", "rowid AS _at", *([ROW] if followed else [])] if source.latest else []
        hidden = ["_id", "_ts", *hash_names(source), *latest]
        sql = f"SELECT {columns_of(source, *hidden)} FROM {table} WHERE {has_key_in(hashes, table)}"
        own.stored = arrow_table(self._cursor, sql)
        if source.latest:
            # Not by SQL: DuckDB hands conditions on hashes to Arrow as numbers that it has no room for.
            own.replaced = own.stored.filter(pc.is_in(own.stored["_hash"], own.arriving["_hash"]))

    def take_newest(self, source: SourceTable) -> None:
        """With `rows: latest`: choose the rows that take the place of the stored ones, with `_shown`."""
        own = self.of(source)
        stored = own.replaced.select(own.arriving.column_names)
        rows = pa.concat_tables([stored, own.arriving.cast(stored.schema)])
        order, newest = newest_order(rows, source.key)
        kept, shown = np.zeros((2, rows.num_rows), bool)
        kept[order], shown[order[newest]] = True, True
        # Not taken by number: Arrow would join the chunks of a column, and one has two gigabytes of text at most.
        rows = chosen(rows, kept)
        hidden = rows["_deleted"].combine_chunks()
        own.replacing = rows.append_column("_shown", pc.and_not(pa.array(shown[kept]), hidden))
        self._register(own.relation("replacing"), own.replacing)

    def key_hashes(self, view: ViewTable) -> Hashes:
        """The hashes of the keys whose view rows may change."""
        hashes: Hashes = self._keys[view.table].to_numpy()
        return hashes

    def seen_by(self, view: ViewTable, source: SourceTable) -> Mask:
        """Mark the rows of `touched` that this view sees after the batch, of the keys that it touches."""
        touched = self.of(source).touched
        seen = pc.is_in(touched.rows["_hash"], self._keys[view.table])
        if source is view.left and not source.latest and view.shows_null_keys:
            # Those that arrive, each with a row of its own; others are not looked up.
            seen = pc.or_(seen, pc.is_null(touched.rows[view.key]))
        return touched.after & _mask(seen)

    def _register(self, name: str, rows: pa.Table | dict[str, Hashes]) -> None:
        # By the name as it is without quotes.
        self._cursor.register(name[1:-1].replace('""', '"'), rows)


def newest_order(rows: pa.Table, key: str) -> tuple[Ids, Mask]:
    """The rows that are the newest of their key and partition, by number; and which are the newest of their key.

    This is the rule of `newest_sql` in numpy, for few rows: a statement of DuckDB takes longer than the work. Tests
    hold both against each other. Rows without a key are those of one key.
    """
    keys = rows[key].combine_chunks().dictionary_encode()
    if len(keys.dictionary) == rows.num_rows:
        return np.arange(rows.num_rows), np.ones(rows.num_rows, bool)
    codes = keys.indices.fill_null(-1).to_numpy()
    ids, times = rows["_id"].to_numpy(), rows["_ts"].to_numpy()
    # Ids of one partition are next to each other, and the last of them is the newest there.
    order = np.lexsort((ids, codes))
    order = order[_last(codes[order], ids[order] >> OFFSET_BITS)]
    order = order[np.lexsort((ids[order], times[order], codes[order]))]
    return order, _last(codes[order])


def newest_of(rows: pa.Table, key: str) -> pa.Table:
    """The newest row of each key, as `newest_sql` has it; rows without a key, which match nothing, stay behind."""
    rows = rows.filter(pc.is_valid(rows[key])) if rows[key].null_count else rows
    order, newest = newest_order(rows, key)
    return rows if len(order) == rows.num_rows and newest.all() else rows.take(pa.array(order[newest]))


def _last(*columns: Ids) -> Mask:
    """Where the values of sorted rows are others than those of the next row."""
    return np.append(np.logical_or.reduce([column[1:] != column[:-1] for column in columns]), True)


def holds(column: pa.ChunkedArray, values: pa.Array) -> Mask:
    """Mark the rows of a column that have one of these values."""
    return _mask(pc.is_in(column, values.cast(column.type)))


def _mask(values: pa.ChunkedArray | pa.Array) -> Mask:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask


def chosen(rows: pa.Table | pa.ChunkedArray, mask: Mask) -> pa.Table | pa.ChunkedArray:
    """The rows of a mask; the rows themselves where these are all."""
    return rows if mask.all() else rows.filter(pa.array(mask))


def has_key_in(keys: str, table: str) -> str:
    """The condition that a row of `table` belongs to one of `keys`.

    By hash alone: rows of another key with the same hash are then worked out anew too, which changes nothing. Row ids
    come first, because they need a scan of eight bytes a row: 4 ms in 1M rows, where all columns take 30.
    """
    return f"rowid IN (SELECT rowid FROM {table} WHERE _hash IN (SELECT _hash FROM {keys}))"


def hash_sql(key: str) -> str:
    """A hash of a key; null keys share one. Another version of DuckDB may have another: see `GenerationTables`."""
    return f"hash(CAST({key} AS VARCHAR))"


def shown_sql(source: SourceTable, table: str, columns: str = "*") -> str:
    """The rows of a source that are shown: with `rows: latest`, not those that newer ones cover."""
    return f"SELECT {columns} FROM {table}" + (" WHERE _shown" if source.latest else "")


def stored_sql(source: SourceTable, rows: str, ids: str) -> str:
    """Rows as they came, in the form in which they are stored."""
    return f"SELECT {columns_of(source, f'{ids} AS _id', '_ts', *hashes_sql(source))} FROM {rows}"


def hash_names(source: SourceTable) -> list[str]:
    """The hidden columns with hashes: of the key, then of what chains join by."""
    return [source.hash_name(column) for column in (source.key, *source.hashed)]


def hashes_sql(source: SourceTable) -> list[str]:
    """The SQL of the columns of `hash_names`."""
    return [f"{hash_sql(quoted(c))} AS {source.hash_name(c)}" for c in (source.key, *source.hashed)]


def hashes_of(source: SourceTable, rows: pa.Table, column: str) -> Hashes:
    """The hashes of the values of a column; null has none."""
    hashes = rows[source.hash_name(column)]
    if rows[column].null_count:
        hashes = hashes.filter(pc.is_valid(rows[column]))
    found: Hashes = pc.unique(hashes).to_numpy()
    return found


def columns_of(source: SourceTable, *hidden: str) -> str:
    """The declared columns of a source, and some hidden ones, for a SELECT."""
    return ", ".join([*(quoted(column) for column in source.columns), *hidden])
