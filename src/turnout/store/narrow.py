"""Keys and ids of a view's sources for Spark, and the columns for the ids that it answers.

For a joined view Spark needs to know which rows have one key, and which is newer: not what is in them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import duckdb

from turnout.joins import KEY, quoted, right_id
from turnout.layout import ViewTable

_NUMBER = "_hash >> 1"
"""A number for a key that Spark's signed integers hold."""


def key_sql(cursor: duckdb.DuckDBPyConnection, view: ViewTable, rows: Mapping[str, str]) -> str:
    """What stands for the key of these rows: numbers are joined in less time than texts.

    `rows` is a relation for each source. Equal keys have one number; where different ones among these rows share a
    number (which only chance or malice brings about), the key stands for itself.
    """
    key = quoted(view.key)
    keyed = " UNION ALL ".join(
        f"SELECT {key} AS k, {_NUMBER} AS n FROM {r} WHERE {key} IS NOT NULL" for r in rows.values()
    )
    shared = cursor.execute(f"SELECT 1 FROM ({keyed}) GROUP BY n HAVING min(k) <> max(k) LIMIT 1").fetchone()
    return f"CASE WHEN {key} IS NOT NULL THEN CAST({_NUMBER} AS BIGINT) END" if shared is None else key


def narrow_sql(relation: str, key: str, *, times: bool = True) -> str:
    """The rows of a relation as far as the join needs them; their times only to find the newest."""
    return f"SELECT {key} AS {quoted(KEY)}, _id{', _ts' if times else ''} FROM {relation}"


def widened_sql(view: ViewTable, ids: str, columns: Collection[str], rows: Mapping[str, str]) -> str:
    """The rows of a view: those of `ids`, a relation of its `columns`, with what the source rows of these ids hold."""
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
