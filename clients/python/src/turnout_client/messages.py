"""The messages of `WS /api/live`: two tagged unions, one for each direction, distinguished by `type`.

This is their only definition: `scripts/generate_types.py` writes the TypeScript types from it, the server checks the
messages of clients by it, and the tests those of the server. `serve/live/` acts on them.
"""

from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from turnout_client.events import ChangeKind

MAX_MESSAGE_BYTES = 64 * 1024
"""The largest message that a client may send."""

MAX_WINDOW_ROWS = 10_000
MAX_SUMMARY_GROUPS = 10_000
MAX_SQL_ROWS = 10_000
MAX_DIFFERENCE_ROWS = 1_000
MAX_HISTORY_SECONDS = 3_600
MAX_SUBSCRIPTIONS = 32
SNAPSHOT_PART_ROWS = 50_000
"""A snapshot of more rows comes in several messages; all but the last say `last: false`."""

TOKEN_PROTOCOL = "turnout.token."
"""Browsers cannot set headers on a WebSocket: they offer the subprotocols `turnout` and this plus base64url(token)."""

PROTOCOL = "turnout"


class CloseCode(IntEnum):
    """Why the server ended a connection; a reason in words comes with it."""

    TOO_LARGE = 1009
    """The client sent a message of more than 64 KiB."""
    STOPPING = 1012
    """The server stops or restarts: connect again, with back-off."""
    SIGNED_OUT = 4401
    """The token or the session of the client has ended: connect again with another."""
    SLOW = 4408
    """The client did not read for too long, although it was sent only the newest: connect again."""
    TOO_MANY_MESSAGES = 4429
    """The client sent too many messages: slow down."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Id = Annotated[str, Field(min_length=1, max_length=64)]
Text = Annotated[str, Field(max_length=10_000)]
Texts = Text | Annotated[list[Text], Field(max_length=1_000)]
Row = list[Any]


class Position(_Message):
    """How much of a table a client has seen."""

    generation: int
    version: int


class Term(_Message):
    """One condition of `where`: a column, an operator, and a value where the operator takes one."""

    column: Text
    op: Text
    value: Any = None


Where = Text | Annotated[list[Text | Term], Field(max_length=100)]


class ColumnInfo(_Message):
    name: str
    type: str


class ComparedPosition(Position):
    """A side of a difference. `lag`: the records of its topics that it had not read when their ends were last measured.

    It is null where they are not known.
    """

    lag: int | None


class DifferenceColumn(ColumnInfo):
    """A column that both tables have; `changed` counts the changed rows in which it differs."""

    changed: int


class DifferenceCounts(_Message):
    """How many rows; `same` are equal in all columns that both tables have."""

    added: int
    removed: int
    changed: int
    same: int


class DifferenceRow(_Message):
    """A row before and after: `from` is null where it was added, `to` where it was removed."""

    change: ChangeKind
    from_: dict[str, Any] | None = Field(alias="from")
    to: dict[str, Any] | None


class OnlyIn(_Message):
    """The columns that only one of two tables has, or has with another type: they are not compared."""

    from_: list[str] = Field(alias="from")
    to: list[str]


class SinkRecords(_Message):
    """The records that a sink would write if the second generation were published in place of the first."""

    sink: str
    records: int


class TableDifference(_Message):
    """What differs in a table between two generations, of one moment."""

    table: str
    from_: ComparedPosition = Field(alias="from")
    to: ComparedPosition
    counts: DifferenceCounts
    """The rows of each change that `where` keeps."""
    total: int
    """How many differences there are: added, removed and changed, or those of the wanted `change`."""
    key: list[str]
    """The columns that rows are matched by; several rows of one key by how alike they are."""
    columns: list[DifferenceColumn]
    """The columns that both tables have, which are compared."""
    columnsOnlyIn: OnlyIn  # noqa: N815 - as it is sent
    """The columns of `from` and of `to` that are not compared: the other has none of that name and type."""
    missing: Literal["from", "to"] | None
    """The side that has no such table: all rows are added, or removed."""
    sinks: list[SinkRecords]
    """For each sink of the table, how many records it would write if `to` were published in place of `from`."""
    rows: list[DifferenceRow]


class TextPosition(_Message):
    """A place in a text, counted from 1."""

    line: int
    column: int


class ErrorInfo(_Message):
    code: str
    message: str
    hint: str
    position: TextPosition | None = None
    """Where a SELECT is wrong."""


# -- from the client


class WindowRequest(_Message):
    """Send these rows now, and again whenever they change. The same id again moves the subscription."""

    type: Literal["window"]
    id: Id
    table: Text
    columns: Texts | None = None
    where: Where = ""
    sort: Texts = ""
    offset: Annotated[int, Field(ge=0, lt=2**53)] = 0
    limit: Annotated[int, Field(ge=0, le=MAX_WINDOW_ROWS)] = 100
    resume: Position | None = None


class ChangesRequest(_Message):
    """Send all rows, then every change in order. With `resume`: only what changed since, where that is still known."""

    type: Literal["changes"]
    id: Id
    table: Text
    columns: Texts | None = None
    resume: Position | None = None


class SummaryRequest(_Message):
    """Send groups of a table's rows now, and again whenever they change. `history`: also how they were before."""

    type: Literal["summary"]
    id: Id
    table: Text
    by: Texts = ""
    values: Texts = "count"
    where: Where = ""
    sort: Texts = ""
    limit: Annotated[int, Field(ge=0, le=MAX_SUMMARY_GROUPS)] = 100
    history: Annotated[int, Field(ge=0, le=MAX_HISTORY_SECONDS)] = 0


class DifferenceRequest(_Message):
    """Send what differs between two generations, and again when it changed, at most once a second.

    Without `from` and `to`: between what is shown and the candidate.
    """

    type: Literal["difference"]
    id: Id
    table: Text
    from_: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(None, alias="from")
    to: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    change: ChangeKind | None = None
    where: Where = ""
    sort: Texts = ""
    offset: Annotated[int, Field(ge=0, lt=2**53)] = 0
    limit: Annotated[int, Field(ge=0, le=MAX_DIFFERENCE_ROWS)] = 100


class SqlRequest(_Message):
    """Send the rows of a SELECT; `live`: again whenever a table that it names changed."""

    type: Literal["sql"]
    id: Id
    sql: Annotated[str, Field(max_length=MAX_MESSAGE_BYTES)]
    limit: Annotated[int, Field(ge=0, le=MAX_SQL_ROWS)] = 1_000
    live: bool = False


class StatusRequest(_Message):
    """Send the status, and again whenever it changes: the same as GET /api/status."""

    type: Literal["status"]
    id: Id


class Unsubscribe(_Message):
    type: Literal["unsubscribe"]
    id: Id


ClientMessage = Annotated[
    WindowRequest | ChangesRequest | SummaryRequest | DifferenceRequest | SqlRequest | StatusRequest | Unsubscribe,
    Field(discriminator="type"),
]


# -- from the server


class Hello(_Message):
    """The first message of a connection. Positions of one `store` mean nothing in another: do not resume there."""

    type: Literal["hello"]
    server: str
    store: str
    role: Literal["viewer", "operator"]
    sql: bool = False
    """Whether this client may send `sql`."""


class _OfTable(_Message):
    type: str
    id: str
    table: str
    generation: int
    version: int


class WindowRows(_OfTable):
    """A window as it is now. `ids` name its rows: a row that stays has the same id while its cells change.

    The rows of a SELECT have the table `sql`, and `complete`: false where there were more.
    """

    type: Literal["rows"]
    total: int
    offset: int
    columns: list[ColumnInfo]
    ids: list[str]
    rows: list[Row]
    complete: bool = True


class HistoryPoint(_Message):
    """The groups as they were from `time` on (milliseconds since 1970), until the next point."""

    time: int
    generation: int
    groups: list[Row]


class SwapMoment(_Message):
    """The table moved to this generation."""

    time: int
    generation: int


class SummaryHistory(_Message):
    """How a summary was before. `whole`: in place of all points before; else they are added, by their time."""

    seconds: int
    whole: bool
    points: list[HistoryPoint]
    swaps: list[SwapMoment]


class SummaryGroups(_OfTable):
    """A summary as it is now; `total` counts all groups, not only these."""

    type: Literal["summary"]
    by: list[str]
    columns: list[ColumnInfo]
    groups: list[Row]
    total: int
    history: SummaryHistory | None = None


class DifferenceNow(TableDifference):
    """A difference as it is now."""

    type: Literal["difference"]
    id: str


class Current(_OfTable):
    """The answer to `resume` when nothing has changed since."""

    type: Literal["current"]


class Snapshot(_OfTable):
    """All rows of a table, in place of all that came before. `swap`: the table moved to another generation."""

    type: Literal["snapshot"]
    reason: Literal["subscribed", "swap", "behind"]
    last: bool
    columns: list[ColumnInfo]
    ids: list[str]
    rows: list[Row]


class RowSet(_Message):
    ids: list[str]
    rows: list[Row]


class Changes(_OfTable):
    """What happened after version `since`, up to `version`; the columns are those of the snapshot."""

    type: Literal["changes"]
    since: int
    insert: RowSet
    update: RowSet
    delete: list[str]


class StatusNow(_Message):
    type: Literal["status"]
    id: str
    status: dict[str, Any]


class Problem(_Message):
    """A message that was refused, or (with `id`) a subscription that is over because of it."""

    type: Literal["error"]
    id: str | None
    error: ErrorInfo


ServerMessage = Annotated[
    Hello | WindowRows | SummaryGroups | DifferenceNow | Current | Snapshot | Changes | StatusNow | Problem,
    Field(discriminator="type"),
]

client_message: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)
server_message: TypeAdapter[ServerMessage] = TypeAdapter(ServerMessage)
