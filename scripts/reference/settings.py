"""The reference of turnout.yaml: a table for each section, in the order of the types in `turnout.config`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from reference.text import attribute_texts, first_sentences, shown, split_default, table
from turnout.config import Settings, default_text
from turnout.config.config_errors import is_model, plain
from turnout.plan.joins import Join
from turnout_client.column_types import COLUMN_TYPES, ColumnType

_LISTS = {
    "KNOWN_TYPES": ", ".join(f"`{kind.label}`" for kind in COLUMN_TYPES),
    "KNOWN_JOINS": ", ".join(f"`{join}`" for join in Join),
}
"""The replacements of these words in the texts of settings."""


def tables() -> str:
    return "\n\n".join(_sections(Settings, "", {}))


def column_types() -> str:
    rows = [
        [f"`{name}`" for name in (kind.label, kind.json, *map(_label, (kind.spark, kind.duckdb)), _avro(kind))]
        for kind in COLUMN_TYPES
    ]
    return table(["type", "JSON", "Spark", "DuckDB", "Avro"], rows)


def _label(name: str) -> str:
    return re.sub(r"\(.*", "(p,s)", name)


def _avro(kind: ColumnType) -> str:
    return f"{kind.avro} ({kind.avro_logical})" if kind.avro_logical else kind.avro


def joins() -> str:
    rows = [[f"`{join}`", ", ".join(f"`{alias}`" for alias in join.aliases), join.meaning] for join in Join]
    return table(["join", "also written", "rows of the view"], rows)


def template() -> str:
    return f"```yaml\n{default_text()}```"


def _sections(model: type[BaseModel], path: str, told: dict[type[BaseModel], str]) -> Iterator[str]:
    """Yield the section of a model, then the sections of its nested models; a repeated model is only linked."""
    told[model] = path
    texts = attribute_texts(model)
    below: list[tuple[type[BaseModel], str]] = []
    rows = []
    for name, field in model.model_fields.items():
        setting = f"{path}.{name}".lstrip(".")
        inner, place = _inner(field, setting)
        text = texts.get(name) or (first_sentences(inner) if inner else "")
        for word, names in _LISTS.items():
            text = text.replace(word, names)
        if not text:
            raise SystemExit(f"error: {model.__name__}.{name} has no text below it that says what it means")
        cell, (meaning, default) = f"`{setting}`", split_default(text, _default(field))
        if inner and inner in told:
            meaning += f" Its settings are those of {_link(told[inner])}."
        elif inner:
            below.append((inner, place))
            cell = f"[{cell}](#{_anchor(place)})"
        rows.append([cell, default, meaning])
    heading = f"### `{path}`\n\n{first_sentences(model)}" if path else "### The file"
    yield f"{heading}\n\n{table(['setting', 'default', 'meaning'], rows)}"
    for inner, place in below:
        yield from _sections(inner, place, told)


def _inner(field: FieldInfo, path: str) -> tuple[type[BaseModel] | None, str]:
    """Return the model of a setting, alone, in a mapping or in a list, and the path of its section."""
    kind: Any = plain(field.annotation)
    if is_model(kind):
        return kind, path
    arguments = get_args(kind)
    held = plain(arguments[-1] if get_origin(kind) is dict else arguments[0]) if arguments else None
    return (held, f"{path}.NAME" if get_origin(kind) is dict else path) if is_model(held) else (None, path)


def _default(field: FieldInfo) -> str:
    return "required" if field.is_required() else shown(field.get_default(call_default_factory=True, validated_data={}))


def _link(place: str) -> str:
    return f"[`{place}`](#{_anchor(place)})"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading.lower())
