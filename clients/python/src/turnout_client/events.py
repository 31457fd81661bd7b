"""What a client hands out, all frozen: rows over HTTP, windows and changes of live tables, states of a subscription."""

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
    """Which live summary of a table, and for how many seconds its values are kept: what `Table.live_summary` takes."""

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
"""Which difference of a table, by the names that the server has for it: what `Table.live_difference` sends."""


class SqlOptions(TypedDict, total=False):
    """How much of a SELECT's answer to send, and whether to send it again when its tables changed."""

    limit: int
    live: bool


class State(StrEnum):
    """The state of a subscription."""

    CONNECTING = "connecting"
    """No answer yet."""
    LIVE = "live"
    """It has the newest data of the server."""
    AWAY = "away"
    """The server cannot be reached; the last data stays, and the client connects again by itself."""
    REFUSED = "refused"
    """Over: the server refused it, and says why."""
    CLOSED = "closed"
    """Over: it was closed here."""

    @property
    def over(self) -> bool:
        """Whether no more data comes."""
        return self in (State.REFUSED, State.CLOSED)


@dataclass(frozen=True, slots=True)
class Rows(frames.Frames):
    """A window of a table, of one moment; `total` counts what `where` keeps, not only this window."""

    table: str
    generation: int
    version: int
    total: int
    columns: Columns
    rows: tuple[Mapping[str, Any], ...]

    def as_json(self) -> Json:
        """The object that the HTTP API answers."""
        return {one.name: getattr(self, one.name) for one in fields(Rows)}

    def to_arrow(self) -> pyarrow.Table:
        """These rows, with the types of their columns."""
        return frames.from_rows(self.columns, self.rows)

    def __repr__(self) -> str:
        return display.lines(self, "row", self.rows)

    def _repr_html_(self) -> str:
        return display.page(self, "row", self.rows)


@dataclass(frozen=True, slots=True, repr=False)
class Window(Rows):
    """A window as it is now. A row that stays has the same id while its cells change."""

    ids: tuple[str, ...]
    offset: int
    swapped: bool
    """Whether the table moved to another generation since the window that was handed out before."""


@dataclass(frozen=True, slots=True, repr=False)
class SqlRows(Rows):
    """The rows of a SELECT, of one moment; `complete` is False where there were more. `table` is `sql`."""

    complete: bool = True

    def as_json(self) -> Json:
        """The object that the HTTP API answers."""
        # Not by super(): a dataclass with slots is another class than the one that this is written in.
        return {**Rows.as_json(self), "complete": self.complete}


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The groups as they were from `time` on (milliseconds since 1970), until the next point."""

    time: int
    generation: int
    groups: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class SwapMoment:
    """When the table moved to a generation (milliseconds since 1970)."""

    time: int
    generation: int


@dataclass(frozen=True, slots=True)
class Summary(frames.Frames):
    """Groups of a table's rows, of one moment; `total` counts all groups, not only these."""

    table: str
    generation: int
    version: int
    by: tuple[str, ...]
    columns: Columns
    groups: tuple[Row, ...]
    total: int
    history: tuple[HistoryPoint, ...] = ()
    """The past values of a live summary that was asked for with `history`."""
    swaps: tuple[SwapMoment, ...] = ()
    swapped: bool = False
    """Whether the table moved to another generation since the summary that was handed out before."""

    def as_json(self) -> Json:
        """The object that the HTTP API answers."""
        names = ("table", "generation", "version", "by", "columns", "groups", "total")
        return {name: getattr(self, name) for name in names}

    def to_arrow(self) -> pyarrow.Table:
        """The groups, with the types of their columns."""
        return frames.from_rows(self.columns, self.groups)

    def __repr__(self) -> str:
        return display.lines(self, "group", self.groups)

    def _repr_html_(self) -> str:
        return display.page(self, "group", self.groups)


@dataclass(frozen=True, slots=True)
class Difference(frames.Frames):
    """What differs in a table between two generations, of one moment; `total` counts what `rows` are the first of.

    A row has `change` (`added`, `removed` or `changed`), and `from` and `to`: the row before and after, or None.
    """

    table: str
    from_: Mapping[str, Any]
    """`generation` and `version` of the table before, and the `lag` of its generation, None where it is not known."""
    to: Mapping[str, Any]
    counts: Mapping[str, int]
    """The rows that are `added`, `removed`, `changed` and `same`."""
    total: int
    key: tuple[str, ...]
    columns: tuple[Mapping[str, Any], ...]
    """The compared columns: `name`, `type`, and in how many changed rows each has `changed`."""
    only_in: Mapping[str, Sequence[str]]
    """The columns that are not compared, because only `from` or only `to` has them."""
    missing: str | None
    sinks: tuple[Mapping[str, Any], ...]
    """For each `sink` of the table, how many `records` it would write."""
    rows: tuple[Row, ...]

    def as_json(self) -> Json:
        """The object that the HTTP API answers."""
        wire = {"from_": "from", "only_in": "columnsOnlyIn"}
        return {wire.get(one.name, one.name): getattr(self, one.name) for one in fields(self)}

    def to_arrow(self) -> pyarrow.Table:
        """The rows as the columns `change`, `from.NAME` and `to.NAME`."""
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
    """What changed in a table since the event before, by row id."""

    table: str
    generation: int
    version: int
    columns: Columns
    snapshot: bool
    """`inserted` has all rows, in place of all before: the first event, a swap, or a consumer that was too slow."""
    swapped: bool
    inserted: Mapping[str, Row]
    updated: Mapping[str, Row]
    deleted: frozenset[str]

    def __repr__(self) -> str:
        counts = f"{len(self.inserted):,} inserted, {len(self.updated):,} updated, {len(self.deleted):,} deleted"
        return f"<Changes of {self.table}: {counts}, generation {self.generation}, version {self.version}>"


@dataclass(frozen=True, slots=True)
class Snapshot(frames.Frames):
    """A whole table, of one moment."""

    table: str
    generation: int
    version: int
    columns: Columns
    _values: dict[str, Values] = field(repr=False)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def rows(self) -> dict[str, Row]:
        """Every row by its id; each call makes another dictionary."""
        return named(self.columns, self._values)

    def to_arrow(self) -> pyarrow.Table:
        """All rows, with the types of their columns."""
        return frames.to_arrow(self.columns, list(self._values.values()))


def event_of(kind: type[E], answer: Json, **given: Any) -> E:
    """An event from the fields of an answer, lists as tuples; those in `given` replace the answer's."""
    known = {one.name for one in fields(kind)}
    found = {name: value for name, value in (answer | given).items() if name in known}
    arguments: Json = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return kind(**arguments)


def difference_of(answer: Json) -> Difference:
    """A difference from an answer or a message."""
    return event_of(Difference, answer, from_=answer["from"], only_in=answer["columnsOnlyIn"])


def named_rows(columns: Sequence[Mapping[str, str]], values: Iterable[Values]) -> tuple[Row, ...]:
    names = [column["name"] for column in columns]
    return tuple(dict(zip(names, row, strict=True)) for row in values)


def named(columns: Columns, values: Mapping[str, Values]) -> dict[str, Row]:
    return dict(zip(values, named_rows(columns, values.values()), strict=True))
