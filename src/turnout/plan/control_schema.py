"""Control messages as a JSON Schema, for programs that write them.

Only `control_parsing` reads messages; a test compares both, either way. Where case does not matter, the schema has the
usual spelling.
"""

from collections.abc import Iterable
from typing import Any

from turnout.plan.control import MAX_REQUEST_ID, join_field, topic_field
from turnout.plan.joins import ALIASES, Join
from turnout.plan.plan import TOPIC_PATTERN

_ABSENT: dict[str, Any] = {
    "description": "No value: null, or an empty or blank text. The current value stays.",
    "anyOf": [{"type": "null"}, {"type": "string", "pattern": r"^\s*$"}],
}


def message_schemas(sources: Iterable[str], views: Iterable[str], place: str) -> dict[str, dict[str, Any]]:
    """The schemas by name; they refer to each other below `place`, such as `#/components/schemas/`."""
    absent = {"$ref": f"{place}Absent"}

    def optional(schema: dict[str, Any]) -> dict[str, Any]:
        return {"anyOf": [schema, absent]}

    # Dots alone are names of folders.
    topic = optional({"type": "string", "pattern": rf"^\s*{TOPIC_PATTERN}\s*$", "not": {"pattern": r"^\s*\.{1,2}\s*$"}})
    join = optional({"type": "string", "enum": [*Join, *ALIASES]})
    change = {
        **{topic_field(source): topic for source in sources},
        "joinType": join,
        **{join_field(view): join for view in views},
        "start": optional(_start()),
    }
    about = {
        # Blanks around it do not count.
        "requestId": optional({"type": ["string", "number"], "pattern": rf"^\s*[\s\S]{{0,{MAX_REQUEST_ID}}}\s*$"}),
        "expectedGeneration": optional({"type": "integer", "minimum": 0}),
        "dryRun": optional({"type": "boolean"}),
    }
    rollback = dict.fromkeys(change, absent) | about
    return {
        "Absent": _ABSENT,
        "ChangeMessage": _object("Other topics, or another join.", change | about | {"action": absent}),
        "RollbackMessage": _object("Back to the previous plan.", rollback),
        "ControlMessage": {
            "description": "Fields that are not known are ignored, with a warning.",
            "anyOf": [
                {"$ref": f"{place}ChangeMessage"},
                {
                    "allOf": [{"$ref": f"{place}RollbackMessage"}],
                    "properties": {"action": {"const": "rollback"}},
                    "required": ["action"],
                },
            ],
        },
    }


def _start() -> dict[str, Any]:
    moment = {
        "type": "object",
        "properties": {"timestamp": {"type": "string", "format": "date-time"}},
        "required": ["timestamp"],
        "additionalProperties": False,
    }
    return {"anyOf": [{"type": "string", "enum": ["latest", "earliest"]}, moment]}


def _object(description: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": description, "properties": properties}
