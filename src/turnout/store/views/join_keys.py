"""What stands for a key when Spark joins rows, and which right row of a key is the newest, over rows in memory.

Numbers stand for keys, because they are joined in less time than texts. Equal keys have one number; where different
keys among the rows share a number, which only chance or malice brings about, the key stands for itself.

`plan/joins.py` defines *newest* in SQL. `newest_of` is the same rule in numpy, for few rows, where a statement of
DuckDB takes longer than the work; tests hold both against each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from turnout.plan.offsets import OFFSET_BITS
from turnout.plan.sql_text import quoted
from turnout.plan.tables import ViewTable
from turnout.store.database import first_row

SIGN_BIT = 1
"""Spark's integers have a sign: of a key's hash they hold the upper 63 bits."""


def numbered(key: str, rows: Sequence[pa.Table]) -> list[pa.ChunkedArray]:
    """What stands for the key of each row, in tables that have `_hash`."""
    return unambiguous([table[key] for table in rows], [table["_hash"] for table in rows])


def unambiguous(keys: Sequence[pa.ChunkedArray], hashes: Sequence[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    """What stands for keys whose rows meet, given as columns: the numbers of these hashes, or the keys themselves."""
    numbers = [_number(key, hashed) for key, hashed in zip(keys, hashes, strict=True)]
    return list(keys) if _distinct(keys) > _distinct(numbers) else numbers


def _distinct(columns: Sequence[pa.ChunkedArray]) -> int:
    chunks = [chunk for column in columns for chunk in column.chunks]
    return int(pc.count_distinct(pa.chunked_array(chunks, columns[0].type)).as_py())


def _number(keys: pa.ChunkedArray, hashes: pa.ChunkedArray) -> pa.ChunkedArray:
    """The number of each key; null where the key is."""
    number = pc.shift_right(hashes, pa.scalar(SIGN_BIT, pa.uint64())).cast(pa.int64())
    return pc.if_else(pc.is_valid(keys), number, pa.scalar(None, pa.int64()))


def number_sql(cursor: duckdb.DuckDBPyConnection, view: ViewTable, rows: Mapping[str, str], *, unique: bool) -> str:
    """The SQL of what `numbered` gives; `rows` is a relation for each source.

    With `unique` no two right rows of a source have one key.
    """
    key = quoted(view.key)
    keyed = [f"(SELECT {key} AS k, _hash >> {SIGN_BIT} AS n FROM {o} WHERE {key} IS NOT NULL)" for o in rows.values()]
    if unique and len(keyed) == 2:
        # Without a search for the newest only pairs meet; a quarter of the time.
        meeting = f"SELECT 1 FROM {keyed[0]} AS l JOIN {keyed[1]} AS r ON l.n = r.n WHERE l.k <> r.k LIMIT 1"
    else:
        every = " UNION ALL ".join(f"FROM {rows}" for rows in keyed)
        meeting = f"SELECT 1 FROM ({every}) GROUP BY n HAVING min(k) <> max(k) LIMIT 1"
    # The key itself where different keys that have one number could meet.
    meet = first_row(cursor, meeting) is not None
    return key if meet else f"CASE WHEN {key} IS NOT NULL THEN CAST(_hash >> {SIGN_BIT} AS BIGINT) END"


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
