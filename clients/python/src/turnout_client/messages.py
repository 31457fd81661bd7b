"""The messages of `WS /api/live`: two tagged unions, one for each direction, distinguished by `type`.

These models are the only definition: `scripts/generate_types.py` generates the TypeScript types from them, the server
validates client messages with them, and the tests validate server messages. `serve/live/` processes the messages.
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
"""The maximum rows of a snapshot message; a larger snapshot is split, and all parts but the last have `last: false`."""

TOKEN_PROTOCOL = "turnout.token."
"""The prefix of the subprotocol with which browsers send a token, followed by base64url(token), beside `turnout`."""

PROTOCOL = "turnout"


class CloseCode(IntEnum):
    """The close codes of the server; each close also has a reason as text."""

    TOO_LARGE = 1009
    """The client sent a message of more than 64 KiB."""
    STOPPING = 1012
    """The server stops or restarts: reconnect, with growing pauses."""
    SIGNED_OUT = 4401
    """The token or the session of the client has ended: reconnect with a new one."""
    SLOW = 4408
    """The client did not read for too long, although the server skips to the newest data: reconnect."""
    TOO_MANY_MESSAGES = 4429
    """The client sent too many messages: send fewer."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Id = Annotated[str, Field(min_length=1, max_length=64)]
Text = Annotated[str, Field(max_length=10_000)]
Texts = Text | Annotated[list[Text], Field(max_length=1_000)]
Row = list[Any]


class Position(_Message):
    """The generation and version of the data that a client has."""

    generation: int
    version: int


class Term(_Message):
    """One condition of `where`: a column, an operator, and a value if the operator needs one."""

    column: Text
    op: Text
    value: Any = None


Where = Text | Annotated[list[Text | Term], Field(max_length=100)]


class ColumnInfo(_Message):
    name: str
    type: str


class ComparedPosition(Position):
    """One side of a difference.

    `lag` counts the records of its topics that were not yet read at the last measurement; null if unknown.
    """

    lag: int | None


class DifferenceColumn(ColumnInfo):
    """A column of both tables; `changed` counts the changed rows in which it differs."""

    changed: int


class DifferenceCounts(_Message):
    """The number of rows of each kind; `same` rows are equal in all columns that both tables have."""

    added: int
    removed: int
    changed: int
    same: int


class DifferenceRow(_Message):
    """A row before and after: `from` is null if it was added, `to` is null if it was removed."""

    change: ChangeKind
    from_: dict[str, Any] | None = Field(alias="from")
    to: dict[str, Any] | None


class OnlyIn(_Message):
    """The columns that are not compared, because the other table has none with this name and type."""

    from_: list[str] = Field(alias="from")
    to: list[str]


class SinkRecords(_Message):
    """The number of records that a sink would write if the generation `to` were published."""

    sink: str
    records: int


class TableDifference(_Message):
    """The differences of a table between two generations, as of one moment."""

    table: str
    from_: ComparedPosition = Field(alias="from")
    to: ComparedPosition
    counts: DifferenceCounts
    """The number of rows of each kind that match `where`."""
    total: int
    """The number of all differences, or of those of the requested `change`."""
    key: list[str]
    """The columns by which rows are matched; rows with equal keys are matched by similarity."""
    columns: list[DifferenceColumn]
    """The compared columns, which both tables have."""
    columnsOnlyIn: OnlyIn  # noqa: N815 - as it is sent
    """The columns of `from` and of `to` that the other side does not have; they are not compared."""
    missing: Literal["from", "to"] | None
    """The side without this table, so that all rows are added or removed; null if both have it."""
    sinks: list[SinkRecords]
    """Each sink of the table, with the number of records that it would write if `to` were published."""
    rows: list[DifferenceRow]


class TextPosition(_Message):
    """A line and column of a text, counted from 1."""

    line: int
    column: int


class ErrorInfo(_Message):
    code: str
    message: str
    hint: str
    position: TextPosition | None = None
    """The position of an error in a SELECT."""


# -- from the client


class WindowRequest(_Message):
    """Send these rows now, and again whenever they change. Another request with the same id changes the window."""

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
    """Send all rows, then every change in order. `resume`: send only later changes, if the server still has them."""

    type: Literal["changes"]
    id: Id
    table: Text
    columns: Texts | None = None
    resume: Position | None = None


class SummaryRequest(_Message):
    """Send groups of a table's rows now, and again whenever they change. `history`: seconds of past values to send."""

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
    """Send the differences between two generations now, and after changes, at most once a second.

    By default `from` is the published generation and `to` is the candidate.
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
    """Send the rows of a SELECT. `live`: send them again whenever one of its tables changes."""

    type: Literal["sql"]
    id: Id
    sql: Annotated[str, Field(max_length=MAX_MESSAGE_BYTES)]
    limit: Annotated[int, Field(ge=0, le=MAX_SQL_ROWS)] = 1_000
    live: bool = False


class StatusRequest(_Message):
    """Send the status of `GET /api/status` now, and again whenever it changes."""

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
    """The first message of a connection. Positions are valid only in the same `store`: resume in no other."""

    type: Literal["hello"]
    server: str
    store: str
    role: Literal["viewer", "operator"]
    sql: bool = False
    """Whether this client may send `sql` requests."""


class _OfTable(_Message):
    type: str
    id: str
    table: str
    generation: int
    version: int


class WindowRows(_OfTable):
    """The current rows of a window. `ids` identify them: a row keeps its id while its cells change.

    For a SELECT the table is `sql`, and `complete` is false if the limit cut the result.
    """

    type: Literal["rows"]
    total: int
    offset: int
    columns: list[ColumnInfo]
    ids: list[str]
    rows: list[Row]
    complete: bool = True


class HistoryPoint(_Message):
    """The groups of a summary from `time` (milliseconds since 1970) until the next point."""

    time: int
    generation: int
    groups: list[Row]


class SwapMoment(_Message):
    """The time of a swap in milliseconds since 1970, and its generation."""

    time: int
    generation: int


class SummaryHistory(_Message):
    """The past values of a summary. `whole`: replace all earlier points; otherwise add these by their time."""

    seconds: int
    whole: bool
    points: list[HistoryPoint]
    swaps: list[SwapMoment]


class SummaryGroups(_OfTable):
    """The current groups of a summary; `total` counts all groups, also beyond the limit."""

    type: Literal["summary"]
    by: list[str]
    columns: list[ColumnInfo]
    groups: list[Row]
    total: int
    history: SummaryHistory | None = None


class DifferenceNow(TableDifference):
    """The current state of a difference."""

    type: Literal["difference"]
    id: str


class Current(_OfTable):
    """The answer to `resume` when nothing has changed since."""

    type: Literal["current"]


class Snapshot(_OfTable):
    """All rows of a table, which replace all earlier rows. `swap`: the table has changed its generation."""

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
    """The changes after version `since` up to `version`; the columns are those of the snapshot."""

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
    """An error: a message was refused, or, if `id` is set, a subscription has ended."""

    type: Literal["error"]
    id: str | None
    error: ErrorInfo


ServerMessage = Annotated[
    Hello | WindowRows | SummaryGroups | DifferenceNow | Current | Snapshot | Changes | StatusNow | Problem,
    Field(discriminator="type"),
]

client_message: TypeAdapter[ClientMessage] = TypeAdapter(ClientMessage)
server_message: TypeAdapter[ServerMessage] = TypeAdapter(ServerMessage)
