"""Rows of a view's sources as Parquet files, in parts that share no key, for Spark to run the view's SQL over each.

What `affected` does in memory for few rows is done here in SQL, for many.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from turnout.plan.joins import KEY, partition_newest_ids_sql, quoted, right_id
from turnout.plan.tables import SourceTable, ViewTable
from turnout.store.affected import SIGN_BIT, columns_of
from turnout.store.database import literal, scalar

Files = dict[str, list[Path]]
"""The files of one part, by source."""


def export_rows(
    cursor: duckdb.DuckDBPyConnection, view: ViewTable, rows: Mapping[str, str], folder: Path, parts: int
) -> tuple[str, list[Files]]:
    """Write the shown rows, given as a relation with `_hash` for each source, as far as the view needs them.

    The SQL to run over each part, and its files.
    """
    sql, needed = _needed(cursor, view, rows)
    files: list[Files] = [{} for _ in range(parts)]
    rows = {
        source: f"(FROM {all_} WHERE {needed[source]})" if source in needed else all_ for source, all_ in rows.items()
    }
    newest = sql == view.narrow_sql and not view.pairs
    key = "" if view.own else _key_sql(cursor, view, rows, unique=not newest and not view.pairs)
    for name, source in view.relations.items():
        times = newest and source is not view.left
        relation = f"(SELECT *, _hash % {parts} AS _part FROM {rows[source.source]})"
        # Of a joined view what the join needs of a row, and times only to find the newest.
        narrow = f"{key} AS {quoted(KEY)}, _id{', _ts' if times else ''}"
        columns = narrow if key else columns_of(source, "_id", "_ts")
        below, nothing = folder / name, folder / f"{name}.parquet"
        _copy(cursor, f"SELECT {columns}, _part FROM {relation}", below, ", PARTITION_BY (_part)")
        _copy(cursor, f"SELECT {columns} FROM {relation} LIMIT 0", nothing)
        for number, part in enumerate(files):
            part[name] = sorted((below / f"_part={number}").glob("*.parquet")) or [nothing]
    return sql, files


def write_rows(rows: Mapping[str, pa.Table], folder: Path) -> Files:
    """Rows that are held in memory as one part."""
    files = {name: [folder / f"{name}.parquet"] for name in rows}
    for name, [file] in files.items():
        pq.write_table(rows[name], file, compression="none")
    return files


def _copy(cursor: duckdb.DuckDBPyConnection, rows: str, target: Path, options: str = "") -> None:
    cursor.execute(f"COPY ({rows}) TO {literal(target)} (FORMAT parquet, COMPRESSION lz4_raw{options})")


def _needed(cursor: duckdb.DuckDBPyConnection, view: ViewTable, rows: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The view's SQL, in its simplest form for what the right sides hold, and the conditions of rows it needs."""
    if view.own:
        return view.sql, {source.source: f"{quoted(view.key)} IS NOT NULL" for source in view.sources}
    if view.pairs:
        return view.narrow_sql, {}
    found = {right.source: _newest_once(cursor, right, rows[right.source]) for right in view.rights}
    unique = all(once for once, _ in found.values())
    needed = {source: condition for source, (_, condition) in found.items() if condition}
    return view.narrow_sql_if_unique if unique else view.narrow_sql, needed


def _newest_once(cursor: duckdb.DuckDBPyConnection, source: SourceTable, relation: str) -> tuple[bool, str]:
    """Whether the rows among which the newest of each key is are one for each, and their condition; none for all."""
    rows = f"(FROM {relation} WHERE {quoted(source.key)} IS NOT NULL)"
    if scalar(cursor, f"SELECT count(*) = count(DISTINCT _hash) FROM {rows}"):
        return True, ""
    ids = quoted(f"_newest_{source.source}")
    cursor.execute(f"CREATE OR REPLACE TEMP TABLE {ids} AS {partition_newest_ids_sql(rows, source.key)}")
    keys = f"(SELECT count(DISTINCT {quoted(source.key)}) FROM {rows})"
    return bool(scalar(cursor, f"SELECT count(*) = {keys} FROM {ids}")), f"_id IN (FROM {ids})"


def _key_sql(cursor: duckdb.DuckDBPyConnection, view: ViewTable, rows: Mapping[str, str], *, unique: bool) -> str:
    """The SQL of what stands for the key of these rows, as in `numbered`; `rows` is a relation for each source.

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
    meet = cursor.execute(meeting).fetchone() is not None
    return key if meet else f"CASE WHEN {key} IS NOT NULL THEN CAST(_hash >> {SIGN_BIT} AS BIGINT) END"


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
