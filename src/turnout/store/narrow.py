"""Keys and ids of a view's sources for Spark, and the columns for the ids that it answers.

For a joined view Spark needs to know which rows have one key, and which is newer: not what is in them. Each step is
there twice: in memory for few rows, where a statement takes longer than its work, and as SQL for many.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.joins import KEY, OFFSET_BITS, quoted, right_id
from turnout.plan.tables import ViewTable

_SHIFT = 1
"""Spark's integers have a sign: of a key's hash they hold the upper 63 bits."""


def numbered(key: str, rows: Sequence[pa.Table]) -> list[pa.ChunkedArray]:
    """What stands for the key of each row, in tables that have `_hash`.

    Numbers, because they are joined in less time than texts. Equal keys have one number; where different ones among
    these rows share a number, which only chance or malice brings about, the key stands for itself.
    """
    keys = [table[key] for table in rows]
    numbers = [_number(table, key) for table in rows]
    return keys if _distinct(keys) > _distinct(numbers) else numbers


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
        found[name] = narrow if source is view.left or view.pairs else _newest(narrow)
    return found


def _newest(rows: pa.Table) -> pa.Table:
    """The newest row of each key, as `newest_sql` has it; rows without a key, which match nothing, stay behind."""
    if rows[KEY].null_count:
        rows = rows.filter(pc.is_valid(rows[KEY]))
    if pc.count_distinct(rows[KEY]).as_py() == rows.num_rows:
        return rows
    keys = rows[KEY].combine_chunks().dictionary_encode().indices.to_numpy()
    ids, times = rows["_id"].to_numpy(), rows["_ts"].to_numpy()
    # Ids of one partition are next to each other, and the last of them is the newest there.
    order = np.lexsort((ids, keys))
    order = order[_last(keys[order], ids[order] >> OFFSET_BITS)]
    order = order[np.lexsort((ids[order], times[order], keys[order]))]
    return rows.take(pa.array(order[_last(keys[order])]))


def _last(*columns: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Where the values of sorted rows are others than those of the next row."""
    return np.append(np.logical_or.reduce([column[1:] != column[:-1] for column in columns]), True)


def _number(table: pa.Table, key: str) -> pa.ChunkedArray:
    """The number of each row's key; null where the key is."""
    number = pc.shift_right(table["_hash"], pa.scalar(_SHIFT, pa.uint64())).cast(pa.int64())
    return pc.if_else(pc.is_valid(table[key]), number, pa.scalar(None, pa.int64()))


def widened(view: ViewTable, ids: pa.Table, rows: Mapping[str, pa.Table]) -> pa.Table:
    """The rows of a view: those of `ids`, with what the source rows of these ids hold, and `_hash`."""
    left = _taken(rows[view.left.source], ids["_id"])
    sides, shown = [left], {name: left[name] for name in view.left.columns}
    for number, (right, names) in enumerate(zip(view.rights, view.right_names, strict=True)):
        if right_id(number) in ids.column_names:
            sides.append(_taken(rows[right.source], ids[right_id(number)]))
            shown |= {name: sides[-1][column] for column, name in names.items()}
    # All sides of a row have one key, and at least one side is there.
    shown |= {name: pc.coalesce(*(side[name] for side in sides)) for name in (view.key, "_hash")}
    return pa.table(shown | {name: ids[name] for name in ids.column_names})


def _taken(rows: pa.Table, ids: pa.ChunkedArray) -> pa.Table:
    """The rows of some ids, one for each, of nulls where there is none."""
    rows = rows.combine_chunks()
    return rows.take(pc.index_in(ids, value_set=rows["_id"]))


def key_sql(
    cursor: duckdb.DuckDBPyConnection, view: ViewTable, rows: Mapping[str, str], *, unique: bool = False
) -> str:
    """The SQL of what stands for the key of these rows, as in `narrowed`; `rows` is a relation for each source.

    With `unique` no two right rows of a source have one key.
    """
    key = quoted(view.key)
    shared = cursor.execute(_shared_sql(key, list(rows.values()), unique=unique)).fetchone()
    return f"CASE WHEN {key} IS NOT NULL THEN CAST(_hash >> {_SHIFT} AS BIGINT) END" if shared is None else key


def _shared_sql(key: str, relations: Sequence[str], *, unique: bool) -> str:
    """A row where different keys that have one number could meet."""
    keyed = [f"(SELECT {key} AS k, _hash >> {_SHIFT} AS n FROM {rows} WHERE {key} IS NOT NULL)" for rows in relations]
    if unique and len(keyed) == 2:
        # Without a search for the newest only pairs meet; a quarter of the time.
        return f"SELECT 1 FROM {keyed[0]} AS l JOIN {keyed[1]} AS r ON l.n = r.n WHERE l.k <> r.k LIMIT 1"
    every = " UNION ALL ".join(f"FROM {rows}" for rows in keyed)
    return f"SELECT 1 FROM ({every}) GROUP BY n HAVING min(k) <> max(k) LIMIT 1"


def narrow_columns(key: str, *, times: bool) -> str:
    """What the join needs of a row, for a SELECT, with the `key_sql`; times only to find the newest."""
    return f"{key} AS {quoted(KEY)}, _id{', _ts' if times else ''}"


def widened_sql(view: ViewTable, ids: str, columns: Collection[str], rows: Mapping[str, str]) -> str:
    """The SQL of what `widened` gives; `ids` is a relation of these `columns`, `rows` one for each source."""
    left = rows[view.left.source]
    keyed = ["l"]
    shown = {name: f"l.{quoted(name)}" for name in view.left.columns}
    joined = f"{ids} AS i LEFT JOIN {left} AS l ON l._id = i._id"
    for number, (right, names) in enumerate(zip(view.rights, view.right_names, strict=True)):
        if right_id(number) not in columns:
            continue
        keyed.append(f"r{number}")
        joined += f" LEFT JOIN {rows[right.source]} AS r{number} ON r{number}._id = i.{right_id(number)}"
        shown |= {name: f"r{number}.{quoted(column)}" for column, name in names.items()}
    # All sides of a row have one key, and at least one side is there.
    shown[view.key] = f"coalesce({', '.join(f'{side}.{quoted(view.key)}' for side in keyed)})"
    chosen = ", ".join(f"{value} AS {quoted(name)}" for name, value in shown.items())
    return f"SELECT {chosen}, i.*, coalesce({', '.join(f'{side}._hash' for side in keyed)}) AS _hash FROM {joined}"
