"""`join_quality`: how well the sides of a view match, kept up to date from the keys that a batch touches.

A left row is matched if every right side has a row of its key, and a right row if the left side has. Only sums over
touched keys are taken before and after a batch, so its cost does not grow with the tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from turnout.plan.joins import quoted
from turnout.plan.tables import SourceTable, ViewTable

Sides = Sequence[str]
"""The left rows of a view and those of each right side, as relations."""


@dataclass(frozen=True, slots=True)
class QualityCount:
    """Sums over keys: left rows with a match, right rows with a match, right keys with several rows."""

    matched_left: int
    matched_right: int
    duplicate_keys: int

    @classmethod
    def of(cls, cursor: duckdb.DuckDBPyConnection, key: str, sides: Sides) -> QualityCount:
        """Over the shown rows of two relations."""
        return cls._summed(cursor, key, {1: sides})

    @classmethod
    def between(cls, cursor: duckdb.DuckDBPyConnection, key: str, before: Sides, after: Sides) -> QualityCount:
        """By how much the counts over some keys change."""
        return cls._summed(cursor, key, {-1: before, 1: after})

    @classmethod
    def _summed(cls, cursor: duckdb.DuckDBPyConnection, key: str, sides: Mapping[int, Sides]) -> QualityCount:
        """The counts of several moments, each times its sign, added up: one statement, however many they are."""
        rows = " UNION ALL ".join(
            f"SELECT {quoted(key)} AS key, {sign} AS sign, {side} AS side FROM {relation} "
            f"WHERE {quoted(key)} IS NOT NULL"
            for sign, relations in sides.items()
            for side, relation in enumerate(relations)
        )
        rights = range(1, max(len(relations) for relations in sides.values()))
        counted = ", ".join(f"count(*) FILTER (side = {side}) AS n{side}" for side in (0, *rights))
        keys = f"SELECT sign, {counted} FROM ({rows}) GROUP BY key, sign"
        everywhere = " AND ".join(["true", *(f"n{side} > 0" for side in rights)])
        others = " + ".join(["0", *(f"n{side}" for side in rights)])
        twice = " + ".join(["0", *(f"CAST(n{side} > 1 AS INTEGER)" for side in rights)])
        row = cursor.execute(
            f"SELECT coalesce(sum(sign * n0) FILTER ({everywhere}), 0)::BIGINT, "
            f"coalesce(sum(sign * ({others})) FILTER (n0 > 0), 0)::BIGINT, "
            f"coalesce(sum(sign * ({twice})), 0)::BIGINT FROM ({keys})"
        ).fetchone()
        assert row is not None
        return cls(*row)

    def __add__(self, other: QualityCount) -> QualityCount:
        return QualityCount(
            self.matched_left + other.matched_left,
            self.matched_right + other.matched_right,
            self.duplicate_keys + other.duplicate_keys,
        )


def write_quality(cursor: duckdb.DuckDBPyConnection, schema: str, view: ViewTable) -> None:
    """Write the row of `view`, counted over all rows."""
    sides = [_shown(schema, source) for source in view.sources]
    nulls = sum(_number(cursor, f"SELECT count(*) FROM {side} WHERE {quoted(view.key)} IS NULL") for side in sides)
    _write(cursor, schema, view, QualityCount.of(cursor, view.key, sides), nulls)


def move_quality(
    cursor: duckdb.DuckDBPyConnection, schema: str, view: ViewTable, change: QualityCount, null_change: int
) -> None:
    """Move the row of `view` by what the touched keys changed."""
    row = cursor.execute(
        f"SELECT matched, rightRows - unmatchedRight, duplicateRightKeys, nullKeys "
        f"FROM {schema}.join_quality WHERE view = ?",
        [view.table],
    ).fetchone()
    assert row is not None
    _write(cursor, schema, view, QualityCount(*row[:3]) + change, row[3] + null_change)


def _write(cursor: duckdb.DuckDBPyConnection, schema: str, view: ViewTable, count: QualityCount, nulls: int) -> None:
    left, *rights = (_number(cursor, f"SELECT count(*) FROM {_shown(schema, source)}") for source in view.sources)
    right = sum(rights)
    cursor.execute(
        f"UPDATE {schema}.join_quality SET leftRows = ?, rightRows = ?, matched = ?, unmatchedLeft = ?, "
        f"unmatchedRight = ?, duplicateRightKeys = ?, nullKeys = ? WHERE view = ?",
        [
            left,
            right,
            count.matched_left,
            left - count.matched_left,
            right - count.matched_right,
            count.duplicate_keys,
            nulls,
            view.table,
        ],
    )


def _shown(schema: str, source: SourceTable) -> str:
    return f"(FROM {schema}.{quoted(source.table)} WHERE {'_shown' if source.latest else 'true'})"


def _number(cursor: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = cursor.execute(sql).fetchone()
    assert row is not None
    return int(row[0])
