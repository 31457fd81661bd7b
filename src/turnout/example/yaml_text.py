"""A suggestion as the text of a turnout.yaml, with the evidence behind each line.

Text from records never ends a line or begins a setting: names are quoted where needed, comments have one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from turnout.config import Format
from turnout.decode.exact_reader import NULL_VALUE
from turnout.example.inference import counted
from turnout.example.suggestion import Source, Suggestion, View
from turnout.example.topic_example import TopicExample
from turnout.plan.joins import KNOWN_JOINS
from turnout_client.column_types import KNOWN_TYPES

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
# Words that YAML does not take for text.
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_COMMENT_AT = 40
_LONGEST_COMMENT = 300


def whole_file(suggestion: Suggestion, carried: Mapping[str, Any], records: int, notes: Iterable[str] = ()) -> str:
    """A file with the settings of `carried` and what was found in the newest `records` records."""
    topics = ", ".join(source.example.topic for source in suggestion.sources)
    head = [
        _comment("", f"Written by `turnout init --from` from the newest {records:,} records of each topic: {topics}."),
        "# Each line has its evidence as a comment. Correct what is wrong; `turnout check` compares with the records.",
        *(_comment("", note) for note in notes),
        "",
    ]
    settings = yaml.safe_dump(dict(carried), sort_keys=False, allow_unicode=True, width=10_000) if carried else ""
    start, why = suggestion.start
    tail = [*([] if suggestion.views else [_line("views: {}", _no_view(suggestion))]), _line(f"start: {start}", why)]
    return "\n".join([*head, settings, parts(suggestion), *tail, ""])


def parts(suggestion: Suggestion) -> str:
    """The sources and views alone, to be put into a file."""
    lines = [f"# Column types: {KNOWN_TYPES}.", "sources:"]
    for source in suggestion.sources:
        lines += _source(source)
    if suggestion.views:
        lines += ["", f"# Joins: {KNOWN_JOINS}.", "views:"]
        for view in suggestion.views:
            lines += _view(view)
        for source in suggestion.alone:
            why = f"no other source has the key {source.key.column.name} with the type {source.key_kind}"
            lines.append(_comment("", f"{source.name} is in no view: {why}"))
    return "\n".join([*lines, ""])


def topic_summary(example: TopicExample) -> str:
    """The topic in one line: how many partitions and records, and how many are no rows."""
    looked = len(example.sample.records)
    found = [
        counted(example.sample.partitions, "partition"),
        counted(example.sample.offsets, "record"),
        f"newest {looked:,} read",
    ]
    if example.tombstones:
        found.append(counted(example.tombstones, "tombstone"))
    found += [f"{count:,} {reason}" for reason, count in example.bad.items() if reason != NULL_VALUE]
    return ", ".join(found)


def _source(source: Source) -> Iterator[str]:
    example = source.example
    yield f"  {quoted(source.name)}:"
    yield _line(f"    topic: {quoted(example.topic)}", topic_summary(example))
    yield f"    table: {source.table}"
    yield _line(f"    key: {_value(source.key.column.name)}", source.key.evidence)
    if example.format is not Format.JSON:
        yield _line(f"    format: {example.format}", "by the schema registry")
    yield "    columns:"
    for column in source.columns:
        yield _line(f"      {quoted(column.name)}: {column.kind}", column.evidence)
    for name, why in example.left_out.items():
        yield _comment("      ", f"{quoted(name)}: left out, {why}")
    rows, why = source.rows
    yield _line(f"    rows: {rows}", why)


def _view(view: View) -> Iterator[str]:
    right = quoted(view.right[0]) if len(view.right) == 1 else f"[{', '.join(map(quoted, view.right))}]"
    yield f"  {view.name}:"
    yield f"    left: {quoted(view.left)}"
    yield f"    right: {right}"
    yield _line(f"    on: {_value(view.on)}", view.evidence)
    yield _line("    join: left", f"every row of {view.left}, with the newest row of its key in the others, or nulls")


def _no_view(suggestion: Suggestion) -> str:
    if len(suggestion.sources) == 1:
        return "one source, so there is nothing to join"
    keys = ", ".join(f"{source.key.column.name} ({source.key_kind}) of {source.name}" for source in suggestion.sources)
    return f"views join sources by keys of one name and type; found: {keys}"


def quoted(text: str) -> str:
    """A text as YAML: as it is where it can be nothing else, otherwise in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return yaml.dump(text, default_style='"', allow_unicode=True, width=float("inf")).strip()


def _value(text: str) -> str:
    """A text in the place of a value, where `${` would name a variable."""
    return quoted(text.replace("${", "$${"))


def _line(text: str, comment: str) -> str:
    return f"{text.ljust(_COMMENT_AT)}  {_comment('', comment)}" if comment else text


def _comment(indent: str, text: str) -> str:
    shown = "".join(sign if sign.isprintable() else "\N{MIDDLE DOT}" for sign in text)
    return f"{indent}# {shown if len(shown) <= _LONGEST_COMMENT else shown[:_LONGEST_COMMENT] + '...'}"
