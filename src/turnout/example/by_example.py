"""Configuration by example of records: a whole file (`turnout init --from`), or one more source for a file in force.

A new file takes over the settings of another one: all but its sources and views, and secrets by reference only. A
secret that the file has as `${NAME}`, `{env: ...}`, `{file: ...}` or `{command: ...}` keeps that form. One that stands
there as it is becomes a variable, which has to be set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from turnout.config import Settings, load, parse
from turnout.config.config_errors import SettingPath, annotation_at, is_secret
from turnout.config.document import KEEP, changed, parse_yaml
from turnout.config.secrets import SPARK_SECRET_NAMES, VARIABLE
from turnout.config.sent import is_path
from turnout.config.topic_rules import TopicRules
from turnout.errors import ConfigError, TurnoutError
from turnout.example.suggestion import KnownSource, Source, suggest
from turnout.example.topic_example import TopicExample, look_at
from turnout.example.yaml_text import parts, topic_summary, whole_file
from turnout.kafka.topics import Topics
from turnout.plan.plan import parse_topic

LEFT_BEHIND = ("sources", "views", "sinks", "start")


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file by example, and what it has."""

    text: str
    sources: dict[str, Any]
    views: list[str]
    notes: list[str]
    """What is left to do or to know."""


def file_by_example(
    topics: Sequence[str], config: Path | None, folder: Path, records: int, show: Callable[[str], None]
) -> MadeFile:
    """The file for `folder`, by the newest records of the topics; ConfigError has a line for each that is of no use."""
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
    return MadeFile(text, sources, [view.name for view in suggestion.views], notes)


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
    return {"topic": source.example.topic, "key": source.key.column.name, "columns": columns, "rows": source.rows[0]}


def new_source(topic: str, settings: Settings, records: int, timeout_seconds: float) -> dict[str, Any]:
    """What the newest records of a topic say, as JSON values; TurnoutError where it can be no source."""
    if fault := TopicRules.of(settings).fault(topic):
        raise TurnoutError("bad_example", *fault)
    return source_json(look_at(topic, settings, records, timeout_seconds), settings)


def source_json(example: TopicExample, settings: Settings) -> dict[str, Any]:
    """The source for an example, as JSON values."""
    known = {
        name: KnownSource(source.key, source.columns[source.key].name, tuple(source.columns))
        for name, source in settings.sources.items()
    }
    tables = [*(source.table for source in settings.sources.values()), *settings.views]
    suggestion = suggest([example], known, tables)
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
        "key": {"value": source.key.column.name, "evidence": source.key.evidence},
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
