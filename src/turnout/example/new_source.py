"""A source for a topic beside those of a file that is in force: columns, key, and the YAML to add to the file."""

from __future__ import annotations

from typing import Any

from turnout.config import Settings
from turnout.config.topic_rules import TopicRules
from turnout.errors import TurnoutError
from turnout.example.likely_keys import KnownSource
from turnout.example.suggestion import suggest
from turnout.example.topic_example import TopicExample, look_at
from turnout.example.yaml_text import parts


def new_source(topic: str, settings: Settings, records: int, timeout_seconds: float) -> dict[str, Any]:
    """What the newest records of a topic say, as JSON values; TurnoutError where it can be no source."""
    if fault := TopicRules.of(settings).fault(topic):
        raise TurnoutError("bad_example", *fault)
    return described(look_at(topic, settings, records, timeout_seconds), settings)


def described(example: TopicExample, settings: Settings) -> dict[str, Any]:
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
