"""Kept rows: a new generation copies them from the published one instead of reading and joining them again.

Three users are shown and the join changes from `left` to `inner`. The tables of generation 8 are made, and in the same
transaction get the three rows of `g7.users_ui`, the faults of the topic, and the offset after the last record that
generation 7 has stored. Generation 8 reads on from there. Rows that are hidden are copied too: with `rows: latest` they
decide which row of a key is the newest. Nothing is shared by the two generations.

A view is kept if all of its sources are, and its definition is the same. Records that are read while the other views
wait to be built are joined to a kept view in each batch, as to the views of a published generation.

A topic that was deleted and created again while generation 7 read it is another one: it is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import duckdb

from turnout.plan.offsets import Offsets
from turnout.plan.plan import Plan
from turnout.plan.sql_text import quoted
from turnout.plan.tables import Layout, SourceTable, ViewTable
from turnout.store.batch_rows import hash_names, hashes_sql, shown_sql
from turnout.store.database import scalar
from turnout.store.generation_tables import GenerationTables
from turnout.store.join_quality import copy_quality

_FAULT_COLUMNS = '_id, ts, topic, "partition", "offset", field, reason, value'


Origins = dict[str, dict[str, int]]
"""The origin of each source's rows: rows of the published generation that are `kept`, if any, and records to `read`."""


def origins_of(plan: Plan, kept: Mapping[str, int], start: Offsets, target: Offsets) -> Origins:
    """The origins in a generation that reads from `start` to `target`, with the kept rows of some sources."""
    return {
        source: ({"kept": kept[source]} if source in kept else {})
        | {"read": start.topic(topic).behind(target.topic(topic))}
        for source, topic in plan.topics.items()
    }


@dataclass(frozen=True, slots=True)
class KeptTopics:
    """The topics that a new generation keeps, with the tables and the first offsets of the published generation."""

    tables: GenerationTables | None = None
    start: Offsets = field(default_factory=lambda: Offsets({}))
    topics: frozenset[str] = frozenset()

    def offsets(self, cursor: duckdb.DuckDBPyConnection | None = None) -> Offsets:
        """How far the published generation has stored the kept topics."""
        if self.tables is None:
            return Offsets({})
        stored = Offsets.kept(self.tables.progress(cursor).offsets, self.start)
        return Offsets({place: offset for place, offset in stored.next.items() if place[0] in self.topics})

    def rows(self) -> dict[str, int]:
        """How many rows of each source are kept."""
        tables = self.tables
        if tables is None:
            return {}
        with tables.database.read() as cursor:
            return {source.source: _shown_rows(cursor, tables, source) for source in _sources(tables, self.topics)}

    def views(self, layout: Layout) -> list[ViewTable]:
        """The views of a new generation whose rows are those of the published one."""
        if self.tables is None or not self.tables.progress().views_built:
            return []
        before = [_definition(view) for view in self.tables.layout.views]
        views = [view for view in layout.views if self.topics.issuperset(source.topic for source in view.sources)]
        return [view for view in views if _definition(view) in before]

    def copy(self, cursor: duckdb.DuckDBPyConnection, new: GenerationTables) -> dict[str, int]:
        """Copy rows and faults into the empty tables of a new generation; return how many rows each source shows.

        Inside the caller's transaction. Hashes are computed again: views of `new` may look rows up by other columns.
        """
        published, rows = self.tables, dict[str, int]()
        if published is None:
            return rows
        before = {source.source: source for source in _sources(published, self.topics)}
        for source in _sources(new, self.topics):
            _copy_rows(cursor, source, published.table(before[source.source].table), new.table(source.table))
            rows[source.source] = _shown_rows(cursor, new, source)
        cursor.execute(
            f"INSERT INTO {new.schema}.bad_records ({_FAULT_COLUMNS}) SELECT {_FAULT_COLUMNS} "
            f"FROM {published.schema}.bad_records WHERE topic IN (SELECT unnest(?::VARCHAR[])) ORDER BY rowid",
            [list(self.topics)],
        )
        for view in self.views(new.layout):
            _copy_view(cursor, view, published, new)
            new.kept_views.add(view.table)
        return rows


def topics_made_anew(published: GenerationTables) -> set[str]:
    """The topics that were deleted while the published generation read them."""
    with published.database.read() as cursor:
        return {topic for (topic,) in cursor.execute(f"SELECT DISTINCT topic FROM {published.schema}.lives").fetchall()}


def _sources(tables: GenerationTables, topics: Collection[str]) -> list[SourceTable]:
    return [source for source in tables.layout.sources if source.topic in topics]


def _copy_rows(cursor: duckdb.DuckDBPyConnection, source: SourceTable, old: str, new: str) -> None:
    hidden = ["_id", "_ts", *(["_deleted", "_shown"] if source.latest else [])]
    kept = [*map(quoted, source.columns), *hidden]
    columns = ", ".join([*kept, *hash_names(source)])
    cursor.execute(f"INSERT INTO {new} ({columns}) SELECT {', '.join([*kept, *hashes_sql(source)])} FROM {old}")


def _definition(view: ViewTable) -> ViewTable:
    """A view without what depends on other views: the columns by which chains look up rows of its sources."""
    return replace(view, sources=tuple(replace(source, table="", hashed=()) for source in view.sources))


def _copy_view(
    cursor: duckdb.DuckDBPyConnection, view: ViewTable, published: GenerationTables, new: GenerationTables
) -> None:
    """Copy the rows of a view, its join quality, and the keys that are left out of it."""
    columns = ", ".join([*map(quoted, view.columns), *view.ids, "_hash"])
    old = published.table(view.table)
    cursor.execute(f"INSERT INTO {new.table(view.table)} ({columns}) SELECT {columns} FROM {old}")
    copy_quality(cursor, view, published.schema, new.schema)
    left_out = f"INSERT INTO {new.schema}.left_out FROM {published.schema}.left_out WHERE list_contains(?, name)"
    cursor.execute(left_out, [[bound.name for bound in view.bounds]])


def _shown_rows(cursor: duckdb.DuckDBPyConnection, tables: GenerationTables, source: SourceTable) -> int:
    return scalar(cursor, shown_sql(source, tables.table(source.table), "count(*)"))
