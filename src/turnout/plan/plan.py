"""What one generation is built from: topics, joins, where reading starts, and the sections that describe its tables.

A plan is a value, to compare, to store as JSON and to show in logs. The builder checks whether its topics exist.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from turnout.plan.joins import Join, parse_join

_T = TypeVar("_T")
TOPIC_PATTERN = "[A-Za-z0-9._-]{1,249}"
_TOPIC = re.compile(TOPIC_PATTERN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_START_FORMS = "latest, earliest, {timestamp: 2026-01-01T00:00:00Z}"


def parse_topic(text: str) -> str:
    """A topic name that Kafka accepts, or ValueError."""
    if _TOPIC.fullmatch(text) and text not in (".", ".."):
        return text
    raise ValueError(f"{text!r} is not a Kafka topic name (1 to 249 of A-Z a-z 0-9 . _ -, not '.' or '..')")


@dataclass(frozen=True, slots=True)
class Start:
    """Where a generation starts to read: `timestamp_ms` is set for the kind `timestamp` only."""

    kind: Literal["latest", "earliest", "timestamp"] = "latest"
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        if (self.kind == "timestamp") != (self.timestamp_ms is not None):
            raise ValueError(f"start {self.kind!r} with timestamp_ms {self.timestamp_ms!r}: one needs the other")

    @classmethod
    def parse(cls, value: object) -> "Start":
        """From configuration or a control message; ValueError lists the known forms."""
        if isinstance(value, Start):
            return value
        if isinstance(value, str) and value.strip().lower() in ("latest", "earliest"):
            return cls("latest" if value.strip().lower() == "latest" else "earliest")
        if isinstance(value, Mapping) and set(value) == {"timestamp"}:
            return cls("timestamp", _milliseconds(value["timestamp"]))
        shown = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
        raise ValueError(f"unknown start {shown} (known: {_START_FORMS})")

    def to_json(self) -> str | dict[str, str]:
        """The form that `parse` reads back."""
        if self.timestamp_ms is None:
            return self.kind
        moment = _EPOCH + timedelta(milliseconds=self.timestamp_ms)
        precision = "milliseconds" if self.timestamp_ms % 1000 else "seconds"
        return {"timestamp": moment.isoformat(timespec=precision).replace("+00:00", "Z")}

    def __str__(self) -> str:
        shown = self.to_json()
        return shown if isinstance(shown, str) else shown["timestamp"]


def _milliseconds(value: object) -> int:
    """Milliseconds since 1970 of an ISO 8601 text; without an offset it is UTC."""
    try:
        moment = datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(f"timestamp {value!r} is not ISO 8601 text (such as 2026-01-01T00:00:00Z)") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise ValueError(f"timestamp {value!r} is before 1970, where Kafka's time begins")
    return milliseconds


@dataclass(frozen=True, slots=True)
class Plan:
    """One resolved plan; the mappings are read-only copies, in the order of the configuration."""

    topics: Mapping[str, str]
    joins: Mapping[str, Join]
    start: Start = field(default_factory=Start)
    starts: Mapping[str, Start] = field(default_factory=dict)
    """Where messages let single sources start; the others go by `start`."""
    sections: str = ""
    """The sections of the file that its tables are made by, as JSON; empty where they are those in force."""

    def __post_init__(self) -> None:
        for name in ("topics", "joins", "starts"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Plan":
        joins = {view: parse_join(join) for view, join in value["joins"].items()}
        starts = {source: Start.parse(start) for source, start in value.get("starts", {}).items()}
        return cls(value["topics"], joins, Start.parse(value["start"]), starts)

    def to_json(self) -> dict[str, Any]:
        joins = {view: join.value for view, join in self.joins.items()}
        starts = {source: start.to_json() for source, start in self.starts.items()}
        plan = {"topics": dict(self.topics), "joins": joins, "start": self.start.to_json()}
        return {**plan, "starts": starts} if starts else plan

    def with_(
        self,
        *,
        topics: Mapping[str, str] | None = None,
        joins: Mapping[str, Join] | None = None,
        start: Start | None = None,
        starts: Mapping[str, Start] | None = None,
    ) -> "Plan":
        """This plan with some topics, joins and starts replaced; the others stay. `start` is for all sources."""
        return Plan(
            _merged("source", self.topics, topics or {}),
            _merged("view", self.joins, joins or {}),
            start if start is not None else self.start,
            (dict(self.starts) if start is None else {}) | dict(starts or {}),
            self.sections,
        )

    def describe(self) -> str:
        """One line for logs: `users=users2 accounts=accounts join=left`."""
        words = [f"{source}={topic}" for source, topic in self.topics.items()]
        if len(self.joins) == 1:
            words += [f"join={join.value}" for join in self.joins.values()]
        else:
            words += [f"{view}={join.value}" for view, join in self.joins.items()]
        if self.start.kind != "latest":
            words.append(f"start={self.start}")
        words += [f"start.{source}={start}" for source, start in self.starts.items()]
        return " ".join(words)


def _merged(kind: str, current: Mapping[str, _T], changes: Mapping[str, _T]) -> dict[str, _T]:
    unknown = [name for name in changes if name not in current]
    if unknown:
        raise ValueError(f"no {kind} {unknown[0]!r} in the plan (has: {', '.join(current)})")
    return {**current, **changes}
