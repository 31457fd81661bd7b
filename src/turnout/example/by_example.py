"""Configuration by example of records: a whole file (`turnout init --from`), or one more source for a file in force."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnout.config import Settings, load, parse
from turnout.config.document import parse_yaml
from turnout.config.topic_rules import TopicRules
from turnout.errors import ConfigError, TurnoutError
from turnout.example.carried_settings import carried
from turnout.example.likely_keys import KnownSource
from turnout.example.suggestion import Source, suggest
from turnout.example.topic_example import TopicExample, look_at
from turnout.example.yaml_text import parts, topic_summary, whole_file
from turnout.kafka.topics import Topics
from turnout.plan.plan import parse_topic


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
    sources = {source.name: _shown(source) for source in suggestion.sources}
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


def _shown(source: Source) -> dict[str, Any]:
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
