"""`join_quality`: how well the sides of a view match, kept up to date from the keys that a batch touches.

A left row is matched if every right side has a row of its key, and a right row if the left side has. Only sums over
touched keys are taken before and after a batch, so its cost does not grow with the tables. A chain has a row for each
step, `view.right`: its left rows are those of the source that brings the column which the step joins by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from turnout.plan.sql_text import quoted
from turnout.plan.tables import ChainView, Sides, ViewTable
from turnout.store.batch_rows import Hashes, Mask, ShownChange, TouchedRows, hashes_of, shown_sql
from turnout.store.database import arrow_table

_COLUMNS = ("leftRows", "rightRows", "matched", "unmatchedLeft", "unmatchedRight", "duplicateRightKeys", "nullKeys")

Numbers = npt.NDArray[np.int64]


def write_quality(cursor: duckdb.DuckDBPyConnection, schema: str, name: str, sides: Sides) -> None:
    """Write the row `name`, counted over all rows of its sides."""
    rows = " UNION ALL ".join(
        shown_sql(source, f"{schema}.{quoted(source.table)}", f"{quoted(key)} AS key, {side} AS side")
        for side, (source, key) in enumerate(sides)
    )
    rights = range(1, len(sides))
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
        [name],
    )


def copy_quality(cursor: duckdb.DuckDBPyConnection, view: ViewTable, old: str, new: str) -> None:
    """Copy the rows of `view` from the schema of one generation to that of another."""
    copied = ", ".join(f"{name} = old.{name}" for name in (*_COLUMNS, "leftOutKeys"))
    rows = f"{new}.join_quality AS q SET {copied} FROM {old}.join_quality AS old"
    cursor.execute(f"UPDATE {rows} WHERE old.view = q.view AND list_contains(?, q.view)", [list(view.quality_sides)])


def move_quality(
    cursor: duckdb.DuckDBPyConnection,
    schema: str,
    name: str,
    keys: Sequence[pa.ChunkedArray],
    sides: Sequence[TouchedRows],
) -> bool:
    """Move the row `name` by what a batch changed; whether it did. `keys` stand for the keys of the rows."""
    codes = _codes(keys)
    change = _counts(codes, [side.after for side in sides]) - _counts(codes, [side.before for side in sides])
    # Rows without a key that went are not among those of the sides; they matched nothing.
    for number, side in enumerate(sides):
        change[[0 if number == 0 else 1, 3 if number == 0 else 4, 6]] -= side.keyless_gone
    return _move(cursor, schema, name, change)


def _move(cursor: duckdb.DuckDBPyConnection, schema: str, name: str, change: Numbers) -> bool:
    if not change.any():
        return False
    moved = ", ".join(f"{column} = {column} + {by}" for column, by in zip(_COLUMNS, change, strict=True) if by)
    cursor.execute(f"UPDATE {schema}.join_quality SET {moved} WHERE view = ?", [name])
    return True


def move_chain_quality(
    cursor: duckdb.DuckDBPyConnection,
    schema: str,
    view: ChainView,
    changed: Mapping[str, ShownChange],
    looked_up: Callable[[int, str, Hashes], pa.Table | None],
) -> bool:
    """Move the rows of a chain by what a batch changed; whether it did. Its source rows are stored already.

    `looked_up` gives the rows of a side whose column has one of these hashes, if they were read before.
    """
    moved = False
    for name, sides in view.quality_sides.items():
        rows_of_sides = [(source, column, rows) for source, column in sides for rows in changed[source.source]]
        if not any(rows.num_rows for _, _, rows in rows_of_sides):
            continue
        hashes = np.unique(np.concatenate([hashes_of(source, rows, column) for source, column, rows in rows_of_sides]))
        keys, before, after = [], [], []
        for source, column in sides:
            known = looked_up(view.sources.index(source), column, hashes)
            if known is not None:
                there = pa.table({"key": known[column], "n": np.ones(known.num_rows, np.int64)})
            else:
                cursor.register("_touched", {"h": hashes})
                table = f"{schema}.{quoted(source.table)}"
                near = f"{source.hash_name(column)} IN (SELECT h FROM _touched)"
                there = arrow_table(
                    cursor,
                    f"SELECT {quoted(column)} AS key, count(*) AS n FROM ({shown_sql(source, table)}) "
                    f"WHERE {near} GROUP BY ALL",
                )
            gone, came = (rows[column] for rows in changed[source.source])
            kind = there["key"].type
            chunks = [chunk for some in (there["key"], came, gone) for chunk in some.cast(kind).chunks]
            keys.append(pa.chunked_array(chunks, kind))
            counts = there["n"].to_numpy()
            after.append(np.concatenate([counts, np.zeros(len(came) + len(gone), np.int64)]))
            before.append(np.concatenate([counts, np.full(len(came), -1), np.full(len(gone), 1)]))
        codes = _codes(keys)
        moved |= _move(cursor, schema, name, _counts(codes, after) - _counts(codes, before))
    return moved


def _codes(keys: Sequence[pa.ChunkedArray]) -> list[Numbers]:
    """A number from 1 for each key, 0 for none, for the rows of each side."""
    every = pa.chunked_array([chunk for side in keys for chunk in side.chunks], keys[0].type).combine_chunks()
    codes = every.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    return np.split(codes, np.cumsum([len(side) for side in keys])[:-1])


def _counts(codes: Sequence[Numbers], rows: Sequence[Mask | Numbers]) -> Numbers:
    """What stands in `_COLUMNS`; `rows` tells how many rows of each side there are of each code, or which count."""
    most = max((int(side.max()) for side in codes if len(side)), default=0) + 1
    tallies = (np.bincount(side, number, most).astype(np.int64) for side, number in zip(codes, rows, strict=True))
    left, *rights = tallies
    nulls = left[0] + sum(right[0] for right in rights)
    rows = (left.sum(), sum(right.sum() for right in rights))
    left, rights = left[1:], [right[1:] for right in rights]
    matched = left[np.logical_and.reduce([right > 0 for right in rights])].sum() if rights else left.sum()
    matched_right = sum(right[left > 0].sum() for right in rights)
    twice = sum(np.count_nonzero(right > 1) for right in rights)
    return np.array([*rows, matched, rows[0] - matched, rows[1] - matched_right, twice, nulls], np.int64)
