"""Control messages: what bytes on the control topic, or a request, ask for, and what the plan becomes.

Everything here is pure. Whether topics exist, and what happens to a change, is the orchestrator's; which of
several waiting messages is built is decided in `swap`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType

from turnout.errors import TurnoutError
from turnout.plan.joins import ALIASES, Join, parse_join
from turnout.plan.plan import Plan, Start, parse_topic

MAX_MESSAGE_BYTES = 256 * 1024
"""A control message is a few hundred bytes; what is far larger was sent to the wrong topic."""

MAX_REQUEST_ID = 200
"""Characters of a `requestId`: it is told in logs, tables, acknowledgements and answers."""

TopicFault = Callable[[str], tuple[str, str] | None]

_WARNINGS_SHOWN = 10
_SHOWN_CHARS = 60
_OWN_FIELDS = ("joinType", "requestId", "start", "expectedGeneration", "dryRun", "action")
_EXAMPLE = '{"usersTopic": "users2", "joinType": "inner"}'


def _no_fault(topic: str) -> None:
    return None


class Action(StrEnum):
    """What a message asks for."""

    CHANGE = "change"
    ROLLBACK = "rollback"


class Outcome(StrEnum):
    """The terminal outcomes; each message gets exactly one. A dry run that would work is `unchanged`."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REJECTED = "rejected"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    ROLLED_BACK = "rolled_back"


class ControlRejected(TurnoutError):  # noqa: N818 - named as its outcome
    """A message that cannot be followed; `request_id` is kept where it could be read, to answer under."""

    def __init__(
        self,
        *,
        message: str,
        hint: str = "",
        code: str = "bad_control",
        status: int = 422,
        request_id: str | None = None,
    ) -> None:
        super().__init__(code=code, message=message, hint=hint, status=status)
        self.request_id = request_id


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """One message, parsed: only what it gives; what is absent takes the current value."""

    topics: Mapping[str, str] = field(default_factory=dict)
    join: Join | None = None
    """For every view that `joins` does not name."""
    joins: Mapping[str, Join] = field(default_factory=dict)
    request_id: str | None = None
    start: Start | None = None
    expected_generation: int | None = None
    dry_run: bool = False
    action: Action = Action.CHANGE
    warnings: tuple[str, ...] = ()

    # The mappings are compared by content and have no hash.
    __hash__ = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "topics", MappingProxyType(dict(self.topics)))
        object.__setattr__(self, "joins", MappingProxyType(dict(self.joins)))


@dataclass(frozen=True, slots=True)
class Resolution:
    """What the plan is and what it becomes."""

    before: Plan
    plan: Plan

    __hash__ = None  # type: ignore[assignment]

    @property
    def changed(self) -> bool:
        return self.plan != self.before

    def differences(self) -> tuple[str, ...]:
        """Each difference as `name: old -> new`."""
        old, new = self.before, self.plan
        pairs = [(source, old.topics[source], new.topics[source]) for source in new.topics]
        pairs += [(f"{view} join", str(old.joins[view]), str(new.joins[view])) for view in new.joins]
        pairs.append(("start", str(old.start), str(new.start)))
        return tuple(f"{name}: {was} -> {becomes}" for name, was, becomes in pairs if was != becomes)

    def describe(self) -> str:
        """One line for logs."""
        return ", ".join(self.differences()) or "no change"


def topic_field(source: str) -> str:
    """The field of a message that names the topic of a source."""
    return f"{source}Topic"


def join_field(view: str) -> str:
    """The field of a message that names the join of one view."""
    return f"{view}JoinType"


def parse_message(
    raw: bytes | str | None, sources: Collection[str], views: Collection[str] = (), topic_fault: TopicFault = _no_fault
) -> ControlMessage:
    """The message in `raw` for these sources and joined views; ControlRejected says why it cannot be followed.

    `topic_fault` says what is wrong with a topic that is well spelled, and what to do.
    """
    warnings: list[str] = []
    reader = _Reader(_decode_object(_text(raw), warnings), warnings, topic_fault)
    request_id = reader.request_id()
    topics = {source: reader.topic(topic_field(source)) for source in sources}
    joins = {view: reader.join(join_field(view)) for view in views}
    message = ControlMessage(
        topics={source: topic for source, topic in topics.items() if topic is not None},
        join=reader.join("joinType"),
        joins={view: join for view, join in joins.items() if join is not None},
        request_id=request_id,
        start=reader.start(),
        expected_generation=reader.expected_generation(),
        dry_run=reader.dry_run(),
        action=reader.action(),
        warnings=reader.all_warnings([*map(topic_field, sources), *map(join_field, views)]),
    )
    if message.action is Action.ROLLBACK and (message.topics or message.join or message.joins or message.start):
        reader.fault("a rollback takes no topics, join or start", "send action alone, or a change without action")
    reader.raise_faults(request_id)
    return message


def resolve(message: ControlMessage, current: Plan) -> Resolution:
    """What `current` becomes by a change; a join is given to every view, unless the message has another for it.

    A rollback's plan is in the history, which is not known here: ValueError.
    """
    if message.action is Action.ROLLBACK:
        raise ValueError("a rollback does not resolve to a plan: take the previous one")
    joins = {} if message.join is None else dict.fromkeys(current.joins, message.join)
    joins |= message.joins
    return Resolution(current, current.with_(topics=message.topics, joins=joins, start=message.start))


def combine(messages: Iterable[ControlMessage], current: Plan) -> Resolution:
    """What `current` becomes by all of them in order: a field of a later message wins over an earlier one."""
    plan = current
    for message in messages:
        plan = resolve(message, plan).plan
    return Resolution(current, plan)


def check_expected(message: ControlMessage, generation: int) -> None:
    """Refuse a message that was written for another generation than the published one."""
    expected = message.expected_generation
    if expected is not None and expected != generation:
        raise ControlRejected(
            message=f"expectedGeneration is {_shown(expected)}, but generation {generation} is published",
            hint="read the status again, and send the message with its generation",
            code="generation_conflict",
            status=409,
            request_id=message.request_id,
        )


def _text(raw: bytes | str | None) -> str:
    if raw is None:
        raise ControlRejected(message="null value (a tombstone)", hint=f"send a JSON object such as {_EXAMPLE}")
    try:
        data = raw.encode() if isinstance(raw, str) else raw
        if len(data) > MAX_MESSAGE_BYTES:
            raise ControlRejected(
                message=f"the message has {len(data)} bytes, more than the {MAX_MESSAGE_BYTES} allowed",
                hint="send only the fields that change; is this record meant for another topic?",
            )
        # Some consoles put a byte order mark in front of what is typed.
        text = data.decode("utf-8-sig")
    except UnicodeError as error:
        where = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise ControlRejected(message=f"not UTF-8{where}", hint="send JSON text encoded as UTF-8") from None
    if not text.strip():
        raise ControlRejected(message="an empty message", hint=f"send a JSON object such as {_EXAMPLE}")
    return text


def _decode_object(text: str, warnings: list[str]) -> dict[str, object]:
    def collected(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
            warnings.extend(f"{_shown(name)} is given more than once: the last one is taken" for name in twice)
        return fields

    try:
        value = json.loads(text, object_pairs_hook=collected)
    except json.JSONDecodeError as error:
        near = _shown(text[max(0, error.pos - 10) : error.pos + 20])
        raise ControlRejected(
            message=f"not valid JSON at line {error.lineno} column {error.colno} (near {near}): {error.msg}",
            hint=f"send a JSON object such as {_EXAMPLE}",
        ) from None
    except RecursionError:
        raise ControlRejected(
            message="the JSON is nested too deeply", hint=f"send a flat object such as {_EXAMPLE}"
        ) from None
    except ValueError:
        # The only other one that the decoder raises: an integer of more than 4,300 digits.
        raise ControlRejected(
            message="a number with too many digits", hint="send expectedGeneration as published"
        ) from None
    if isinstance(value, str):
        raise ControlRejected(
            message=f"a JSON string {_shown(value)} instead of an object: it was encoded twice",
            hint=f"send the object itself, such as {_EXAMPLE}, not a string that contains it",
        )
    if not isinstance(value, dict):
        raise ControlRejected(
            message=f"{_kind(value)} instead of an object", hint=f"send one JSON object such as {_EXAMPLE}"
        )
    return value


class _Reader:
    """Takes the known fields out of an object, and collects every fault, so that all are told at once."""

    def __init__(self, fields: Mapping[str, object], warnings: list[str], topic_fault: TopicFault) -> None:
        self._fields = fields
        self._warnings = warnings
        self._topic_fault = topic_fault
        self._faults: list[tuple[str, str]] = []

    def fault(self, message: str, hint: str) -> None:
        self._faults.append((message, hint))

    def raise_faults(self, request_id: str | None) -> None:
        if self._faults:
            messages, hints = zip(*self._faults, strict=True)
            raise ControlRejected(
                message="; ".join(messages), hint="; ".join(dict.fromkeys(hints)), request_id=request_id
            )

    def _value(self, name: str) -> object:
        """The value, or None where it is null, NaN, empty or blank."""
        value = self._fields.get(name)
        if isinstance(value, str):
            return value.strip() or None
        # Only NaN differs from itself.
        return None if isinstance(value, float) and value != value else value

    def _name(self, name: str) -> str | None:
        """A text where the string "nan" means that there is none, as some data frames write it."""
        value = self._value(name)
        if value is None or (isinstance(value, str) and value.lower() == "nan"):
            return None
        if isinstance(value, str):
            return value
        self.fault(f"{name}: {_kind(value)} instead of a string", f"send {name} as a string, or leave it out")
        return None

    def topic(self, name: str) -> str | None:
        text = self._name(name)
        if text is None:
            return None
        try:
            topic = parse_topic(text)
        except ValueError:
            self.fault(
                f"{name}: {_shown(text)} is not a Kafka topic name",
                "use 1 to 249 letters, digits, '.', '_' or '-' (not '.' or '..' alone)",
            )
            return None
        if (wrong := self._topic_fault(topic)) is not None:
            self.fault(f"{name}: {wrong[0]}", wrong[1])
            return None
        return topic

    def join(self, name: str) -> Join | None:
        text = self._name(name)
        try:
            return None if text is None else parse_join(text)
        except ValueError:
            known = ", ".join([*Join, *ALIASES])
            self.fault(f"{name}: unknown join {_shown(text)} (known: {known})", "send one of the known joins")
            return None

    def start(self) -> Start | None:
        value = self._value("start")
        if value is None:
            return None
        try:
            if isinstance(value, dict) and not isinstance(value.get("timestamp", ""), str):
                raise ValueError(f"timestamp is {_kind(value['timestamp'])} instead of ISO 8601 text")  # noqa: TRY004
            start = Start.parse(value)
            start.to_json()  # a moment past the year 9999 in UTC can be read, but not be shown
        except (ValueError, OverflowError) as error:
            self.fault(
                f"start: {_clipped(str(error), 4 * _SHOWN_CHARS)}",
                'send "latest", "earliest" or {"timestamp": "2026-01-01T00:00:00Z"}',
            )
            return None
        return start

    def request_id(self) -> str | None:
        value = self._value("requestId")
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if value is None or (isinstance(value, str) and len(value) <= MAX_REQUEST_ID and _is_text(value)):
            return value
        if isinstance(value, str) and len(value) > MAX_REQUEST_ID:
            limit = f"{MAX_REQUEST_ID} characters at most"
            self.fault(f"requestId: {len(value)} characters are too many", f"send a requestId of {limit}")
            return None
        what = "half a character" if isinstance(value, str) else _kind(value)
        self.fault(f"requestId: {what} instead of a string", "send requestId as a string or a number")
        return None

    def expected_generation(self) -> int | None:
        value = self._value("expectedGeneration")
        if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            return value
        got = _shown(value) if isinstance(value, str | int | float) else _kind(value)
        self.fault(
            f"expectedGeneration: {got} is not a generation",
            "send the published generation, an integer of 0 or more",
        )
        return None

    def dry_run(self) -> bool:
        value = self._value("dryRun")
        if value is None or isinstance(value, bool):
            return bool(value)
        self.fault(f"dryRun: {_kind(value)} instead of true or false", "send dryRun as true or false")
        return False

    def action(self) -> Action:
        value = self._value("action")
        if value is None:
            return Action.CHANGE
        if isinstance(value, str) and value.lower() == "rollback":
            return Action.ROLLBACK
        got = _shown(value) if isinstance(value, str) else _kind(value)
        self.fault(f"action: {got} is not known (known: rollback)", 'send "rollback", or leave action out')
        return Action.CHANGE

    def all_warnings(self, own_fields: Collection[str]) -> tuple[str, ...]:
        """What was ignored: repeated fields, and unknown ones with the field that was probably meant."""
        known = [*own_fields, *_OWN_FIELDS]
        unknown = [name for name in self._fields if name not in known]
        found = [_unknown_field(name, known) for name in unknown[:_WARNINGS_SHOWN]]
        if len(unknown) > _WARNINGS_SHOWN:
            found.append(f"{len(unknown) - _WARNINGS_SHOWN} more unknown fields are ignored")
        return (*self._warnings[:_WARNINGS_SHOWN], *found)


def _unknown_field(name: str, known: Collection[str]) -> str:
    plain = {field_name.lower(): field_name for field_name in known}
    asked = name.strip().lower().replace("_", "").replace("-", "")
    # Comparing is quadratic in the length; a name this long is no slip of the pen.
    near = get_close_matches(asked, plain, n=1) if len(asked) <= _SHOWN_CHARS else []
    meant = f"did you mean {plain[near[0]]}?" if near else f"known: {', '.join(known)}"
    return f"unknown field {_shown(name)} is ignored ({meant})"


def _kind(value: object) -> str:
    """The JSON name of a value's type; the value itself may be huge, or nested."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if value is None:
        return "null"
    return "a string" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"


def _shown(value: str | int | float | None) -> str:
    """A value in a text for people: short, printable, on one line."""
    return _clipped(repr(value), _SHOWN_CHARS)


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _is_text(value: str) -> bool:
    """Whether UTF-8 can carry it: JSON can spell half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
