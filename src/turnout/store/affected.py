"""The rows that a batch concerns, in memory: what comes, what goes, and what was there of the touched keys.

Each table is searched once: row ids by a scan of eight-byte hashes, then the rows. What was there, what comes and what
goes together tell what is there afterwards, so nothing is looked up again. In Arrow and not in temporary tables, which
take longer to make than most batches take otherwise; SQL knows them under the names below.

For a joined view Spark needs to know which rows have one key, and which is newer: not what is in them. It gets keys and
ids, and the ids that it answers get their columns here; `view_files` does the same in SQL, for many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import KEY, OFFSET_BITS, newest_sql, partition_newest_sql, quoted, right_id
from turnout.plan.tables import SourceTable, ViewTable

KEPT = ("_id", "_ts", "_hash")
"""The hidden columns that every row of a source has, besides the hashes of columns that chains join by."""

SIGN_BIT = 1
"""Spark's integers have a sign: of a key's hash they hold the upper 63 bits."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows of a source, as far as a batch concerns them: which were shown before it, and which are after it."""

    rows: pa.Table
    before: Mask
    after: Mask
    keyless_gone: int
    """How many more were there before: of rows without a key only those that come are among `rows`."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The shown rows that a batch takes away from a source, as far as chains need them, and those that it brings."""

    gone: pa.Table
    came: pa.Table


class Affected:
    """The rows of one batch, by source and view."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, table: Callable[[str], str]) -> None:
        self._cursor = cursor
        self._table = table
        self._new: dict[str, pa.Table] = {}
        self._evicted: dict[str, pa.Table] = {}
        self._gone: dict[str, pa.Table] = {}
        self._keyless_gone: dict[str, int] = {}
        self._keys: dict[str, pa.Array] = {}
        self._was: dict[str, pa.Table] = {}
        self._put: dict[str, pa.Table] = {}
        self._moved: dict[str, Moved] = {}
        self._changed: dict[str, Changed] = {}

    def collect_new(self, coming: Sequence[tuple[SourceTable, pa.Table]], ids: Callable[[SourceTable], str]) -> None:
        """The rows that come to some sources; `ids` is the SQL of a row's `_id`, from that of its record.

        SQL knows them as they came, and with `_hash` only where it works on them: each name costs half a statement.
        """
        queries = []
        most = max(len(source.hashed) for source, _ in coming)
        for source, rows in coming:
            self._register(new(source), rows)
            hashes = [*hashes_sql(source), *(f"NULL AS _hash_{n}" for n in range(len(source.hashed) + 1, most + 1))]
            queries.append(f"SELECT {ids(source)} AS _id, {', '.join(hashes)} FROM {new(source)}")
        # In the order of the rows, which DuckDB keeps.
        found, at = self._arrow(" UNION ALL ".join(queries)), 0
        for source, rows in coming:
            own, at = found.slice(at, rows.num_rows), at + rows.num_rows
            names = [*source.columns, "_id", "_ts", *(["_deleted"] if source.latest else [])]
            rows = rows.select(names).set_column(len(source.columns), "_id", own["_id"])
            for name in hash_names(source):
                rows = rows.append_column(name, own[name])
            self._new[source.source] = rows
            if source.latest or source.max_rows is not None:
                self._register(new(source), self._new[source.source])

    def collect_evicted(self, source: SourceTable) -> int:
        """The oldest rows beyond `max_rows`, of what is there and what comes; how many they are."""
        if source.max_rows is None:
            return 0
        table, coming = self._table(source.table), self._new[source.source]
        there = self._cursor.execute(f"SELECT count(*) FROM {table}").fetchone()
        excess = (there[0] if there else 0) + coming.num_rows - source.max_rows
        if excess <= 0:
            return 0
        chosen = ", ".join(["_id", *map(quoted, (source.key, *source.hashed)), *hash_names(source)])
        every = f"SELECT {chosen}, _ts FROM {table} UNION ALL SELECT {chosen}, _ts FROM {new(source)}"
        going = self._arrow(f"SELECT {chosen} FROM ({every}) ORDER BY _ts, _id LIMIT {excess}")
        self._evicted[source.source] = going
        self._register(evicted(source), going)
        old = self._gone[source.source] = going.filter(pc.invert(pc.is_in(going["_id"], coming["_id"])))
        self._keyless_gone[source.source] = old[source.key].null_count
        self._new[source.source] = coming.filter(pc.invert(pc.is_in(coming["_id"], going["_id"])))
        self._register(new(source), self._new[source.source])
        return int(excess)

    def evicts(self, source: SourceTable) -> bool:
        """Whether rows of a source go because there are too many."""
        return source.source in self._evicted

    def collect_keys(self, view: ViewTable) -> None:
        """The keys whose view rows change. A null key is among them only where one row of it is shown (`latest`)."""
        hashes = []
        for source in view.sources:
            nulls = source.latest and source is view.left and not view.own
            for rows in (self._new[source.source], self._evicted.get(source.source)):
                if rows is not None:
                    keyed = rows if nulls or not rows[view.key].null_count else rows.filter(pc.is_valid(rows[view.key]))
                    hashes += keyed["_hash"].chunks
        self._keys[view.table] = pc.unique(pa.chunked_array(hashes, pa.uint64()))
        # DuckDB takes a millisecond less to begin with numbers of numpy than with those of Arrow.
        self._register(keys_table(view), {"_hash": self._keys[view.table].to_numpy()})

    def look_up(self, source: SourceTable, views: Sequence[ViewTable]) -> None:
        """What is there of the keys that these views touch; where only the newest is kept, of those that come, too."""
        keys = [keys_table(view) for view in views if source in view.sources] + ([new(source)] if source.latest else [])
        if not keys:
            return
        table = self._table(source.table)
        hashes = keys[0] if len(keys) == 1 else f"({' UNION ALL '.join(f'SELECT _hash FROM {name}' for name in keys)})"
        hidden = ["_id", "_ts", *hash_names(source), *(["_deleted", "_shown", "rowid AS _at"] if source.latest else [])]
        found = self._arrow(f"SELECT {columns_of(source, *hidden)} FROM {table} WHERE {touched(hashes, table)}")
        self._was[source.source] = found
        if source.latest:
            # Not by SQL: DuckDB hands conditions on hashes to Arrow as numbers that it has no room for.
            again = pc.is_in(found["_hash"], self._new[source.source]["_hash"])
            self._register(was(source), found.filter(again))

    def take_newest(self, source: SourceTable) -> None:
        """Where only the newest is kept: the rows that take the place of those of the same keys, with `_shown`."""
        every = f"(SELECT * EXCLUDE (_shown, _at) FROM {was(source)} UNION ALL BY NAME FROM {new(source)})"
        self._put[source.source] = self._arrow(
            f"WITH kept AS MATERIALIZED (SELECT * EXCLUDE (_nth) FROM ({partition_newest_sql(every, source.key)})), "
            f"winners AS ({newest_sql('kept', source.key)}) "
            f"SELECT *, NOT _deleted AND _id IN (SELECT _id FROM winners) AS _shown FROM kept"
        )
        self._register(put(source), self._put[source.source])

    def changed(self, source: SourceTable) -> Changed:
        """The shown rows that go and come, once all sources are loaded."""
        if (known := self._changed.get(source.source)) is not None:
            return known
        names = ["_id", source.key, *source.hashed, *hash_names(source)]
        came = self._new[source.source]
        gone = self._gone.get(source.source, came.slice(0, 0))
        if source.latest:
            there, put_there = self._was[source.source], self._put[source.source]
            there, came = there.filter(there["_shown"]), put_there.filter(put_there["_shown"])
            again = pc.is_in(there["_hash"], put_there["_hash"])
            gone = there.filter(pc.and_(again, pc.invert(pc.is_in(there["_id"], came["_id"]))))
            came = came.filter(pc.invert(pc.is_in(came["_id"], there["_id"])))
        every = [*source.columns, "_id", "_ts", *hash_names(source)]
        changed = self._changed[source.source] = Changed(gone.select(names), came.select(every))
        return changed

    def moved(self, source: SourceTable) -> Moved:
        """The rows of the touched keys; once those of all sources are looked up."""
        if (known := self._moved.get(source.source)) is not None:
            return known
        there, coming = self._was[source.source], self._new[source.source]
        names = [*source.columns, *KEPT]
        came = self._put[source.source] if source.latest else coming
        rows = pa.concat_tables([there.select(names), came.select(names).cast(there.select(names).schema)])
        shown = there["_shown"] if source.latest else pa.repeat(True, there.num_rows)
        stays = shown
        if source.latest:
            stays = pc.and_not(shown, pc.is_in(there["_hash"], coming["_hash"]))
        elif self.evicts(source):
            stays = pc.invert(pc.is_in(there["_id"], self._evicted[source.source]["_id"]))
        comes = came["_shown"] if source.latest else pa.repeat(True, came.num_rows)
        before = np.concatenate([_mask(shown), np.zeros(came.num_rows, bool)])
        after = np.concatenate([_mask(stays), _mask(comes)])
        moved = self._moved[source.source] = Moved(rows, before, after, self._keyless_gone.get(source.source, 0))
        return moved

    def touched(self, view: ViewTable) -> npt.NDArray[np.uint64]:
        """The hashes of the keys whose view rows may change."""
        found: npt.NDArray[np.uint64] = self._keys[view.table].to_numpy()
        return found

    def of_view(self, view: ViewTable, source: SourceTable) -> Mask:
        """Which rows of `moved` this view sees after the batch, of the keys that it touches."""
        moved = self.moved(source)
        chosen = pc.is_in(moved.rows["_hash"], self._keys[view.table])
        if source is view.left and not source.latest and not view.own:
            # Those that come, each with a row of its own; others are not looked up.
            chosen = pc.or_(chosen, pc.is_null(moved.rows[view.key]))
        return moved.after & _mask(chosen)

    def _register(self, name: str, rows: pa.Table | dict[str, npt.NDArray[np.uint64]]) -> None:
        # By the name as it is without quotes.
        self._cursor.register(name[1:-1].replace('""', '"'), rows)

    def _arrow(self, sql: str) -> pa.Table:
        return self._cursor.execute(sql).to_arrow_table()


def holds(column: pa.ChunkedArray, values: pa.Array) -> Mask:
    """Which rows of a column have one of these values."""
    return _mask(pc.is_in(column, values.cast(column.type)))


def _mask(values: pa.ChunkedArray | pa.Array) -> Mask:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    found: Mask = array.to_numpy(zero_copy_only=False)
    return found


def chosen(rows: pa.Table | pa.ChunkedArray, mask: Mask) -> pa.Table | pa.ChunkedArray:
    """Those of some rows; the rows themselves where these are all."""
    return rows if mask.all() else rows.filter(pa.array(mask))


def touched(keys: str, table: str) -> str:
    """The condition that a row of `table` belongs to one of `keys`.

    By hash alone: rows of another key with the same hash are then worked out anew too, which changes nothing. Row ids
    come first, because they need a scan of eight bytes a row: 4 ms in 1M rows, where all columns take 30.
    """
    return f"rowid IN (SELECT rowid FROM {table} WHERE _hash IN (SELECT _hash FROM {keys}))"


def hash_sql(key: str) -> str:
    """A hash of a key; null keys share one. Another version of DuckDB may have another: see `GenerationTables`."""
    return f"hash(CAST({key} AS VARCHAR))"


def keys_table(view: ViewTable) -> str:
    """The hashes of the keys whose rows in `view` the batch touches."""
    return quoted(f"_keys_{view.table}")


def _rows_of(kind: str, source: SourceTable) -> str:
    return quoted(f"_{kind}_{source.source}")


new = partial(_rows_of, "new")
"""The rows that come."""
evicted = partial(_rows_of, "evicted")
"""The rows that go because there are too many, of those that were there and those that come."""
was = partial(_rows_of, "was")
"""Where only the newest is kept: the rows that were there before the batch, of the keys that come again."""
put = partial(_rows_of, "put")
"""Where only the newest is kept: the rows that take the place of those of the same keys."""


def shown_sql(source: SourceTable, table: str, columns: str = "*") -> str:
    """The rows of a source that are shown: where only the newest is kept, not those that newer ones cover."""
    return f"SELECT {columns} FROM {table}" + (" WHERE _shown" if source.latest else "")


def stored_sql(source: SourceTable, rows: str, ids: str) -> str:
    """Rows as they came, as they are stored."""
    return f"SELECT {columns_of(source, f'{ids} AS _id', '_ts', *hashes_sql(source))} FROM {rows}"


def hash_names(source: SourceTable) -> list[str]:
    """The hidden columns with hashes: of the key, then of what chains join by."""
    return [source.hash_name(column) for column in (source.key, *source.hashed)]


def hashes_sql(source: SourceTable) -> list[str]:
    """What is in them, by their names."""
    return [f"{hash_sql(quoted(c))} AS {source.hash_name(c)}" for c in (source.key, *source.hashed)]


def columns_of(source: SourceTable, *hidden: str) -> str:
    """The declared columns of a source, and some hidden ones, for a SELECT."""
    return ", ".join([*(quoted(column) for column in source.columns), *hidden])


def numbered(key: str, rows: Sequence[pa.Table]) -> list[pa.ChunkedArray]:
    """What stands for the key of each row, in tables that have `_hash`.

    Numbers, because they are joined in less time than texts. Equal keys have one number; where different ones among
    these rows share a number, which only chance or malice brings about, the key stands for itself.
    """
    keys = [table[key] for table in rows]
    return unambiguous(keys, [table["_hash"] for table in rows])


def unambiguous(keys: Sequence[pa.ChunkedArray], hashes: Sequence[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    """What stands for keys whose rows meet, given as columns: the numbers of these hashes, or the keys themselves."""
    numbers = [_number(key, hashed) for key, hashed in zip(keys, hashes, strict=True)]
    return list(keys) if _distinct(keys) > _distinct(numbers) else numbers


def _distinct(columns: Sequence[pa.ChunkedArray]) -> int:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return int(pc.count_distinct(pa.chunked_array(chunks, columns[0].type)).as_py())


def narrowed(view: ViewTable, keys: Sequence[pa.ChunkedArray], rows: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """What Spark gets of some rows of each source, by the names it knows them by, with what stands for their keys.

    Of right rows only the newest of each key, unless all take part: `narrow_sql_if_unique` is enough then.
    """
    found = {}
    for name, source, own, table in zip(view.relations, view.sources, keys, rows, strict=True):
        narrow = pa.table({KEY: own, "_id": table["_id"], "_ts": table["_ts"]})
        found[name] = narrow if source is view.left or view.pairs else newest_of(narrow, KEY)
    return found


def newest_of(rows: pa.Table, key: str) -> pa.Table:
    """The newest row of each key, as `newest_sql` has it; rows without a key, which match nothing, stay behind."""
    if rows[key].null_count:
        rows = rows.filter(pc.is_valid(rows[key]))
    if pc.count_distinct(rows[key]).as_py() == rows.num_rows:
        return rows
    keys = rows[key].combine_chunks().dictionary_encode().indices.to_numpy()
    ids, times = rows["_id"].to_numpy(), rows["_ts"].to_numpy()
    # Ids of one partition are next to each other, and the last of them is the newest there.
    order = np.lexsort((ids, keys))
    order = order[_last(keys[order], ids[order] >> OFFSET_BITS)]
    order = order[np.lexsort((ids[order], times[order], keys[order]))]
    return rows.take(pa.array(order[_last(keys[order])]))


def _last(*columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where the values of sorted rows are others than those of the next row."""
    return np.append(np.logical_or.reduce([column[1:] != column[:-1] for column in columns]), True)


def _number(keys: pa.ChunkedArray, hashes: pa.ChunkedArray) -> pa.ChunkedArray:
    """The number of each key; null where the key is."""
    number = pc.shift_right(hashes, pa.scalar(SIGN_BIT, pa.uint64())).cast(pa.int64())
    return pc.if_else(pc.is_valid(keys), number, pa.scalar(None, pa.int64()))


def widened(view: ViewTable, ids: pa.Table, rows: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a view: those of `ids`, with what the source rows of these ids hold; `_hash`, too, but for chains."""
    left = _taken(rows[view.left.source], ids["_id"])
    sides, shown = [left], {name: left[name] for name in view.left.columns}
    for number, (right, names) in enumerate(zip(view.rights, view.right_names, strict=True)):
        if right_id(number) in ids.column_names:
            sides.append(_taken(rows[right.source], ids[right_id(number)]))
            shown |= {name: sides[-1][column] for column, name in names.items()}
            if view.chain is not None and (step := view.chain.steps[number]).fills:
                known = [shown[step.left_on]] if step.left_on in shown else []
                shown[step.left_on] = pc.coalesce(*known, sides[-1][step.right_on])
    if view.chain is None:
        # All sides of a row have one key, and at least one side is there.
        shown |= {name: pc.coalesce(*(side[name] for side in sides)) for name in (view.key, "_hash")}
    return pa.table(shown | {name: ids[name] for name in ids.column_names})


def _taken(rows: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """The rows of some ids, one for each, of nulls where there is none."""
    rows = rows.combine_chunks()
    return rows.take(pc.index_in(ids, value_set=rows["_id"]))
