"""Control messages as bytes: parsed, with all faults in one error, and cut to the text that the store keeps."""

import json
from collections import Counter
from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import partial
from typing import TypeVar

import orjson

from turnout.plan.control import (
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_ID,
    Action,
    ControlMessage,
    ControlRejected,
    clipped,
    join_field,
    shown,
    topic_field,
)
from turnout.plan.joins import ALIASES, Join, parse_join
from turnout.plan.plan import Start, parse_topic

_T = TypeVar("_T")
TopicFault = Callable[[str], tuple[str, str] | None]

_WARNINGS_SHOWN = 10
_LONGEST_NAME = 60
_OWN_FIELDS = ("joinType", "requestId", "start", "expectedGeneration", "dryRun", "action")
_EXAMPLE = '{"usersTopic": "users2", "joinType": "inner"}'


def _no_fault(topic: str) -> None:
    return None


def parse_message(
    raw: bytes | str | None, sources: Collection[str], views: Collection[str] = (), topic_fault: TopicFault = _no_fault
) -> ControlMessage:
    """The message in `raw` for these sources and joined views; ControlRejected has all its faults.

    `topic_fault` gives the fault of a topic that is well spelled but not allowed, and a hint.
    """
    warnings: list[str] = []
    fields = _decode_object(_text(raw), warnings)
    faults: list[_FieldError] = []

    def read(name: str, parse: Callable[[str, object], _T]) -> _T | None:
        value = _given(fields.get(name))
        try:
            return None if value is None else parse(name, value)
        except _FieldError as error:
            faults.append(error)
            return None

    request_id = read("requestId", _request_id)
    topics = {source: read(topic_field(source), partial(_topic, topic_fault)) for source in sources}
    joins = {view: read(join_field(view), _join) for view in views}
    message = ControlMessage(
        topics={source: topic for source, topic in topics.items() if topic is not None},
        join=read("joinType", _join),
        joins={view: join for view, join in joins.items() if join is not None},
        request_id=request_id,
        start=read("start", _start),
        expected_generation=read("expectedGeneration", _expected_generation),
        dry_run=read("dryRun", _dry_run) or False,
        action=read("action", _action) or Action.CHANGE,
        warnings=(*warnings[:_WARNINGS_SHOWN], *_unknown_fields(fields, sources, views)),
    )
    if message.action is Action.ROLLBACK and (message.topics or message.join or message.joins or message.start):
        alone = "send action alone, or a change without action"
        faults.append(_FieldError("a rollback takes no topics, join or start", alone))
    if faults:
        hints = dict.fromkeys(fault.hint for fault in faults)
        raise ControlRejected("; ".join(map(str, faults)), "; ".join(hints), request_id=request_id)
    return message


def _text(raw: bytes | str | None) -> str:
    if raw is None:
        raise ControlRejected("null value (a tombstone)", f"send a JSON object such as {_EXAMPLE}")
    try:
        data = raw.encode() if isinstance(raw, str) else raw
        if len(data) > MAX_MESSAGE_BYTES:
            raise ControlRejected(
                f"the message has {len(data)} bytes, more than the {MAX_MESSAGE_BYTES} allowed",
                "send only the fields that change; is this record meant for another topic?",
            )
        # Some consoles put a byte order mark in front.
        text = data.decode("utf-8-sig")
    except UnicodeError as error:
        where = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise ControlRejected(f"not UTF-8{where}", "send JSON text encoded as UTF-8") from None
    if not text.strip():
        raise ControlRejected("an empty message", f"send a JSON object such as {_EXAMPLE}")
    return text


def _decode_object(text: str, warnings: list[str]) -> dict[str, object]:
    def collected(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
            warnings.extend(f"{shown(name)} is given more than once: the last one is taken" for name in twice)
        return fields

    try:
        value = json.loads(text, object_pairs_hook=collected)
    except json.JSONDecodeError as error:
        raise _not_json(text, error) from None
    except RecursionError:
        raise ControlRejected("the JSON is nested too deeply", f"send a flat object such as {_EXAMPLE}") from None
    except ValueError:
        # The only other one that the decoder raises: an integer of more than 4,300 digits.
        raise ControlRejected("a number with too many digits", "send expectedGeneration as published") from None
    if isinstance(value, str):
        raise ControlRejected(
            f"a JSON string {shown(value)} instead of an object: it was encoded twice",
            f"send the object itself, such as {_EXAMPLE}, not a string that contains it",
        )
    if not isinstance(value, dict):
        raise ControlRejected(f"{_kind(value)} instead of an object", f"send one JSON object such as {_EXAMPLE}")
    return value


def _not_json(text: str, error: json.JSONDecodeError) -> ControlRejected:
    """Say what is wrong and where, by orjson: what the standard library says depends on the version of Python."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as same:
        error = same
    near = shown(text[max(0, error.pos - 10) : error.pos + 20])
    place = f"line {error.lineno} column {error.colno} (near {near})"
    return ControlRejected(f"not valid JSON at {place}: {error.msg}", f"send a JSON object such as {_EXAMPLE}")


class _FieldError(Exception):
    """What is wrong with a field, and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def _given(value: object) -> object:
    """The value, or None where it is null, NaN, empty or blank."""
    if isinstance(value, str):
        return value.strip() or None
    # Only NaN differs from itself.
    return None if isinstance(value, float) and value != value else value


def _name(name: str, value: object) -> str | None:
    """A text; None for "nan", as some data frames write a missing one."""
    if not isinstance(value, str):
        raise _FieldError(f"{name}: {_kind(value)} instead of a string", f"send {name} as a string, or leave it out")
    return None if value.lower() == "nan" else value


def _topic(topic_fault: TopicFault, name: str, value: object) -> str | None:
    text = _name(name, value)
    if text is None:
        return None
    try:
        topic = parse_topic(text)
    except ValueError:
        allowed = "use 1 to 249 letters, digits, '.', '_' or '-' (not '.' or '..' alone)"
        raise _FieldError(f"{name}: {shown(text)} is not a Kafka topic name", allowed) from None
    if (wrong := topic_fault(topic)) is not None:
        raise _FieldError(f"{name}: {wrong[0]}", wrong[1])
    return topic


def _join(name: str, value: object) -> Join | None:
    text = _name(name, value)
    try:
        return None if text is None else parse_join(text)
    except ValueError:
        known = ", ".join([*Join, *ALIASES])
        message = f"{name}: unknown join {shown(text)} (known: {known})"
        raise _FieldError(message, "send one of the known joins") from None


def _start(name: str, value: object) -> Start:
    try:
        if isinstance(value, dict) and not isinstance(value.get("timestamp", ""), str):
            raise ValueError(f"timestamp is {_kind(value['timestamp'])} instead of ISO 8601 text")  # noqa: TRY004
        start = Start.parse(value)
        start.to_json()  # a moment past the year 9999 in UTC can be read, but not be shown
    except (ValueError, OverflowError) as error:
        forms = 'send "latest", "earliest" or {"timestamp": "2026-01-01T00:00:00Z"}'
        raise _FieldError(f"{name}: {clipped(str(error), 240)}", forms) from None
    return start


def _request_id(name: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not _is_text(value):
        what = "half a character" if isinstance(value, str) else _kind(value)
        raise _FieldError(f"{name}: {what} instead of a string", f"send {name} as a string or a number")
    if len(value) > MAX_REQUEST_ID:
        limit = f"send a {name} of {MAX_REQUEST_ID} characters at most"
        raise _FieldError(f"{name}: {len(value)} characters are too many", limit)
    return value


def _expected_generation(name: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    got = shown(value) if isinstance(value, str | int | float) else _kind(value)
    hint = "send the published generation, an integer of 0 or more"
    raise _FieldError(f"{name}: {got} is not a generation", hint)


def _dry_run(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _FieldError(f"{name}: {_kind(value)} instead of true or false", f"send {name} as true or false")


def _action(name: str, value: object) -> Action:
    if isinstance(value, str) and value.lower() == "rollback":
        return Action.ROLLBACK
    got = shown(value) if isinstance(value, str) else _kind(value)
    raise _FieldError(f"{name}: {got} is not known (known: rollback)", f'send "rollback", or leave {name} out')


def _unknown_fields(fields: Collection[str], sources: Collection[str], views: Collection[str]) -> list[str]:
    """A warning for each unknown field, with the field that was probably meant."""
    known = [*map(topic_field, sources), *map(join_field, views), *_OWN_FIELDS]
    unknown = [name for name in fields if name not in known]
    found = [_unknown_field(name, known) for name in unknown[:_WARNINGS_SHOWN]]
    if len(unknown) > _WARNINGS_SHOWN:
        found.append(f"{len(unknown) - _WARNINGS_SHOWN} more unknown fields are ignored")
    return found


def _unknown_field(name: str, known: Collection[str]) -> str:
    plain = {field_name.lower(): field_name for field_name in known}
    asked = name.strip().lower().replace("_", "").replace("-", "")
    # Comparing is quadratic in the length; a name this long is no slip of the pen.
    near = get_close_matches(asked, plain, n=1) if len(asked) <= _LONGEST_NAME else []
    meant = f"did you mean {plain[near[0]]}?" if near else f"known: {', '.join(known)}"
    return f"unknown field {shown(name)} is ignored ({meant})"


def _kind(value: object) -> str:
    """The JSON name of a value's type; the value itself may be huge, or nested."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if value is None:
        return "null"
    return "a string" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"


def _is_text(value: str) -> bool:
    """Whether UTF-8 can carry it: JSON can spell half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def kept_text(raw: bytes | str | None) -> tuple[str | None, bool]:
    """The text that the store keeps, and whether it is the whole message: not if it was cut, or is not UTF-8."""
    if raw is None:
        return None, True
    data = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw
    # Escaping makes up to four bytes of one, so it is cut before and after.
    text = data[:MAX_MESSAGE_BYTES].decode("utf-8", "backslashreplace")
    kept = text.encode()
    if len(data) <= MAX_MESSAGE_BYTES and len(kept) <= MAX_MESSAGE_BYTES:
        return text, kept == data
    mark = f"... (cut; {len(data)} bytes)"
    return kept[: MAX_MESSAGE_BYTES - len(mark)].decode("utf-8", "ignore") + mark, False
