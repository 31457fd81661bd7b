"""Control messages as bytes: parsed, with all faults in one error, and cut to the text that the store keeps.

The fields of a message are a pydantic model made from the sources and views of the file: it parses messages, and its
JSON Schema describes them to programs. Where case does not matter, the schema has the usual spelling.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache, partial
from typing import Annotated, Any

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
)
from pydantic_core import PydanticCustomError

from turnout.plan.control import (
    MAX_MESSAGE_BYTES,
    MAX_REQUEST_ID,
    Action,
    ControlMessage,
    ControlRejected,
    clipped,
)
from turnout.plan.filter_values import show
from turnout.plan.joins import ALIASES, Join, parse_join
from turnout.plan.nearest import nearest
from turnout.plan.plan import TOPIC_PATTERN, Start, parse_topic
from turnout_client.control_fields import join_field, topic_field

TopicFault = Callable[[str], tuple[str, str] | None]
"""The fault of a topic that is well spelled but not allowed, and a hint."""

_MOST_WARNINGS = 10
_ACTIONS = {
    Action.ROLLBACK: "Back to the previous plan.",
    Action.CANCEL: "End the build under way.",
    Action.PUBLISH: "Publish the candidate.",
    Action.DISCARD: "Remove the candidate.",
}
_OF_ACTIONS = ("requestId", "expectedGeneration")
"""The fields that every action can have."""
_MORE_OF_ACTIONS = {Action.ROLLBACK: ("dryRun",), Action.PUBLISH: ("force",)}
"""The fields that only these can have."""
_EXAMPLE = '{"usersTopic": "users2", "joinType": "inner"}'
_ALONE = "send action alone, or a change without action"


def parse_message(
    raw: bytes | str | None,
    sources: Collection[str],
    views: Collection[str] = (),
    topic_fault: TopicFault = lambda topic: None,
) -> ControlMessage:
    """Parse a message for these sources and joined views; ControlRejected has all its faults."""
    warnings: list[str] = []
    fields = _decode_object(_text(raw), warnings)
    model = _model(tuple(sources), tuple(views))
    faults: list[tuple[str, str]] = []
    try:
        parsed = model.model_validate(fields, context=topic_fault)
    except ValidationError as error:
        refused = {str(one["loc"][0]): one["ctx"] for one in error.errors()}
        faults = [(f"{name}: {one['fault']}", one["hint"].replace("FIELD", name)) for name, one in refused.items()]
        rest = {name: value for name, value in fields.items() if name not in refused}
        parsed = model.model_validate(rest, context=topic_fault)
    given = {name: value for name, value in parsed if value is not None}
    start = given.get("start")
    message = ControlMessage(
        topics={source: given[name] for source in sources if (name := topic_field(source)) in given},
        join=given.get("joinType"),
        joins={view: given[name] for view in views if (name := join_field(view)) in given},
        request_id=given.get("requestId"),
        start=start if isinstance(start, Start) else None,
        starts=start if isinstance(start, dict) else {},
        expected_generation=given.get("expectedGeneration"),
        dry_run=given.get("dryRun", False),
        publish=given.get("publish", True),
        force=given.get("force", False),
        action=given.get("action", Action.CHANGE),
        warnings=(*warnings[:_MOST_WARNINGS], *_unknown_fields(fields, model.model_fields)),
    )
    if message.action is not Action.CHANGE:
        if message.topics or message.join or message.joins or start or not message.publish:
            faults.append((f"a {message.action.value} takes no topics, join, start or publish", _ALONE))
        taken = _MORE_OF_ACTIONS.get(message.action, ())
        asked = {"dryRun": message.dry_run, "force": message.force}
        refused_too = [name for name, value in asked.items() if value and name not in taken]
        faults += [(f"a {message.action.value} takes no {name}", _ALONE) for name in refused_too]
    if faults:
        texts, hints = zip(*faults, strict=True)
        raise ControlRejected("; ".join(texts), "; ".join(dict.fromkeys(hints)), request_id=message.request_id)
    return message


def message_schemas(sources: Iterable[str], views: Iterable[str], place: str) -> dict[str, dict[str, Any]]:
    """The JSON Schemas of messages by name; they refer to each other below `place`, such as `#/components/schemas/`."""
    fields = _fields(tuple(sources), tuple(views))
    models = {"ChangeMessage": ("Other topics, or another join.", fields | {"action": _ABSENT})}
    models |= {body_of(action): (text, _fields_of(action, fields)) for action, text in _ACTIONS.items()}
    schemas = {
        name: {**_made(name, fields).model_json_schema(), "description": description}
        for name, (description, fields) in models.items()
    }
    actions = [
        {
            "allOf": [{"$ref": f"{place}{body_of(action)}"}],
            "properties": {"action": {"const": action.value}},
            "required": ["action"],
        }
        for action in _ACTIONS
    ]
    schemas["ControlMessage"] = {
        "description": "Fields that are not known are ignored, with a warning.",
        "anyOf": [{"$ref": f"{place}ChangeMessage"}, *actions],
    }
    return schemas


def body_of(action: Action) -> str:
    """The name of the JSON Schema of an action's message."""
    return f"{action.title()}Message"


def _fields_of(action: Action, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the message of an action can have, besides `action` itself."""
    others = {"dryRun": False, "publish": True, "force": False}
    consts = {name: _optional(_flag, {"const": value}) for name, value in others.items()}
    taken = (*_OF_ACTIONS, *_MORE_OF_ACTIONS.get(action, ()))
    return {
        name: kind if name in taken else consts.get(name, _ABSENT) for name, kind in fields.items() if name != "action"
    }


@lru_cache(maxsize=8)
def _model(sources: tuple[str, ...], views: tuple[str, ...]) -> type[BaseModel]:
    """The model of all messages; its faults come in this order."""
    return _made("ControlMessage", _fields(sources, views))


def _made(name: str, fields: Mapping[str, Any]) -> type[BaseModel]:
    """A model with these fields, all optional."""
    optional: dict[str, Any] = {field: (kind, None) for field, kind in fields.items()}
    return create_model(name, __config__=ConfigDict(protected_namespaces=()), **optional)


def _fields(sources: tuple[str, ...], views: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a message, by name."""
    # Dots alone are names of folders.
    pattern = {"pattern": rf"^\s*{TOPIC_PATTERN}\s*$", "not": {"pattern": r"^\s*\.{1,2}\s*$"}}
    topic = _optional(_topic, {"type": "string", **pattern})
    join = _optional(_join, {"type": "string", "enum": [*Join, *ALIASES]})
    moment = {
        "type": "object",
        "properties": {"timestamp": {"type": "string", "format": "date-time"}},
        "required": ["timestamp"],
        "additionalProperties": False,
    }
    start = ({"type": "string", "enum": ["latest", "earliest"]}, moment)
    each = {"properties": {source: {"anyOf": list(start)} for source in sources}, "additionalProperties": False}
    # Blanks around it do not count.
    request_id = {"type": ["string", "number"], "pattern": rf"^\s*[\s\S]{{0,{MAX_REQUEST_ID}}}\s*$"}
    return {
        **dict.fromkeys(map(topic_field, sources), Annotated[topic, AfterValidator(_check_allowed)]),
        **dict.fromkeys(map(join_field, views), join),
        "joinType": join,
        "requestId": _optional(_request_id, request_id),
        "start": _optional(partial(_starts, sources), *start, {"type": "object", **each, "minProperties": 1}),
        "expectedGeneration": _optional(_expected_generation, {"type": "integer", "minimum": 0}),
        "dryRun": _optional(_flag, {"type": "boolean"}),
        "publish": _optional(_flag, {"type": "boolean"}),
        "force": _optional(_flag, {"type": "boolean"}),
        "action": _optional(_action, {"enum": list(_ACTIONS)}),
    }


def _optional(parse: Callable[[object], object], *schemas: Mapping[str, Any]) -> Any:
    """A field that may be absent: null, NaN, or an empty or blank text."""

    def read(value: object) -> object:
        if isinstance(value, str):
            value = value.strip() or None
        # Only NaN differs from itself.
        return None if value is None or (isinstance(value, float) and value != value) else parse(value)

    absent = {
        "description": "No value: null, or an empty or blank text. The current value stays.",
        "anyOf": [{"type": "null"}, {"type": "string", "pattern": r"^\s*$"}],
    }
    return Annotated[Any, PlainValidator(read), WithJsonSchema({"anyOf": [*schemas, absent]})]


def _refused(fault: str, hint: str) -> PydanticCustomError:
    """The error of a field; FIELD in the hint stands for its name."""
    return PydanticCustomError("control", "{fault}", {"fault": fault, "hint": hint})


def _absent(value: object) -> None:
    raise _refused("is not accepted here", "leave FIELD out")


_ABSENT = _optional(_absent)


def _name(value: object) -> str | None:
    """A text; None for "nan", as some data frames write a missing one."""
    if not isinstance(value, str):
        raise _refused(f"{_json_type(value)} instead of a string", "send FIELD as a string, or leave it out")
    return None if value.lower() == "nan" else value


def _topic(value: object) -> str | None:
    text = _name(value)
    if text is None:
        return None
    try:
        return parse_topic(text)
    except ValueError:
        allowed = "use 1 to 249 letters, digits, '.', '_' or '-' (not '.' or '..' alone)"
        raise _refused(f"{show(text)} is not a Kafka topic name", allowed) from None


def _check_allowed(topic: str | None, info: ValidationInfo) -> str | None:
    """Refuse a topic that is well spelled but not allowed, by the rules in the context."""
    topic_fault: TopicFault | None = info.context
    if topic is not None and topic_fault is not None and (wrong := topic_fault(topic)) is not None:
        raise _refused(*wrong)
    return topic


def _join(value: object) -> Join | None:
    text = _name(value)
    try:
        return None if text is None else parse_join(text)
    except ValueError:
        known = ", ".join([*Join, *ALIASES])
        raise _refused(f"unknown join {show(text)} (known: {known})", "send one of the known joins") from None


def _starts(sources: Collection[str], value: object) -> Start | dict[str, Start]:
    """The start of all sources, or of those that an object names."""
    if not isinstance(value, dict) or not value or set(value) == {"timestamp"}:
        return _start(value)
    if unknown := [source for source in value if source not in sources]:
        example = f'{{"{next(iter(sources), "users")}": "earliest"}}'
        hint = f'send "latest", "earliest", a timestamp, or an object of sources such as {example}'
        raise _refused(f"no source {show(unknown[0])} (sources: {', '.join(sources)})", hint)
    return {source: _start(start) for source, start in value.items()}


def _start(value: object) -> Start:
    try:
        if isinstance(value, dict) and not isinstance(value.get("timestamp", ""), str):
            raise ValueError(f"timestamp is {_json_type(value['timestamp'])} instead of ISO 8601 text")  # noqa: TRY004
        start = Start.parse(value)
        start.to_json()  # a moment past the year 9999 in UTC can be read, but not be shown
    except (ValueError, OverflowError) as error:
        forms = 'send "latest", "earliest" or {"timestamp": "2026-01-01T00:00:00Z"}'
        raise _refused(clipped(str(error), 240), forms) from None
    return start


def _request_id(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not is_text(value):
        what = "half of a surrogate pair" if isinstance(value, str) else _json_type(value)
        raise _refused(f"{what} instead of a string", "send FIELD as a string or a number")
    if len(value) > MAX_REQUEST_ID:
        limit = f"send a FIELD of {MAX_REQUEST_ID} characters at most"
        raise _refused(f"{len(value)} characters are too many", limit)
    return value


def _expected_generation(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    got = show(value) if isinstance(value, str | int | float) else _json_type(value)
    raise _refused(f"{got} is not a generation", "send the published generation, an integer of 0 or more")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _refused(f"{_json_type(value)} instead of true or false", "send FIELD as true or false")


def _action(value: object) -> Action:
    if isinstance(value, str) and value.lower() in _ACTIONS:
        return Action(value.lower())
    got = show(value) if isinstance(value, str) else _json_type(value)
    one_of = " or ".join(f'"{action}"' for action in _ACTIONS)
    raise _refused(f"{got} is not known (known: {', '.join(_ACTIONS)})", f"send {one_of}, or leave FIELD out")


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
            warnings.extend(f"{show(name)} is given more than once: the last one counts" for name in twice)
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
            f"a JSON string {show(value)} instead of an object: it was encoded twice",
            f"send the object itself, such as {_EXAMPLE}, not a string that contains it",
        )
    if not isinstance(value, dict):
        raise ControlRejected(f"{_json_type(value)} instead of an object", f"send one JSON object such as {_EXAMPLE}")
    return value


def _not_json(text: str, error: json.JSONDecodeError) -> ControlRejected:
    """Say what is wrong and where, by orjson: what the standard library says depends on the version of Python."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as same:
        error = same
    excerpt = show(text[max(0, error.pos - 10) : error.pos + 20])
    position = f"line {error.lineno} column {error.colno} (near {excerpt})"
    return ControlRejected(f"not valid JSON at {position}: {error.msg}", f"send a JSON object such as {_EXAMPLE}")


def _unknown_fields(fields: Collection[str], known: Collection[str]) -> list[str]:
    """A warning for each unknown field, with the field that was probably meant."""
    unknown = [name for name in fields if name not in known]
    warnings = []
    for name in unknown[:_MOST_WARNINGS]:
        close = nearest(name.strip().replace("_", "").replace("-", ""), known)
        meant = f"did you mean {close}?" if close else f"known: {', '.join(known)}"
        warnings.append(f"unknown field {show(name)} is ignored ({meant})")
    if len(unknown) > _MOST_WARNINGS:
        warnings.append(f"{len(unknown) - _MOST_WARNINGS} more unknown fields are ignored")
    return warnings


def _json_type(value: object) -> str:
    """The JSON name of a value's type; the value itself may be huge, or nested."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if value is None:
        return "null"
    return "a string" if isinstance(value, str) else "an array" if isinstance(value, list) else "an object"


def is_text(value: str) -> bool:
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
