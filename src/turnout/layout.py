"""The tables of a generation: what each source and each view looks like under one plan.

Derived from settings and plan alone, so that Spark, the store and the surfaces agree on names, types and order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnout.columns import ColumnType
from turnout.config import Settings
from turnout.joins import Duplicates, Join, ViewSides, shows_pairs, view_sql
from turnout.plan import Plan


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A source, the topic it reads under the plan, and its table."""

    source: str
    topic: str
    table: str
    key: str
    columns: Mapping[str, ColumnType]
    latest: bool
    max_rows: int | None


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A view of two sources; `sql` is over relations named as the sources.

    With `pairs` a left row shows once for each of its right rows; without, once at most. `sql_if_unique` has the same
    result where no two right rows have one key, and does not look for the newest.
    """

    table: str
    left: SourceTable
    right: SourceTable
    key: str
    columns: Mapping[str, ColumnType]
    sql: str
    sql_if_unique: str
    pairs: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """All tables of one generation."""

    sources: tuple[SourceTable, ...]
    views: tuple[ViewTable, ...]

    @classmethod
    def of(cls, settings: Settings, plan: Plan) -> Layout:
        sources = {
            name: SourceTable(
                source=name,
                topic=plan.topics[name],
                table=source.table,
                key=source.key,
                columns=source.columns,
                latest=source.rows == "latest",
                max_rows=source.max_rows,
            )
            for name, source in settings.sources.items()
        }
        views = tuple(
            _view(name, sources[view.left], sources[view.right], plan.joins[name], view.duplicates)
            for name, view in settings.views.items()
        )
        return cls(tuple(sources.values()), views)

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic once, in the order of the sources."""
        return tuple(dict.fromkeys(source.topic for source in self.sources))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that are published together."""
        own = [source.table for source in self.sources] + [view.table for view in self.views]
        return (*own, "bad_records", "join_quality")


def _view(name: str, left: SourceTable, right: SourceTable, join: Join, duplicates: Duplicates) -> ViewTable:
    sides = ViewSides(left.source, right.source, left.key, tuple(left.columns), tuple(right.columns))
    columns = dict(left.columns) | {shown: right.columns[column] for column, shown in sides.right_names().items()}
    sql, unique = view_sql(sides, join, duplicates), view_sql(sides, join, Duplicates.ALL)
    return ViewTable(name, left, right, left.key, columns, sql, unique, shows_pairs(join, duplicates))
