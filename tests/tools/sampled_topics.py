"""Samples of topics without Kafka, with given records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnout.config import Settings
from turnout.example.topic_example import TopicExample, example_of
from turnout.kafka.topics import TopicSample

Given = Mapping[str, Any] | bytes | None


def sampled(values: Sequence[Given], keys: Sequence[str | bytes | None] | None = None) -> TopicSample:
    """Return a sample with these values, as JSON unless they are bytes, and these keys."""
    written = [json.dumps(value).encode() if isinstance(value, Mapping) else value for value in values]
    given = [key.encode() if isinstance(key, str) else key for key in keys or [None] * len(values)]
    return TopicSample(1, len(values), tuple(zip(given, written, strict=True)))


def example(
    topic: str,
    values: Sequence[Given],
    keys: Sequence[str | bytes | None] | None = None,
    settings: Settings | None = None,
    *,
    compacted: bool | None = None,
) -> TopicExample:
    return example_of(topic, sampled(values, keys), settings or Settings(), compacted=compacted)
