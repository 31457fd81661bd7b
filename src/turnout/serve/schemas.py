"""The models of the bodies and the answers of HTTP calls, for the OpenAPI document.

Bodies are checked by their models. Answers are written from the store's own values, and only tests check them.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnout.config import Role
from turnout.config.changes import SettingChange
from turnout.plan.answers import AlertStatus, Answer, SinkStatus
from turnout.plan.control import Outcome
from turnout.plan.joins import Join
from turnout.serve.responses import AnswerFormat
from turnout.store.config_history import ConfigEntry
from turnout.store.query.sql import DEFAULT_ROWS, MAX_CHARACTERS, MAX_ROWS
from turnout.swap.build_progress import BuildStep
from turnout_client.messages import ColumnInfo, ErrorInfo, Text, Texts, Where


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SqlQuestion(Body):
    """One SELECT over published tables; `guard` as for rows."""

    sql: str = Field(max_length=MAX_CHARACTERS)
    """One SELECT, at most 100,000 characters."""
    format: AnswerFormat = AnswerFormat.JSON
    """`json`, `csv`, `arrow` or `parquet`; the headers of a file are `X-Turnout-Generation`, `X-Turnout-Total` and
    `X-Turnout-Complete` (1 or 0)."""
    limit: int = Field(DEFAULT_ROWS, ge=0, le=MAX_ROWS)
    """Rows to answer, at most 10000; `complete` is false where there were more."""
    guard: bool = False
    """With `csv`, as for rows."""


class SavedBody(Body):
    """A table with a filter, a sort, columns and a chart, or a SELECT; the chart is the page's own business."""

    table: Text
    """The table. It need not exist: it may come with the next swap. Empty beside `sql`."""
    sql: Text | None = None
    """One SELECT, which is shown instead of the table. It is run with the rights of whoever opens it."""
    where: Where = ""
    """As for rows."""
    sort: Texts = ""
    """As for rows."""
    columns: list[Text] | None = Field(None, max_length=1_000)
    """As for rows, as a list."""
    chart: dict[str, Any] | None = None
    """Any JSON object, for the page."""


class WhoAmI(Answer):
    """Who the server takes a sender for."""

    name: str
    subject: str | None
    """`sub` of the identity provider."""
    role: Role
    by: Literal["session", "issuer", "token", "none"]
    """How the sender is known: a browser's session, a token of the issuer, one of the file; `none` without `access`."""


class SignedOut(Answer):
    """The end of a session."""

    url: str
    """The address to open next: the issuer ends its own session there, if it can."""


class Error(Answer):
    """The one shape of every error: a code for programs, what is wrong, and what to do."""

    error: ErrorInfo


class ListedTable(Answer):
    name: str
    columns: list[ColumnInfo]
    rows: int
    generation: int
    version: int


class Tables(Answer):
    tables: list[ListedTable]


class _OfOneMoment(Answer):
    table: str
    generation: int
    version: int
    total: int
    columns: list[ColumnInfo]


class RowsAnswer(_OfOneMoment):
    """Rows of one moment; `total` counts all that `where` keeps."""

    rows: list[dict[str, str | bool | int | float | None]]


class Groups(_OfOneMoment):
    """Groups of one moment; `total` counts all of them, not only these."""

    by: list[str]
    groups: list[dict[str, str | bool | int | float | None]]


class SqlAnswer(_OfOneMoment):
    """Rows of a SELECT, of one moment; `complete` is false where there were more. `total` counts these."""

    table: Literal["sql"]
    tables: list[str]
    version: Literal[0]
    complete: bool
    rows: list[dict[str, Any]]


class SavedView(SavedBody):
    """A saved view, under its name."""

    name: str


class SavedViews(Answer):
    saved: list[SavedView]


class Removed(Answer):
    name: str


class BuildProgress(Answer):
    """A build under way."""

    generation: int
    state: str
    plan: str
    step: BuildStep
    records: int
    """Records that are stored."""
    recordsToRead: int  # noqa: N815 - as it is sent
    """Records that there were to read when the build began."""
    lag: int
    """Records that are left to read."""
    percent: float
    """The share of the whole build: reading, views and publishing. Estimated between two reports of the store."""
    secondsLeft: float | None  # noqa: N815 - as it is sent
    """About how long it will take; null while that is not known."""
    sources: dict[str, dict[str, int]]
    """For each source the rows that are `kept` and the records to `read`."""


class CandidateEntry(Answer):
    """The generation that waits to be published; its tables are `NAME@9`."""

    generation: int
    plan: str
    since: datetime
    expiresAt: datetime  # noqa: N815 - as it is sent
    """When it is discarded if nobody publishes it."""


class LeftOutKeys(Answer):
    """A view, or a step of a chain as `view.right`, that keys are left out of, and the first ten of them."""

    view: str
    keys: int
    first: list[str]


class Status(Answer):
    """The status row, and more about now. It also has the topic of each source, as `usersTopic`."""

    joinType: str | None  # noqa: N815 - the names of the wire
    """The join of the views."""
    lastApplied: str | None  # noqa: N815
    """When a message was applied last."""
    generation: int
    """What is published."""
    state: str
    """The state of that generation, or of the build under way."""
    lag: int | None
    """Records that are not read yet."""
    requestId: str | None  # noqa: N815
    """The name of the message that was applied last."""
    sources: list[str]
    """The names of the sources."""
    joins: list[Join]
    """The names of the joins that are known."""
    start: str
    """Where generations start to read."""
    records: int
    """Records that the published generation has read so far."""
    recordsPerSecond: float  # noqa: N815
    """How many it reads in a second now."""
    progress: BuildProgress | None
    """A build under way, else null: `generation`, `state`, `plan`, `step` (`validating`, `reading`, `views`,
    `publishing`), `records` (stored), `recordsToRead` (when the build began), `lag` (left to read), `percent` (of the
    whole build, estimated between two reports of the store), `secondsLeft` (about; null while it is not known)."""
    candidate: CandidateEntry | None
    """The candidate, else null: `generation`, `plan`, `since`, `expiresAt`; see docs/how-to/review.md."""
    lingering: list[int]
    """Generations that a rollback can still publish at once."""
    sinks: list[SinkStatus]
    """The tables that are written to topics, and how far; see docs/how-to/sinks.md."""
    alerts: list[AlertStatus]
    """The rows that are watched, and whether their events are delivered; see docs/how-to/alerts.md."""
    leftOut: list[LeftOutKeys]  # noqa: N815
    """Views that keys are left out of (`max_rows_per_key`): `view`, how many `keys`, and the `first` ten."""
    ready: bool
    """As `/readyz`."""
    reason: str
    """As `/readyz`."""
    newestRecord: str | None  # noqa: N815
    """When the newest record that is shown was written."""
    time: datetime
    """The server's time: the difference to `newestRecord` is how fresh the tables are."""


class ReportedPlan(Answer):
    topics: dict[str, str]
    joins: dict[str, Join]
    start: str | dict[Literal["timestamp"], str]


class BadSample(Answer):
    topic: str
    field: str | None
    reason: str
    value: str | None


class Report(Answer):
    """What a dry run found."""

    plan: ReportedPlan
    """`topics`, `joins` and `start` as they would be."""
    changes: bool
    """Whether anything would be built."""
    records: dict[str, int]
    """For each source, how many records would be read before the switch."""
    sources: dict[str, dict[str, int]]
    """For each source the rows that would be `kept` and the records to `read`."""
    columns: dict[str, dict[str, str]]
    """The columns of each view."""
    sampleUnmatched: dict[str, list[Any]]  # noqa: N815
    """For each view, keys of the newest left records that no newest right record has (at most 10)."""
    sampleBad: list[BadSample]  # noqa: N815
    """Bad records among the newest: `topic`, `field`, `reason`, `value` (at most 10)."""


class Decided(Answer):
    """The outcome of a control message; `report` where it was a dry run. What is rejected or failed is an error."""

    requestId: str | None  # noqa: N815
    outcome: Literal[
        Outcome.APPLIED,
        Outcome.UNCHANGED,
        Outcome.SUPERSEDED,
        Outcome.ROLLED_BACK,
        Outcome.CANCELLED,
        Outcome.CANDIDATE,
    ]
    detail: str
    generation: int
    report: Report | None = None


class _OfFile(Answer):
    generation: int
    detail: str
    requestId: str | None  # noqa: N815
    changes: list[SettingChange]


class Applied(_OfFile):
    """The outcome of a file that was sent.

    A dry run tells in `records` how many each source would read, and in `sources` also how many rows it would keep.
    """

    outcome: Literal[Outcome.APPLIED, Outcome.UNCHANGED, Outcome.CANCELLED, Outcome.CANDIDATE]
    records: dict[str, int] | None = None
    sources: dict[str, dict[str, int]] | None = None


class RefusedFile(_OfFile):
    """The error of a file that was rejected, or whose build failed, with what it would have changed."""

    error: ErrorInfo
    outcome: Literal[Outcome.REJECTED, Outcome.FAILED]


class ConfigHistory(Answer):
    history: list[ConfigEntry]


class Taken(Answer):
    """The message is kept, and has no outcome yet: do not send it again. Its outcome will show in `control_raw`."""

    message: int
    requestId: str | None  # noqa: N815
    outcome: None


class Alive(Answer):
    status: Literal["ok"]


class Ready(Answer):
    """`reason` only for a sender with a token, or where none is needed."""

    status: Literal["ready"]
    reason: str | None = None
