"""`join_quality`: how well the sides of a view match, counted over all rows or copied from another generation.

A left row is matched if every right side has a row of its key, and a right row if the left side has. A chain has a row
for each step, `view.right`: its left rows are those of the source that brings the column which the step joins by. A
batch moves these counts by those of the keys that it touches (`ViewRows.move_quality`).
"""

from __future__ import annotations

import duckdb

from turnout.plan.sql_text import quoted
from turnout.plan.tables import Sides, ViewTable
from turnout.store.batch_rows import shown_sql

COLUMNS = ("leftRows", "rightRows", "matched", "unmatchedLeft", "unmatchedRight", "duplicateRightKeys", "nullKeys")


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
    found = ", ".join(f"coalesce({sums[name]}, 0)::BIGINT AS {name}" for name in COLUMNS)
    cursor.execute(
        f"UPDATE {schema}.join_quality SET {', '.join(f'{name} = q.{name}' for name in COLUMNS)} "
        f"FROM (SELECT {found} FROM (SELECT key, {counted} FROM ({rows}) GROUP BY key)) AS q WHERE view = ?",
        [name],
    )


def copy_quality(cursor: duckdb.DuckDBPyConnection, view: ViewTable, old: str, new: str) -> None:
    """Copy the rows of `view` from the schema of one generation to that of another."""
    copied = ", ".join(f"{name} = old.{name}" for name in (*COLUMNS, "leftOutKeys"))
    rows = f"{new}.join_quality AS q SET {copied} FROM {old}.join_quality AS old"
    cursor.execute(f"UPDATE {rows} WHERE old.view = q.view AND list_contains(?, q.view)", [list(view.quality_sides)])
