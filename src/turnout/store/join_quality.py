"""`join_quality`: how well the sides of a view match, kept up to date from the keys that a batch touches.

A left row is matched if every right side has a row of its key, and a right row if the left side has. Only sums over
touched keys are taken before and after a batch, so its cost does not grow with the tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turnout.plan.joins import quoted
from turnout.plan.tables import ViewTable
from turnout.store.affected import Mask, Moved, shown_sql

_COLUMNS = ("leftRows", "rightRows", "matched", "unmatchedLeft", "unmatchedRight", "duplicateRightKeys", "nullKeys")

Numbers = npt.NDArray[np.int64]


def write_quality(cursor: duckdb.DuckDBPyConnection, schema: str, view: ViewTable) -> None:
    """Write the row of `view`, counted over all rows."""
    key = quoted(view.key)
    rows = " UNION ALL ".join(
        shown_sql(source, f"{schema}.{quoted(source.table)}", f"{key} AS key, {side} AS side")
        for side, source in enumerate(view.sources)
    )
    rights = range(1, len(view.sources))
    counted = ", ".join(f"count(*) FILTER (side = {side}) AS n{side}" for side in (0, *rights))
    matched = " AND ".join(["key IS NOT NULL", *(f"n{side} > 0" for side in rights)])
    others = " + ".join(["0", *(f"n{side}" for side in rights)])
    twice = " + ".join(["0", *(f"CAST(n{side} > 1 AS INTEGER)" for side in rights)])
    sums = {
        "leftRows": "sum(n0)",
        "rightRows": f"sum({others})",
        "matched": f"sum(n0) FILTER ({matched})",
        "unmatchedLeft": f"sum(n0) FILTER (NOT ({matched}))",
        "unmatchedRight": f"sum({others}) FILTER (key IS NULL OR n0 = 0)",
        "duplicateRightKeys": f"sum({twice}) FILTER (key IS NOT NULL)",
        "nullKeys": f"sum(n0 + {others}) FILTER (key IS NULL)",
    }
    found = ", ".join(f"coalesce({sums[name]}, 0)::BIGINT AS {name}" for name in _COLUMNS)
    cursor.execute(
        f"UPDATE {schema}.join_quality SET {', '.join(f'{name} = q.{name}' for name in _COLUMNS)} "
        f"FROM (SELECT {found} FROM (SELECT key, {counted} FROM ({rows}) GROUP BY key)) AS q WHERE view = ?",
        [view.table],
    )


def move_quality(
    cursor: duckdb.DuckDBPyConnection,
    schema: str,
    view: ViewTable,
    keys: Sequence[pa.ChunkedArray],
    sides: Sequence[Moved],
) -> bool:
    """Move the row of `view` by what a batch changed; whether it did. `keys` stand for the keys of the rows."""
    codes = _codes(keys)
    change = _counts(codes, [side.after for side in sides]) - _counts(codes, [side.before for side in sides])
    # Rows without a key that went are not among those of the sides; they matched nothing.
    for number, side in enumerate(sides):
        change[[0 if number == 0 else 1, 3 if number == 0 else 4, 6]] -= side.keyless_gone
    if not change.any():
        return False
    moved = ", ".join(f"{name} = {name} + {by}" for name, by in zip(_COLUMNS, change, strict=True) if by)
    cursor.execute(f"UPDATE {schema}.join_quality SET {moved} WHERE view = ?", [view.table])
    return True


def _codes(keys: Sequence[pa.ChunkedArray]) -> list[Numbers]:
    """A number from 1 for each key, 0 for none, for the rows of each side."""
    every = pa.chunked_array([chunk for side in keys for chunk in side.chunks], keys[0].type).combine_chunks()
    codes = every.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    return np.split(codes, np.cumsum([len(side) for side in keys])[:-1])


def _counts(codes: Sequence[Numbers], chosen: Sequence[Mask]) -> Numbers:
    """What stands in `_COLUMNS`, over the chosen rows of each side."""
    most = max((int(side.max()) for side in codes if len(side)), default=0) + 1
    left, *rights = (np.bincount(side[mask], minlength=most) for side, mask in zip(codes, chosen, strict=True))
    nulls = left[0] + sum(right[0] for right in rights)
    rows = (left.sum(), sum(right.sum() for right in rights))
    left, rights = left[1:], [right[1:] for right in rights]
    matched = left[np.logical_and.reduce([right > 0 for right in rights])].sum() if rights else left.sum()
    matched_right = sum(right[left > 0].sum() for right in rights)
    twice = sum(np.count_nonzero(right > 1) for right in rights)
    return np.array([*rows, matched, rows[0] - matched, rows[1] - matched_right, twice, nulls], np.int64)
