"""The tables of a generation: names, keys and columns of each source and each view under one plan.

`config.tables` makes them from settings and plan alone, so that Spark, the store and the surfaces agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnout.plan.chains import Chain, Origin
from turnout.plan.columns import ColumnType
from turnout.plan.joins import (
    Duplicates,
    Join,
    ViewSides,
    multiplies,
    narrow_view_sql,
    own_view_sql,
    right_id,
    shows_pairs,
    side,
    view_sql,
)
from turnout.plan.own_tables import SHOWN_OF_GENERATION


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


@dataclass(frozen=True, slots=True)
class ViewTable:
    """A view of sources that share a key, the left one first; `sql` is over relations named as the sources.

    Spark runs `narrow_sql`, over `relations`: the same join of keys and ids alone, to which the store adds the columns.
    `narrow_sql_if_unique` has the same result where no two right rows of a source have one key, and does not look for
    the newest. With `pairs` a left row shows once for each of its right rows; without, once at most. A view with `own`
    SQL is run as it is, over all columns; it has rows of keys only, numbered for each key. A `chain` has a step for
    each right side, over columns of its own; its key is that of the left side, which is null in rows without one.
    """

    table: str
    sources: tuple[SourceTable, ...]
    key: str
    columns: Mapping[str, ColumnType]
    sql: str
    narrow_sql: str
    narrow_sql_if_unique: str
    pairs: bool
    own: bool = False
    chain: Chain | None = None
    bounds: tuple[RowBound, ...] = ()
    """Where rows can multiply: of a chain one for each such step, of another view one at most."""

    @property
    def left(self) -> SourceTable:
        return self.sources[0]

    @property
    def rights(self) -> tuple[SourceTable, ...]:
        return self.sources[1:]

    @property
    def relations(self) -> dict[str, SourceTable]:
        """The sources by their names in the SQL that Spark runs."""
        return {one.source if self.own else side(number): one for number, one in enumerate(self.sources)}

    @property
    def right_names(self) -> list[dict[str, str]]:
        """For each right side: the columns that it adds, and their names in the view."""
        if self.chain is not None:
            return [dict(names) for names in self.chain.names]
        return list(_sides(self.sources).right_names().values())

    def step_bound(self, number: int) -> RowBound | None:
        """The bound of a step of a chain, if its rows can multiply."""
        return next((bound for bound in self.bounds if bound.rights[0][0] == number + 1), None)

    @property
    def ids(self) -> tuple[str, ...]:
        """The hidden columns that identify a row: the ids of its source rows, or its number within its key."""
        return ("_nth",) if self.own else ("_id", *(right_id(number) for number in range(len(self.rights))))


@dataclass(frozen=True, slots=True)
class Layout:
    """All tables of one generation."""

    sources: tuple[SourceTable, ...]
    views: tuple[ViewTable, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic once, in the order of the sources."""
        return tuple(dict.fromkeys(source.topic for source in self.sources))

    def key(self, table: str) -> str:
        """The key of a table of a source or a view."""
        return self._table(table).key

    def columns(self, table: str) -> Mapping[str, ColumnType]:
        return self._table(table).columns

    def _table(self, table: str) -> SourceTable | ViewTable:
        every: tuple[SourceTable | ViewTable, ...] = (*self.sources, *self.views)
        return next(one for one in every if one.table == table)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that are published together."""
        own = [source.table for source in self.sources] + [view.table for view in self.views]
        return (*own, *SHOWN_OF_GENERATION)


def _sides(sources: Sequence[SourceTable]) -> ViewSides:
    left, *rights = sources
    return ViewSides(left.source, tuple(left.columns), {r.source: tuple(r.columns) for r in rights}, left.key)


def joined_view(
    name: str, sources: Sequence[SourceTable], join: Join, duplicates: Duplicates, max_rows_per_key: int | None = None
) -> ViewTable:
    left, *rights = sources
    places = [(number, left.key) for number in range(len(sources))]
    bounds: tuple[RowBound, ...] = ()
    # With several rows of a key on one side only, nothing is multiplied.
    if max_rows_per_key is not None and multiplies(join, duplicates) and sum(not one.latest for one in sources) > 1:
        bounds = (RowBound(name, tuple(places[:1]), tuple(places[1:]), join, max_rows_per_key),)
    sides = _sides(sources)
    columns = dict(left.columns)
    for right in rights:
        columns |= {shown: right.columns[column] for column, shown in sides.right_names()[right.source].items()}
    return ViewTable(
        table=name,
        sources=tuple(sources),
        key=left.key,
        columns=columns,
        sql=view_sql(sides, join, duplicates),
        narrow_sql=narrow_view_sql(len(rights), join, duplicates),
        narrow_sql_if_unique=narrow_view_sql(len(rights), join, Duplicates.ALL),
        pairs=shows_pairs(join, duplicates),
        bounds=bounds,
    )


def own_view(
    name: str, sources: Sequence[SourceTable], key: str, columns: Mapping[str, ColumnType], text: str
) -> ViewTable:
    sql = own_view_sql(text, key, {column: kind.spark for column, kind in columns.items()})
    return ViewTable(name, tuple(sources), key, columns, sql, sql, sql, pairs=True, own=True)


def chain_view(
    name: str, sources: Sequence[SourceTable], chain: Chain, max_rows_per_key: int | None = None
) -> ViewTable:
    left, *rights = sources

    def once(origin: Origin) -> bool:
        """Whether a value of a column is in one row of its source at most."""
        return sources[origin[0]].latest and sources[origin[0]].key == origin[1]

    bounds = []
    for number, (step, lefts) in enumerate(zip(chain.steps, chain.origins, strict=True), 1):
        own = (number, step.right_on)
        linear = once(own) or not lefts or (len(lefts) == 1 and once(lefts[0]))
        if max_rows_per_key is not None and multiplies(step.join, step.duplicates) and not linear:
            # Pairs are counted: what is shown without a partner is shown once.
            bounds.append(RowBound(f"{name}.{step.right}", lefts, (own,), Join.INNER, max_rows_per_key))
    columns = dict(left.columns)
    for right, names in zip(rights, chain.names, strict=True):
        columns |= {shown: right.columns[column] for column, shown in names.items()}
    sql, narrow = chain.sql, chain.narrow_sql
    return ViewTable(
        name, tuple(sources), left.key, columns, sql, narrow, narrow, chain.pairs, chain=chain, bounds=tuple(bounds)
    )
