"""The frozen objects that a client returns: rows, windows, summaries, differences, changes, subscription states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from turnout_client import display, frames

if TYPE_CHECKING:
    import pyarrow

Json = dict[str, Any]
Row = dict[str, Any]
Values = Sequence[Any]
Columns = tuple[Mapping[str, str], ...]
Texts = str | Iterable[str]
Where = str | Iterable[str | Mapping[str, Any]]
E = TypeVar("E", bound="Rows | Summary | Difference")


class WindowOptions(TypedDict, total=False):
    """The arguments of `Table.window`."""

    columns: Texts
    where: Where
    sort: Texts
    offset: int
    limit: int


class SummaryOptions(TypedDict, total=False):
    """The arguments of `Table.summary`."""

    by: Texts
    values: Texts
    where: Where
    sort: Texts
    limit: int


class LiveSummaryOptions(SummaryOptions, total=False):
    """The arguments of `Table.live_summary`; `history` is for how many seconds past values are kept."""

    history: int


ChangeKind = Literal["added", "removed", "changed"]

DifferenceOptions = TypedDict(
    "DifferenceOptions",
    {
        "from": int | None,
        "to": int | None,
        "change": ChangeKind | None,
        "where": Where,
        "sort": Texts,
        "offset": int,
        "limit": int,
    },
    total=False,
)
"""The parameters of a difference, with the names of the API."""


class SqlOptions(TypedDict, total=False):
    """The parameters of a SELECT: the maximum number of rows, and whether to send them again after changes."""

    limit: int
    live: bool


class State(StrEnum):
    """The state of a subscription."""

    CONNECTING = "connecting"
    """There is no answer yet."""
    LIVE = "live"
    """The data is current."""
    AWAY = "away"
    """The server cannot be reached; the last data is kept, and the client reconnects automatically."""
    REFUSED = "refused"
    """The server refused the subscription; `error` has the reason."""
    CLOSED = "closed"
    """The program closed the subscription."""

    @property
    def over(self) -> bool:
        """Whether no more data will arrive."""
        return self in (State.REFUSED, State.CLOSED)


@dataclass(frozen=True, slots=True)
class Rows(frames.Frames):
    """A window of a table, as of one moment; `total` counts all rows that match `where`."""

    table: str
    generation: int
    version: int
    total: int
    columns: Columns
    rows: tuple[Mapping[str, Any], ...]

    def as_json(self) -> Json:
        """Return the JSON object of the HTTP API."""
        return {one.name: getattr(self, one.name) for one in fields(Rows)}

    def to_arrow(self) -> pyarrow.Table:
        """Return the rows as an Arrow table with the types of their columns."""
        return frames.from_rows(self.columns, self.rows)

    def __repr__(self) -> str:
        return display.lines(self, "row", self.rows)

    def _repr_html_(self) -> str:
        return display.page(self, "row", self.rows)


@dataclass(frozen=True, slots=True, repr=False)
class Window(Rows):
    """The current rows of a live window. A row keeps its id in `ids` while its cells change."""

    ids: tuple[str, ...]
    offset: int
    swapped: bool
    """Whether the table has changed its generation since the previous event."""


@dataclass(frozen=True, slots=True, repr=False)
class SqlRows(Rows):
    """The rows of a SELECT, as of one moment; `complete` is False if the limit cut the result. `table` is `sql`."""

    complete: bool = True

    def as_json(self) -> Json:
        """Return the JSON object of the HTTP API."""
        # super() fails here: a dataclass with slots is a copy of the class in which this method is defined.
        return {**Rows.as_json(self), "complete": self.complete}


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The groups of a summary from `time` (milliseconds since 1970) until the next point."""

    time: int
    generation: int
    groups: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class SwapMoment:
    """The time of a swap in milliseconds since 1970, and its generation."""

    time: int
    generation: int


@dataclass(frozen=True, slots=True)
class Summary(frames.Frames):
    """Groups of a table's rows, as of one moment; `total` counts all groups, also beyond `limit`."""

    table: str
    generation: int
    version: int
    by: tuple[str, ...]
    columns: Columns
    groups: tuple[Row, ...]
    total: int
    history: tuple[HistoryPoint, ...] = ()
    """The past values of a live summary; empty if `history` was not requested."""
    swaps: tuple[SwapMoment, ...] = ()
    swapped: bool = False
    """Whether the table has changed its generation since the previous event."""

    def as_json(self) -> Json:
        """Return the JSON object of the HTTP API."""
        names = ("table", "generation", "version", "by", "columns", "groups", "total")
        return {name: getattr(self, name) for name in names}

    def to_arrow(self) -> pyarrow.Table:
        """Return the groups as an Arrow table with the types of their columns."""
        return frames.from_rows(self.columns, self.groups)

    def __repr__(self) -> str:
        return display.lines(self, "group", self.groups)

    def _repr_html_(self) -> str:
        return display.page(self, "group", self.groups)


@dataclass(frozen=True, slots=True)
class Difference(frames.Frames):
    """The differences of a table between two generations, as of one moment; `total` counts them, also beyond `limit`.

    Each of `rows` has `change` (`added`, `removed` or `changed`), `from` and `to`: the row before and after, or None.
    """

    table: str
    from_: Mapping[str, Any]
    """The first side: `generation`, `version`, and the `lag` of the generation (None if unknown)."""
    to: Mapping[str, Any]
    counts: Mapping[str, int]
    """The number of rows that are `added`, `removed`, `changed` and `same`."""
    total: int
    key: tuple[str, ...]
    columns: tuple[Mapping[str, Any], ...]
    """The compared columns: `name`, `type`, and `changed`, the number of changed rows in which the column differs."""
    only_in: Mapping[str, Sequence[str]]
    """The columns that are not compared because only one side, `from` or `to`, has them."""
    missing: str | None
    sinks: tuple[Mapping[str, Any], ...]
    """Each `sink` of the table, with the number of `records` that it would write."""
    rows: tuple[Row, ...]

    def as_json(self) -> Json:
        """Return the JSON object of the HTTP API."""
        wire = {"from_": "from", "only_in": "columnsOnlyIn"}
        return {wire.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}

    def to_arrow(self) -> pyarrow.Table:
        """Return the rows as an Arrow table with the columns `change`, `from.NAME` and `to.NAME`."""
        pairs = [(side, column) for side in ("from", "to") for column in self.columns]
        columns = [{"name": f"{side}.{column['name']}", "type": column["type"]} for side, column in pairs]
        cells = [[(row[side] or {}).get(column["name"]) for side, column in pairs] for row in self.rows]
        changes = [row["change"] for row in self.rows]
        values = [[change, *row] for change, row in zip(changes, cells, strict=True)]
        return frames.to_arrow([{"name": "change", "type": "string"}, *columns], values)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {change}" for change, count in self.counts.items())
        changed = [column["name"] for column in self.columns if column["changed"]]
        generations = f"generation {self.from_['generation']} to {self.to['generation']}"
        return f"<Difference of {self.table}, {generations}: {counts}; changed columns: {', '.join(changed) or 'none'}>"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a table since the previous event, by row id."""

    table: str
    generation: int
    version: int
    columns: Columns
    snapshot: bool
    """Whether `inserted` replaces all rows: in the first event, after a swap, or if the consumer was too slow."""
    swapped: bool
    inserted: Mapping[str, Row]
    updated: Mapping[str, Row]
    deleted: frozenset[str]

    def __repr__(self) -> str:
        counts = f"{len(self.inserted):,} inserted, {len(self.updated):,} updated, {len(self.deleted):,} deleted"
        return f"<Changes of {self.table}: {counts}, generation {self.generation}, version {self.version}>"


@dataclass(frozen=True, slots=True)
class Snapshot(frames.Frames):
    """All rows of a table, as of one moment."""

    table: str
    generation: int
    version: int
    columns: Columns
    _values: dict[str, Values] = field(repr=False)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def rows(self) -> dict[str, Row]:
        """All rows by their ids; each access creates a new dictionary."""
        return named(self.columns, self._values)

    def to_arrow(self) -> pyarrow.Table:
        """Return all rows as an Arrow table with the types of their columns."""
        return frames.to_arrow(self.columns, list(self._values.values()))


def event_of(kind: type[E], answer: Json, **given: Any) -> E:
    """Create an event from the fields of an answer, with lists as tuples; `given` overrides fields of the answer."""
    known = {one.name for one in fields(kind)}
    found = {name: value for name, value in (answer | given).items() if name in known}
    arguments: Json = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return kind(**arguments)


def difference_of(answer: Json) -> Difference:
    """Create a difference from an HTTP answer or a live message."""
    return event_of(Difference, answer, from_=answer["from"], only_in=answer["columnsOnlyIn"])


def named_rows(columns: Sequence[Mapping[str, str]], values: Iterable[Values]) -> tuple[Row, ...]:
    names = [column["name"] for column in columns]
    return tuple(dict(zip(names, row, strict=True)) for row in values)


def named(columns: Columns, values: Mapping[str, Values]) -> dict[str, Row]:
    return dict(zip(values, named_rows(columns, values.values()), strict=True))
