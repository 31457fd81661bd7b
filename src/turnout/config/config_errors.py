"""Faults of a configuration, one line each: `place: what is wrong, what was got, what is known; what to do`.

Turns pydantic's errors into that form, and knows which values are secret and never shown. It reads no file.
"""

import types
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from turnout.plan.nearest import did_you_mean

SettingPath = tuple[str | int, ...]
"""Where a setting is in the document: names of sections, and places in lists."""

Faults = Iterator[tuple[SettingPath, str]]
"""Faults of settings: the path of each, and what is wrong and what to do."""

_EXPECTED = {
    "string": "text",
    "path": "a path, as text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a mapping",
    "model": "a mapping",
    "tuple": "a list",
    "secret": "text",
    "finite": "a finite number",
}
_BOUNDS = {
    "greater_than_equal": "at least",
    "less_than_equal": "at most",
    "greater_than": "more than",
    "less_than": "less than",
}
_REMEDY = {
    "text": "put it in quotes",
    "a mapping": "write `name: value` lines below it",
    "a list": "write [..., ...]",
}


def place(path: SettingPath) -> str:
    """The place as people write it: `access.tokens[0].role`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text or "the file"


def describe(value: object) -> str:
    """A value for a fault: scalars as they are, of containers only the kind, since secrets may be in them."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, int | float):
        return str(value)
    return "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else "another kind"


def plain(annotation: Any) -> Any:
    """An annotation without `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return plain(members[0]) if len(members) == 1 else annotation
    return annotation


def is_model(annotation: Any) -> bool:
    """Whether the annotation is a model, so that its children are settings."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def child(annotation: Any, step: str | int) -> Any:
    """The annotation of what is under `step`, or None."""
    annotation = plain(annotation)
    if is_model(annotation):
        field = annotation.model_fields.get(step)
        return plain(field.annotation) if field else None
    if get_origin(annotation) is dict:
        return plain(get_args(annotation)[1])
    return plain(get_args(annotation)[0]) if get_origin(annotation) is tuple else None


def annotation_at(root: Any, path: SettingPath) -> Any:
    """The annotation at a path below a model, or None where no setting is."""
    for step in path:
        root = child(root, step)
    return root


def is_secret(root: Any, path: SettingPath) -> bool:
    """Whether the value there must not be shown: a secret, or a raw property that may be one."""
    parent = annotation_at(root, path[:-1])
    return annotation_at(root, path) is SecretStr or parent == dict[str, str]


def from_pydantic(error: ValidationError, root: type[BaseModel]) -> Iterator[tuple[SettingPath, str]]:
    for detail in error.errors(include_url=False):
        path = detail["loc"]
        if detail["type"] == "invalid_key" or path[-1] == "[key]":
            above = path[:-2] if path[-1] == "[key]" else path[:-1]
            yield above, f"the name {describe(detail['input'])} must be text; put it in quotes"
        else:
            yield path, _text(dict(detail), root, path)


def _text(detail: dict[str, Any], root: type[BaseModel], path: SettingPath) -> str:
    kind: str = detail["type"]
    if kind == "missing":
        return "is missing; add it"
    if kind == "extra_forbidden":
        known = sorted(plain(annotation_at(root, path[:-1])).model_fields)
        return f"unknown setting (known: {', '.join(known)}); {did_you_mean(str(path[-1]), known)}"
    got = "" if is_secret(root, path) else f", got {describe(detail['input'])}"
    if kind == "enum":
        choices = [str(member.value) for member in annotation_at(root, path) if isinstance(member, Enum)]
        return f"must be one of {', '.join(choices)}{got}; choose one of them"
    if kind == "value_error":
        said = str(detail["ctx"]["error"])
        # One that lists what is known has the remedy that follows from it.
        return said if ";" in said else f"{said}; {'choose one of those' if 'known: ' in said else 'correct it'}"
    if kind.split("_")[0] in _EXPECTED:
        expected = _EXPECTED[kind.split("_")[0]]
        if expected == "a mapping":  # a text or a number there can be a misplaced secret
            given = detail["input"]
            number = isinstance(given, int | float) and not isinstance(given, bool)
            got = f", got {'text' if isinstance(given, str) else 'a number' if number else describe(given)}"
        return f"must be {expected}{got}; {_REMEDY.get(expected, 'correct it')}"
    if kind in _BOUNDS:
        return f"must be {_BOUNDS[kind]} {next(iter(detail['ctx'].values()))}{got}; correct it"
    return f"{detail['msg'].lower()}{got}; correct it"
