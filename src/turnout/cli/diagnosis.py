"""Looks at all that `turnout run` will need, and says what it found: file, Java, folders, Kafka, topics, records.

It changes nothing. Records are looked at in plain Python: this is a diagnosis, the data path is Spark's.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turnout.config import KafkaSettings, Settings, SourceSettings, load
from turnout.errors import ConfigError, TurnoutError
from turnout.java import find_java

if TYPE_CHECKING:
    from turnout.kafka.topics import Topics

SAMPLE_RECORDS = 100
_REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; a warning does not stop `run`."""

    subject: str
    level: Literal["ok", "warning", "fault"]
    text: str
    hint: str = ""


def diagnose(path: Path) -> list[Finding]:
    """All findings for a configuration file, in the order in which they are best mended."""
    found = [_java()]
    try:
        settings = load(path)
    except ConfigError as error:
        return [*map(_config_fault, error.faults), *found]
    described = f"{path} is valid: {len(settings.sources)} sources, {len(settings.views)} views"
    found.insert(0, Finding("configuration", "ok", described))
    found.append(_data_dir(settings.data_dir))
    data, control = _data_topics(settings), _control_topics(settings)
    if settings.control.kafka is None:
        return [*found, *_cluster("kafka", settings.kafka, data | control, settings.sources)]
    found += _cluster("kafka", settings.kafka, data, settings.sources)
    return [*found, *_cluster("control kafka", settings.control.kafka, control, {})]


def _config_fault(fault: str) -> Finding:
    text, _, hint = fault.partition("; ")
    return Finding("configuration", "fault", text, hint)


def _java() -> Finding:
    try:
        return Finding("java", "ok", str(find_java()))
    except TurnoutError as error:
        return _failed("java", error)


def _data_dir(folder: Path) -> Finding:
    # The nearest that is there: a check makes no folders.
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("data_dir", "ok", f"{folder} can be written")
    why = "may not be written" if there.is_dir() else "is not a folder"
    return Finding("data_dir", "fault", f"{folder}: {there} {why}", "give another data_dir, or change its rights")


def _data_topics(settings: Settings) -> dict[str, str]:
    topics = {f"source {name}": source.topic for name, source in settings.sources.items()}
    return topics | ({"dead_letter_topic": settings.dead_letter_topic} if settings.dead_letter_topic else {})


def _control_topics(settings: Settings) -> dict[str, str]:
    topics = {"control topic": settings.control.topic}
    return topics | ({"control.ack_topic": settings.control.ack_topic} if settings.control.ack_topic else {})


def _cluster(
    subject: str, kafka: KafkaSettings, topics: Mapping[str, str], sources: Mapping[str, SourceSettings]
) -> Iterator[Finding]:
    """The cluster, then its topics; of a cluster that does not answer only that."""
    from turnout.kafka.topics import Topics

    try:
        cluster = Topics(kafka)
    except Exception as error:  # what librdkafka thinks of a property
        yield Finding(subject, "fault", f"the client cannot be set up: {error}", "check kafka.auth and properties")
        return
    try:
        known = [name for name in cluster.names() if not name.startswith("__")]
        yield Finding(subject, "ok", f"{kafka.bootstrap_servers} answers: {len(known)} topics")
        for place, topic in topics.items():
            source = sources.get(place.removeprefix("source "))
            yield from _topic(cluster, place, topic, source)
    except TurnoutError as error:
        yield _failed(subject, error)
    finally:
        cluster.close()


def _topic(cluster: Topics, subject: str, topic: str, source: SourceSettings | None) -> Iterator[Finding]:
    from turnout.plan import Start

    try:
        end = cluster.end_offsets([topic])
        records = cluster.start_offsets([topic], Start("earliest")).behind(end)
        yield Finding(subject, "ok", f"topic {topic}: partitions {len(end.next)}, records {records:,}")
        if source is not None and records:
            yield judge(subject, source, cluster.sample(topic, SAMPLE_RECORDS))
    except TurnoutError as error:
        yield _failed(subject, error)


def _failed(subject: str, error: TurnoutError) -> Finding:
    return Finding(subject, "fault", error.message, error.hint)


def judge(subject: str, source: SourceSettings, values: Sequence[bytes | None]) -> Finding:
    """Whether records fit the columns of their source."""
    if not values:
        return Finding(subject, "ok", "no record to look at")
    reasons: Counter[str] = Counter()
    fields: set[str] = set()
    whole = 0
    for value in values:
        record, wrong = _read(value, source)
        fields.update(record)
        reasons.update(wrong)
        whole += not wrong
    text = f"{whole} of the newest {len(values)} records fit"
    if not fields:
        return Finding(subject, "fault", f"{text}: {_shown(reasons)}", "name a topic whose values are JSON objects")
    absent = [name for name in source.columns if name not in fields]
    if source.key in absent:
        has = ", ".join(sorted(fields)[:10])
        return Finding(subject, "fault", f"no record has the key {source.key} (has: {has})", "fix key and columns")
    if absent:
        reasons.update(f"{name} is in no record" for name in absent)
    if reasons:
        hint = "fix the columns, or expect nulls and rows in bad_records"
        return Finding(subject, "warning", f"{text}: {_shown(reasons)}", hint)
    return Finding(subject, "ok", text)


def _shown(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} ({times}x)" for reason, times in reasons.most_common(_REASONS_SHOWN))


def _read(value: bytes | None, source: SourceSettings) -> tuple[dict[str, object], list[str]]:
    """The record, and what is wrong with it."""
    if value is None:
        # With `rows: latest` that is how a row is removed.
        return {}, [] if source.rows == "latest" else ["null value"]
    try:
        record = json.loads(value, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return {}, ["not JSON"]
    if not isinstance(record, dict):
        return {}, ["not a JSON object"]
    types = {name: column.name for name, column in source.columns.items()}
    wrong = [name for name in types if record.get(name) is not None and not _fits(record[name], types[name])]
    return record, [f"{name} is not {types[name]}" for name in wrong]


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _fits(value: object, column_type: str) -> bool:
    if column_type == "string":
        return True
    if column_type == "boolean":
        return isinstance(value, bool)
    if column_type in ("date", "timestamp"):
        return isinstance(value, str) and _is_moment(value, date if column_type == "date" else datetime)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if column_type in ("int32", "int64"):
        limit = 2 ** (int(column_type[3:]) - 1)
        return isinstance(value, int) and -limit <= value < limit
    return math.isfinite(value)


def _is_moment(text: str, kind: type[date]) -> bool:
    try:
        kind.fromisoformat(text)
    except ValueError:
        return False
    return True
