"""Control messages: what one asks for, which outcomes it can have, and how it changes the plan.

Everything here is pure. `control_parsing` makes messages of bytes, `swap_rules` decides which of several waiting
messages is built, and the builder checks whether topics exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from turnout.errors import TurnoutError
from turnout.plan.filter_values import show
from turnout.plan.joins import Join
from turnout.plan.plan import Plan, Start

MAX_MESSAGE_BYTES = 256 * 1024
"""A control message has a few hundred bytes; a far larger record was meant for another topic."""

MAX_REQUEST_ID = 200
"""Characters of a `requestId`: logs, tables, acknowledgements and answers repeat it."""


class Action(StrEnum):
    CHANGE = "change"
    ROLLBACK = "rollback"
    CANCEL = "cancel"
    """End the build under way."""
    PUBLISH = "publish"
    """Publish the candidate."""
    DISCARD = "discard"
    """Remove the candidate."""


class Outcome(StrEnum):
    """The terminal outcomes; each message gets exactly one. A dry run that would work is `unchanged`."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"
    CANDIDATE = "candidate"


class ControlRejected(TurnoutError):  # noqa: N818 - named as its outcome
    """The rejection of a message, with its `request_id` if that could be read, and what else its sender is told."""

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        code: str = "bad_control",
        status: int | None = None,
        request_id: str | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message, hint, status=status)
        self.request_id = request_id
        self.report = report


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """One message, parsed. Fields that it does not give keep their current value."""

    topics: Mapping[str, str] = field(default_factory=dict)
    join: Join | None = None
    """For every view that `joins` does not name."""
    joins: Mapping[str, Join] = field(default_factory=dict)
    request_id: str | None = None
    start: Start | None = None
    """Where every source is to be read from; it is read again."""
    starts: Mapping[str, Start] = field(default_factory=dict)
    """Where these sources are to be read from; the others are kept."""
    expected_generation: int | None = None
    dry_run: bool = False
    publish: bool = True
    """Whether what is built is published; if not, it becomes the candidate."""
    force: bool = False
    """Whether guards are passed over."""
    action: Action = Action.CHANGE
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """A configuration to put in force; only surfaces can ask for it."""

    config: str
    """The text of the file."""
    request_id: str | None = None
    expected_generation: int | None = None
    dry_run: bool = False
    force: bool = False


def resolve(message: ControlMessage, current: Plan) -> Plan:
    """The plan after a change. `joinType` applies to every view that the message has no other join for.

    ValueError for any other action: the plan of a rollback is in the history.
    """
    if message.action is not Action.CHANGE:
        raise ValueError(f"a message with the action {message.action.value} does not resolve to a plan")
    joins = {} if message.join is None else dict.fromkeys(current.joins, message.join)
    return current.with_(
        topics=message.topics, joins=joins | dict(message.joins), start=message.start, starts=message.starts
    )


def generation_conflict(
    message: ControlMessage | ApplyRequest, generation: int, what: str = "published"
) -> ControlRejected | None:
    """The rejection of a message that was written for another generation than `generation`, which is `what`."""
    expected = message.expected_generation
    if expected is None or expected == generation:
        return None
    return ControlRejected(
        f"expectedGeneration is {show(expected)}, but generation {generation} is {what}",
        "read the status again, and send the message with its generation",
        code="generation_conflict",
        request_id=message.request_id,
    )


def clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."
