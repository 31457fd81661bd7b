"""The models of the bodies and the answers of HTTP calls, for the OpenAPI document.

Bodies are checked by their models. Answers are written from the store's own values, and only tests check them.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnout.config import Format as SourceFormat
from turnout.messages import ColumnInfo, ErrorInfo, Text, Texts, Where
from turnout.plan.control import Outcome
from turnout.plan.joins import Join
from turnout.serve.formats import Format
from turnout.store.query.sql import DEFAULT_ROWS, MAX_CHARACTERS, MAX_ROWS


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SqlQuestion(Body):
    """One SELECT over published tables; `guard` as for rows."""

    sql: str = Field(max_length=MAX_CHARACTERS)
    format: Format = Format.JSON
    limit: int = Field(DEFAULT_ROWS, ge=0, le=MAX_ROWS)
    guard: bool = False


class SavedBody(Body):
    """A table with a filter, a sort, columns and a chart; the last is the page's own business."""

    table: Text
    where: Where = ""
    sort: Texts = ""
    columns: list[Text] | None = Field(None, max_length=1_000)
    chart: dict[str, Any] | None = None


class Error(Answer):
    """The one shape of every error: a code for programs, what is wrong, and what to do."""

    error: ErrorInfo


class Table(Answer):
    name: str
    columns: list[ColumnInfo]
    rows: int
    generation: int
    version: int


class Tables(Answer):
    tables: list[Table]


class _OfOneMoment(Answer):
    table: str
    generation: int
    version: int
    total: int
    columns: list[ColumnInfo]


class Rows(_OfOneMoment):
    """Rows of one moment; `total` counts all that `where` keeps."""

    rows: list[dict[str, str | bool | int | float | None]]


class Groups(_OfOneMoment):
    """Groups of one moment; `total` counts all of them, not only these."""

    by: list[str]
    groups: list[dict[str, str | bool | int | float | None]]


class SqlRows(_OfOneMoment):
    """Rows of a SELECT, of one moment; `complete` is false where there were more. `total` counts these."""

    table: Literal["sql"]
    tables: list[str]
    version: Literal[0]
    complete: bool
    rows: list[dict[str, Any]]


class SavedView(SavedBody):
    """As it was saved, under its name."""

    name: str


class SavedViews(Answer):
    saved: list[SavedView]


class Removed(Answer):
    name: str


class Progress(Answer):
    """A build under way."""

    generation: int
    state: str
    plan: str
    records: int
    lag: int
    percent: float


class Status(Answer):
    """The status row, and more about now. It also has the topic of each source, as `usersTopic`."""

    joinType: str | None  # noqa: N815 - the names of the wire
    lastApplied: str | None  # noqa: N815
    generation: int
    state: str
    lag: int | None
    requestId: str | None  # noqa: N815
    sources: list[str]
    joins: list[Join]
    start: str
    records: int
    recordsPerSecond: float  # noqa: N815
    progress: Progress | None
    lingering: list[int]
    ready: bool
    reason: str
    newestRecord: str | None  # noqa: N815
    time: datetime


class Topics(Answer):
    """Topics to choose from, and the topic of each source; null before the first generation."""

    topics: list[str]
    sources: dict[str, str | None]


class ExampleColumn(Answer):
    """A column, its type, and what speaks for it."""

    name: str
    type: str
    evidence: str


class Choice(Answer):
    """The value of a setting, and what speaks for it."""

    value: str
    evidence: str


class LeftOut(Answer):
    name: str
    reason: str


class Example(Answer):
    """A source for a topic, by its newest records. `yaml` has its lines for the file, with views that it fits."""

    topic: str
    source: str
    table: str
    format: SourceFormat
    partitions: int
    records: int
    looked: int
    tombstones: int
    columns: list[ExampleColumn]
    leftOut: list[LeftOut]  # noqa: N815 - the names of the wire
    key: Choice
    rows: Choice
    views: list[str]
    yaml: str


class Plan(Answer):
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

    plan: Plan
    changes: bool
    records: dict[str, int]
    columns: dict[str, dict[str, str]]
    sampleUnmatched: dict[str, list[Any]]  # noqa: N815
    sampleBad: list[BadSample]  # noqa: N815


class Decided(Answer):
    """The outcome of a control message; `report` where it was a dry run. What is rejected or failed is an error."""

    requestId: str | None  # noqa: N815
    outcome: Literal[Outcome.APPLIED, Outcome.UNCHANGED, Outcome.SUPERSEDED, Outcome.ROLLED_BACK]
    detail: str
    generation: int
    report: Report | None = None


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
