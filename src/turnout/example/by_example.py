"""Configuration by example of records: a whole file (`turnout init --from`), or one more source for a file in force.

A new file takes over the settings of another one: all but its sources and views, and secrets by reference only. A
secret that the file has as `${NAME}`, `{env: ...}`, `{file: ...}` or `{command: ...}` keeps that form. One that stands
there as it is becomes a variable, which has to be set. Text from records never ends a line or begins a setting: names
are quoted where needed, comments have one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from turnout.config import Format, Settings, load, parse
from turnout.config.config_errors import SettingPath, annotation_at, is_secret
from turnout.config.document import KEEP, changed, parse_yaml
from turnout.config.secrets import SPARK_SECRET_NAMES, VARIABLE
from turnout.config.sent import is_path
from turnout.config.topic_rules import TopicRules
from turnout.decode.exact_reader import NULL_VALUE
from turnout.errors import ConfigError, TurnoutError
from turnout.example.suggestion import Source, Suggestion, View, suggest
from turnout.example.topic_example import TopicExample, counted, look_at
from turnout.kafka.topics import Topics
from turnout.plan.control import clipped
from turnout.plan.joins import KNOWN_JOINS
from turnout.plan.plan import parse_topic
from turnout_client.column_types import KNOWN_TYPES

LEFT_BEHIND = ("sources", "views", "sinks", "start")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
# Words that YAML does not take for text.
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_COMMENT_AT = 40
_LONGEST_COMMENT = 300


def file_by_example(
    topics: Sequence[str], config: Path | None, folder: Path, records: int, show: Callable[[str], None]
) -> tuple[str, dict[str, Any]]:
    """The file for `folder`, by the newest records of the topics, and what it has, as JSON values.

    The notes say what is left to do or to know. ConfigError has a line for each topic that is of no use.
    """
    wanted = _checked(topics)
    settings = load(config) if config is not None else parse({}, folder, os.environ)
    document = parse_yaml(config.read_text(encoding="utf-8-sig"))[0] or {} if config is not None else {}
    suggestion = suggest(_looked_at(wanted, settings, records, show))
    taken_over, variables = carried(document, config.parent if config is not None else folder, folder)
    notes = [
        f"{config} has a secret as plain text: set the variable {name}, which replaces it in the file"
        for name in variables
    ]
    notes += _control_note(settings)
    text = whole_file(suggestion, _with_kafka(taken_over, settings), records, notes)
    if not suggestion.views and len(suggestion.sources) > 1:
        notes.append("no two topics share a key, so there is no view; see the file for the keys that were found")
    sources = {source.name: _described(source) for source in suggestion.sources}
    return text, {"sources": sources, "views": [view.name for view in suggestion.views], "notes": notes}


def _checked(topics: Sequence[str]) -> list[str]:
    wanted = list(dict.fromkeys(topic.strip() for topic in topics if topic.strip()))
    wrong = []
    for topic in wanted:
        try:
            parse_topic(topic)
        except ValueError as error:
            wrong.append(f"--from: {error}; separate topics by commas")
    if wrong:
        raise ConfigError(wrong)
    return wanted


def _looked_at(
    topics: Sequence[str], settings: Settings, records: int, show: Callable[[str], None]
) -> list[TopicExample]:
    found, wrong = [], []
    for number, topic in enumerate(topics, 1):
        show(f"[{number}/{len(topics)}] {topic}: reading its newest {records:,} records")
        try:
            example = look_at(topic, settings, records)
        except TurnoutError as error:
            if error.code in ("kafka_unreachable", "bad_config", "registry_unreachable", "registry_refused"):
                raise  # the others would fail by the same, each after its time
            wrong.append(str(error))
            continue
        show(f"[{number}/{len(topics)}] {topic}: {topic_summary(example)}; {len(example.columns)} columns")
        found.append(example)
    if wrong:
        raise ConfigError(wrong)
    return found


def _with_kafka(settings: dict[str, Any], found: Settings) -> dict[str, Any]:
    """The settings with the address that was asked, and the control topic, first."""
    kafka = {"bootstrap_servers": found.kafka.bootstrap_servers} | (settings.get("kafka") or {})
    control = {"topic": found.control.topic} | (settings.get("control") or {})
    rest = {name: value for name, value in settings.items() if name not in ("kafka", "control")}
    return {"kafka": kafka, "control": control, **rest}


def _control_note(settings: Settings) -> list[str]:
    if settings.control.kafka is not None:
        return []
    with closing(Topics(settings.kafka)) as topics:
        if settings.control.topic in topics.names():
            return []
    return [f"topic '{settings.control.topic}' does not exist yet; create it: messages on it move the tables"]


def _described(source: Source) -> dict[str, Any]:
    columns = {column.name: column.kind for column in source.columns}
    return {"topic": source.example.topic, "key": source.key.name, "columns": columns, "rows": source.rows[0]}


def new_source(topic: str, settings: Settings, records: int, timeout_seconds: float) -> dict[str, Any]:
    """What the newest records of a topic say, as JSON values; TurnoutError where it can be no source."""
    if fault := TopicRules.of(settings).fault(topic):
        raise TurnoutError("bad_example", *fault)
    return source_json(look_at(topic, settings, records, timeout_seconds), settings)


def source_json(example: TopicExample, settings: Settings) -> dict[str, Any]:
    """The source for an example, as JSON values."""
    tables = [*(source.table for source in settings.sources.values()), *settings.views]
    suggestion = suggest([example], settings.sources, tables)
    [source] = suggestion.sources
    return {
        "topic": example.topic,
        "source": source.name,
        "table": source.table,
        "format": example.format.value,
        "partitions": example.sample.partitions,
        "records": example.sample.offsets,
        "looked": len(example.sample.records),
        "tombstones": example.tombstones,
        "columns": [{"name": one.name, "type": one.kind, "evidence": one.evidence} for one in source.columns],
        "leftOut": [{"name": name, "reason": why} for name, why in example.left_out.items()],
        "key": {"value": source.key.name, "evidence": source.key.evidence},
        "rows": {"value": source.rows[0], "evidence": source.rows[1]},
        "views": [view.name for view in suggestion.views],
        "yaml": parts(suggestion),
    }


def carried(document: Mapping[str, Any], folder: Path, target: Path) -> tuple[dict[str, Any], list[str]]:
    """The settings of a file in `folder` for one in `target`, and the variables in the place of plain secrets."""
    variables: list[str] = []
    moved = folder.resolve() != target.resolve()

    def change(path: SettingPath, node: Any) -> Any:
        if not path:
            return KEEP
        if is_secret(Settings, path):
            if isinstance(node, Mapping):
                return {"file": _placed(node["file"], folder)} if moved and "file" in node else node
            if isinstance(node, str) and not _refers(path, node) and _holds_secret(path):
                variables.append(re.sub(r"[^A-Za-z0-9]+", "_", "_".join(map(str, path))).upper())
                return f"${{{variables[-1]}}}"
            return node
        return _placed(node, folder) if moved and is_path(path) else KEEP

    kept = {name: value for name, value in document.items() if name not in LEFT_BEHIND and value is not None}
    found: dict[str, Any] = changed(kept, change)
    return found, variables


def _refers(path: SettingPath, text: str) -> bool:
    """Whether a secret is not in the text itself. A raw property has words besides the variable, such as a login's."""
    found = VARIABLE.fullmatch(text) if annotation_at(Settings, path) is SecretStr else VARIABLE.search(text)
    return found is not None


def _holds_secret(path: SettingPath) -> bool:
    """Raw properties may hold secrets; those whose name does not look so are needed as they are."""
    raw = annotation_at(Settings, path[:-1]) == dict[str, str]
    return not raw or re.search(SPARK_SECRET_NAMES, str(path[-1])) is not None


def _placed(text: Any, folder: Path) -> Any:
    """A path that begins at the folder of the file, from wherever it is read."""
    if not isinstance(text, str) or "://" in text or text.startswith(("~", "${")):
        return text
    return str((folder / text).resolve())


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
            why = f"no other source has the key {source.key.name} with the type {source.key.kind}"
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
    yield _line(f"    key: {_value(source.key.name)}", source.key.evidence)
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
    keys = ", ".join(f"{source.key.name} ({source.key.kind}) of {source.name}" for source in suggestion.sources)
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
    return f"{indent}# {clipped(shown, _LONGEST_COMMENT)}"
