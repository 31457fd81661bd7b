"""Parts of the server's answers that other rooms make: what the status says of sinks and alerts."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel

from turnout.errors import TurnoutError

ErrorText = Annotated[TurnoutError, PlainSerializer(str, return_type=str)]
"""An error, whose text is answered."""


class Answer(BaseModel):
    """An answer, or a part of one. A field that is `last_written` here is `lastWritten` in JSON."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        arbitrary_types_allowed=True,
    )


class SinkState(StrEnum):
    STARTING = "starting"
    WRITING = "writing"
    FAILING = "failing"


class SinkStatus(Answer):
    """One sink: what it writes, how far it has come, and what waits for it."""

    name: str
    table: str
    topic: str
    format: str
    delivery: str
    state: SinkState
    error: ErrorText | None
    """Why it does not write, and what to do."""
    generation: int
    """With `version`: the position of the table that its topic holds."""
    version: int
    records: int
    """Records that it has written since the process started."""
    last_written: str | None
    waiting_versions: int | None
    """Versions of its table that are not in the topic yet; null where the store does not answer."""
    waiting_rows: int | None
    """Changed rows that wait; where the difference has to be written, all rows of the table."""


class AlertStatus(Answer):
    """One alert: what it watches, where its events go, and how that stands."""

    name: str
    table: str
    where: str
    to: str
    """The target without its secrets: `webhook hooks.example.com`, `topic alerts` or `log`."""
    state: Literal["watching", "failing"]
    error: ErrorText | None
    """Why it cannot be checked, or is not delivered, and what to do."""
    rows: int | None
    """Rows that fulfil it; null where the store does not answer."""
    waiting: int | None
    """Events that are not delivered yet."""
    events: int
    """Events since the process started, as `delivered` and `dropped` are counted."""
    delivered: int
    dropped: int
    """Events that were never delivered, because too many waited."""
    last_delivered: str | None
