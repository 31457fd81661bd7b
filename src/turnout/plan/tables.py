"""The tables of a generation: names, keys and columns of each source and each view under one plan.

`config.tables` makes them from settings and plan alone, so that Spark, the store and the surfaces agree. The names of
Turnout's own tables are here too: no source and no view can have one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from turnout.plan.chains import Chain, Origin, narrow_chain_sql
from turnout.plan.joins import (
    Duplicates,
    Join,
    Step,
    key_steps,
    narrow_view_sql,
    own_view_sql,
    right_id,
    right_names,
    side,
    view_sql,
)
from turnout_client.column_types import ColumnType

SHOWN_OF_STORE = ("orchestrator_status", "orchestrator_logs", "control_raw", "swaps", "alerts")
"""Shown under these names, and the same for all generations."""

SHOWN_OF_GENERATION = ("bad_records", "join_quality")
"""Published together with the tables of the configuration."""

BOOKS_OF_STORE = (
    "store",
    "published",
    "counter",
    "versions",
    "generations",
    "config_history",
    "control_places",
    "removed_rows",
    "saved_views",
    "applies",
    "alert_rows",
    "alert_positions",
)
BOOKS_OF_GENERATION = ("versions", "progress", "hashing", "lives", "outgoing", "left_out")
"""For Turnout alone."""

RESERVED = tuple(dict.fromkeys((*SHOWN_OF_STORE, *SHOWN_OF_GENERATION, *BOOKS_OF_STORE, *BOOKS_OF_GENERATION)))


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
    form: str = "json"
    """How its records are written: `json`, `avro` or `protobuf`."""
    hashed: tuple[str, ...] = ()
    """The columns besides the key by which chains look rows up."""

    def hash_name(self, column: str) -> str:
        """The hidden column that has the hash of the key, or of one of `hashed`."""
        return "_hash" if column == self.key else f"_hash_{self.hashed.index(column) + 1}"


@dataclass(frozen=True, slots=True)
class RowBound:
    """How many rows one key may have in a view, or one value in a step of a chain, and what they are counted over.

    The rows of a key are those of its left rows and its rows of each right side under `join`, after any of the joins.
    """

    name: str
    """As in `join_quality`: the view, or `view.right` for a step of a chain."""
    lefts: tuple[Origin, ...]
    rights: tuple[Origin, ...]
    join: Join
    most: int


Sides = Sequence[tuple[SourceTable, str]]
"""The sources whose rows meet, the left one first, and the column by which each of them does."""


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A view of sources, the left one first; `sql` is over relations named as the sources.

    There are three kinds, the classes below. How each is kept up to date is in `store/views`.
    """

    table: str
    sources: tuple[SourceTable, ...]
    key: str
    columns: Mapping[str, ColumnType]
    sql: str
    narrow_sql: str
    """What Spark runs, over `relations`: the same join of keys and ids alone, to which the store adds the columns."""
    narrow_sql_if_unique: str
    """The SQL for right rows with one row for each key: it does not search for the newest."""
    pairs: bool
    """Whether a left row shows once for each of its right rows; otherwise once at most."""
    bounds: tuple[RowBound, ...] = ()
    """Where rows can multiply: of a chain one for each such step, of another view one at most."""
    right_names: Sequence[Mapping[str, str]] = ()
    """For each right side: the columns that it adds, and their names in the view. Own SQL has none."""

    by_key: ClassVar[bool] = True
    """Whether all rows that make a row of the view have its key."""
    shows_null_keys: ClassVar[bool] = True
    """Whether left rows without a key are shown."""
    own_sql: ClassVar[bool] = False
    """Whether somebody wrote its SQL: Spark then gets all columns, and gives rows instead of ids."""

    @property
    def left(self) -> SourceTable:
        return self.sources[0]

    @property
    def rights(self) -> tuple[SourceTable, ...]:
        return self.sources[1:]

    @property
    def relations(self) -> dict[str, SourceTable]:
        """The sources by their names in the SQL that Spark runs."""
        return {side(number): source for number, source in enumerate(self.sources)}

    @property
    def ids(self) -> tuple[str, ...]:
        """The hidden columns that identify a row: the ids of its source rows, or its number within its key."""
        return ("_id", *(right_id(number) for number in range(len(self.rights))))

    @property
    def quality_sides(self) -> dict[str, Sides]:
        """The rows of `join_quality` that the view has, by their names, and what each is counted over."""
        return {self.table: [(source, self.key) for source in self.sources]}

    @property
    def unmatchable_step(self) -> Step | None:
        """The first step of a chain that nothing can match."""
        return None


@dataclass(frozen=True, slots=True)
class JoinedView(ViewTable):
    """A join of sources that share a key."""

    outer: bool = False
    """Whether right rows that nothing matches are shown: then a row need not have a left one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView(ViewTable):
    """A step for each right side, over columns of its own; the key is that of the left side, or null without one."""

    chain: Chain

    by_key: ClassVar[bool] = False

    @property
    def quality_sides(self) -> dict[str, Sides]:
        return {
            f"{self.table}.{right.source}": [(self.sources[at], column), (right, step.right_on)]
            for step, right, (at, column) in zip(self.chain.steps, self.rights, self.chain.owners, strict=True)
        }

    @property
    def unmatchable_step(self) -> Step | None:
        """Its column was taken away by a semi or anti join."""
        return next((step for step, found in zip(self.chain.steps, self.chain.origins, strict=True) if not found), None)

    def step_bound(self, number: int) -> RowBound | None:
        """The bound of a step, if its rows can multiply."""
        return next((bound for bound in self.bounds if bound.rights[0][0] == number + 1), None)


@dataclass(frozen=True, slots=True)
class SqlView(ViewTable):
    """SQL that somebody wrote: run as it is, over all columns. It has rows of keys only, numbered for each key."""

    shows_null_keys: ClassVar[bool] = False
    own_sql: ClassVar[bool] = True

    @property
    def relations(self) -> dict[str, SourceTable]:
        return {source.source: source for source in self.sources}

    @property
    def ids(self) -> tuple[str, ...]:
        return ("_nth",)


@dataclass(frozen=True, slots=True)
class Layout:
    """All tables of one generation."""

    sources: tuple[SourceTable, ...]
    views: tuple[ViewTable, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic once, in the order of the sources."""
        return tuple(dict.fromkeys(source.topic for source in self.sources))

    @property
    def every(self) -> tuple[SourceTable | ViewTable, ...]:
        """The sources, then the views."""
        return (*self.sources, *self.views)

    def of(self, table: str) -> SourceTable | ViewTable:
        """The source or the view that a table is of."""
        return next(one for one in self.every if one.table == table)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that are published together."""
        return (*(one.table for one in self.every), *SHOWN_OF_GENERATION)


def _columns(sources: Sequence[SourceTable], names: Sequence[Mapping[str, str]]) -> dict[str, ColumnType]:
    """The columns of the left side, and what each right side adds under its names."""
    left, *rights = sources
    columns = dict(left.columns)
    for right, added in zip(rights, names, strict=True):
        columns |= {shown: right.columns[column] for column, shown in added.items()}
    return columns


def joined_view(
    name: str, sources: Sequence[SourceTable], join: Join, duplicates: Duplicates, max_rows_per_key: int | None = None
) -> JoinedView:
    left, *rights = sources
    places = [(number, left.key) for number in range(len(sources))]
    bounds: tuple[RowBound, ...] = ()
    given = {source.source: tuple(source.columns) for source in sources}
    steps = key_steps((right.source for right in rights), left.key, join, duplicates)
    # With several rows of a key on one side only, nothing is multiplied.
    if max_rows_per_key is not None and steps[0].multiplies and sum(not one.latest for one in sources) > 1:
        bounds = (RowBound(name, tuple(places[:1]), tuple(places[1:]), join, max_rows_per_key),)
    names = right_names(given, steps)
    return JoinedView(
        table=name,
        sources=tuple(sources),
        key=left.key,
        columns=_columns(sources, names),
        sql=view_sql(given, steps),
        narrow_sql=narrow_view_sql(len(rights), join, duplicates),
        narrow_sql_if_unique=narrow_view_sql(len(rights), join, Duplicates.ALL),
        pairs=steps[0].pairs,
        bounds=bounds,
        right_names=names,
        outer=join.outer,
    )


def own_view(
    name: str, sources: Sequence[SourceTable], key: str, columns: Mapping[str, ColumnType], text: str
) -> SqlView:
    sql = own_view_sql(text, key, {column: kind.spark for column, kind in columns.items()})
    return SqlView(name, tuple(sources), key, columns, sql, sql, sql, pairs=True)


def chain_view(
    name: str, sources: Sequence[SourceTable], chain: Chain, max_rows_per_key: int | None = None
) -> ChainView:

    def once(origin: Origin) -> bool:
        """Whether a value of a column is in one row of its source at most."""
        return sources[origin[0]].latest and sources[origin[0]].key == origin[1]

    bounds = []
    for number, (step, lefts) in enumerate(zip(chain.steps, chain.origins, strict=True), 1):
        own = (number, step.right_on)
        linear = once(own) or not lefts or (len(lefts) == 1 and once(lefts[0]))
        if max_rows_per_key is not None and step.multiplies and not linear:
            # Pairs are counted: what is shown without a partner is shown once.
            bounds.append(RowBound(f"{name}.{step.right}", lefts, (own,), Join.INNER, max_rows_per_key))
    given = {source.source: tuple(source.columns) for source in sources}
    names, narrow_sql = right_names(given, chain.steps), narrow_chain_sql(chain)
    return ChainView(
        table=name,
        sources=tuple(sources),
        key=sources[0].key,
        columns=_columns(sources, names),
        sql=view_sql(given, chain.steps),
        narrow_sql=narrow_sql,
        narrow_sql_if_unique=narrow_sql,
        pairs=any(step.pairs for step in chain.steps),
        bounds=tuple(bounds),
        right_names=names,
        chain=chain,
    )
