"""What Spark gets of the sides of a join over many rows: numbers for keys, and ids, in files.

The Parquet files are in parts that share no key. What is done here in SQL is done in memory for few rows
(`view_rows.py`, which says why keys have numbers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from turnout.plan.joins import KEY, partition_newest_ids_sql
from turnout.plan.sql_text import literal, quoted
from turnout.plan.tables import JoinedView, SourceTable, SqlView, ViewTable
from turnout.store.batch_rows import columns_of
from turnout.store.database import first_row, scalar

MOST_ROWS_HELD = 4_800_000
"""About how many rows of both sides all tasks together join at once: the driver has their results in memory."""

SIGN_BIT = 1
"""Spark's integers have a sign: of a key's hash they hold the upper 63 bits."""

Files = dict[str, list[Path]]
"""The files of one part, by source."""


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


@dataclass(frozen=True, slots=True)
class PartRunner:
    """How a join is done in parts: where their files are, how many there are, and who runs the SQL over them."""

    folder: Path
    cores: int
    part_rows: int
    """About how many rows of both sides a part has."""
    over: Callable[[str, Sequence[Files]], Iterable[pa.Table]]

    def parts(self, size: int) -> int:
        """In how many parts so many rows of ids are joined."""
        return self.cores * (size // (self.cores * min(self.part_rows, MOST_ROWS_HELD // self.cores)) + 1)


def export_joined(
    cursor: duckdb.DuckDBPyConnection, view: JoinedView, rows: Mapping[str, str], folder: Path, parts: int
) -> tuple[str, list[Files]]:
    """Write numbers for keys, and ids, of the rows that a join needs; `rows` is a relation with `_hash` of each source.

    The SQL to run over each part, and its files.
    """
    sql, needed = _needed(cursor, view, rows)
    rows = {
        source: f"(FROM {all_} WHERE {needed[source]})" if source in needed else all_ for source, all_ in rows.items()
    }
    newest = sql == view.narrow_sql and not view.pairs
    key = number_sql(cursor, view, rows, unique=not newest and not view.pairs)
    columns = {}
    for name, source in view.relations.items():
        # Times only to find the newest.
        times = newest and source is not view.left
        columns[name] = f"{key} AS {quoted(KEY)}, _id{', _ts' if times else ''}"
    return sql, _export(cursor, view, rows, columns, folder, parts)


def export_columns(
    cursor: duckdb.DuckDBPyConnection, view: SqlView, rows: Mapping[str, str], folder: Path, parts: int
) -> list[Files]:
    """Write all columns of the rows that have a key; `rows` is a relation with `_hash` of each source."""
    keyed = {source: f"(FROM {all_} WHERE {quoted(view.key)} IS NOT NULL)" for source, all_ in rows.items()}
    columns = {name: columns_of(source, "_id", "_ts") for name, source in view.relations.items()}
    return _export(cursor, view, keyed, columns, folder, parts)


def _export(
    cursor: duckdb.DuckDBPyConnection,
    view: ViewTable,
    rows: Mapping[str, str],
    columns: Mapping[str, str],
    folder: Path,
    parts: int,
) -> list[Files]:
    files: list[Files] = [{} for _ in range(parts)]
    for name, source in view.relations.items():
        relation = f"(SELECT *, _hash % {parts} AS _part FROM {rows[source.source]})"
        below, nothing = folder / name, folder / f"{name}.parquet"
        _copy(cursor, f"SELECT {columns[name]}, _part FROM {relation}", below, ", PARTITION_BY (_part)")
        _copy(cursor, f"SELECT {columns[name]} FROM {relation} LIMIT 0", nothing)
        for number, part in enumerate(files):
            part[name] = sorted((below / f"_part={number}").glob("*.parquet")) or [nothing]
    return files


def write_rows(rows: Mapping[str, pa.Table], folder: Path) -> Files:
    """Rows that are held in memory as one part."""
    files = {name: [folder / f"{name}.parquet"] for name in rows}
    for name, [file] in files.items():
        pq.write_table(rows[name], file, compression="none")
    return files


def _copy(cursor: duckdb.DuckDBPyConnection, rows: str, target: Path, options: str = "") -> None:
    cursor.execute(f"COPY ({rows}) TO {literal(target)} (FORMAT parquet, COMPRESSION lz4_raw{options})")


def _needed(cursor: duckdb.DuckDBPyConnection, view: JoinedView, rows: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The view's SQL, in its simplest form for what the right sides hold, and the conditions of rows it needs."""
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
