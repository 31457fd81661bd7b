"""The figures that guards compare: counted in the tables of a generation, in the caller's snapshot."""

from __future__ import annotations

from collections.abc import Collection

import duckdb

from turnout.plan.guards import Figures, Matched
from turnout.store.database import scalar
from turnout.store.generation_tables import GenerationTables


def figures(cursor: duckdb.DuckDBPyConnection, tables: GenerationTables, from_latest: Collection[str]) -> Figures:
    """Count what a generation shows; `from_latest` are the topics that it reads from their ends."""
    views = tables.layout.views
    quality = cursor.execute(f"SELECT view, leftRows, matched FROM {tables.schema}.join_quality").fetchall()
    view_of = {name: view.table for view in views for name in view.quality_sides}
    read, bad = cursor.execute(f"SELECT records, bad FROM {tables.schema}.progress").fetchall()[0]
    empty = {
        source.source
        for source in tables.layout.sources
        if source.topic in from_latest and not scalar(cursor, f"SELECT count(*) FROM {tables.table(source.table)}")
    }
    return Figures(
        rows={view.table: scalar(cursor, f"SELECT count(*) FROM {tables.table(view.table)}") for view in views},
        matched={name: Matched(view_of[name], left, matched) for name, left, matched in quality if name in view_of},
        read=read,
        bad=bad,
        not_begun=frozenset(view.table for view in views if empty & {source.source for source in view.sources}),
    )
