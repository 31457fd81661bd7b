"""Rows of a view's sources as Parquet files, in parts that share no key, for Spark to run the view's SQL over each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from turnout.plan.joins import partition_newest_ids_sql, quoted
from turnout.plan.tables import SourceTable, ViewTable
from turnout.store.affected import columns_of
from turnout.store.database import literal, scalar
from turnout.store.narrow import key_sql, narrow_columns

FOR_VIEWS = ("_id", "_ts")
"""The hidden columns that a view's SQL asks for."""

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
    key = "" if view.own else key_sql(cursor, view, rows, unique=not newest and not view.pairs)
    for name, source in view.relations.items():
        times = newest and source is not view.left
        relation = f"(SELECT *, _hash % {parts} AS _part FROM {rows[source.source]})"
        columns = narrow_columns(key, times=times) if key else columns_of(source, *FOR_VIEWS)
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
