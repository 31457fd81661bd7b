"""Looks at all that `turnout run` will need, and says what it found: file, Java, folders, Kafka, topics, records.

It changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from turnout.cli.spark_check import look_at_spark
from turnout.config import Format, KafkaSettings, RegistrySettings, Settings, SourceSettings, SparkSettings, load
from turnout.config.tables import first_plan, layout_of
from turnout.decode.record_decoder import raw
from turnout.decode.registry import SchemaRegistry
from turnout.decode.schemas import Decoder, Schemas, schemas_of, shape_of
from turnout.errors import ConfigError, TurnoutError
from turnout.java.runtime import find_java

if TYPE_CHECKING:
    from turnout.kafka.topics import Topics

SAMPLE_RECORDS = 100
_REASONS_SHOWN = 3
_WORDS = {"not valid JSON": "not JSON", "not an object": "not a JSON object"}


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
    found += [_data_dir(settings.data_dir), *look_at_spark(settings.spark)]
    if len(settings.joined_views) < len(settings.views):
        found.append(_own_views(settings))
    try:
        schemas = schemas_of(settings)
    except ConfigError as error:
        return [*map(_config_fault, error.faults), *found]
    if settings.schema_registry is not None:
        found.append(_registry(settings.schema_registry))
    data, control = _data_topics(settings), _control_topics(settings)
    if settings.control.kafka is None:
        both = Cluster("kafka", settings.kafka, data | control, tuple(data), schemas)
        return [*found, *_cluster(both, settings.sources)]
    found += _cluster(Cluster("kafka", settings.kafka, data, tuple(data), schemas), settings.sources)
    return [*found, *_cluster(Cluster("control kafka", settings.control_kafka, control), {})]


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


def _own_views(settings: Settings) -> Finding:
    """Only Spark can tell whether it understands somebody's SQL; where that runs does not matter for it."""
    from turnout.spark.session import start_session
    from turnout.spark.views.own_sql import check_own_views

    views = layout_of(settings, first_plan(settings)).views
    with tempfile.TemporaryDirectory(prefix="turnout-check-") as folder:
        try:
            session = start_session(SparkSettings(master="local[1]"), Path(folder) / "spark")
            try:
                check_own_views(session, views)
            finally:
                session.stop()
        except TurnoutError as error:
            return _failed("views", error)
    names = ", ".join(view.table for view in views if view.own)
    return Finding("views", "ok", f"Spark understands the SQL of {names}")


def _data_topics(settings: Settings) -> dict[str, str]:
    topics = {f"source {name}": source.topic for name, source in settings.sources.items()}
    return topics | ({"dead_letter_topic": settings.dead_letter_topic} if settings.dead_letter_topic else {})


def _control_topics(settings: Settings) -> dict[str, str]:
    topics = {"control topic": settings.control.topic}
    return topics | ({"control.ack_topic": settings.control.ack_topic} if settings.control.ack_topic else {})


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to look at: the topics by their place in the file, and those places that Spark reads or writes."""

    subject: str
    kafka: KafkaSettings
    topics: Mapping[str, str]
    java: tuple[str, ...] = ()
    schemas: Mapping[str, Schemas] = field(default_factory=dict)
    """Those of the sources that are not JSON."""


def _cluster(cluster: Cluster, sources: Mapping[str, SourceSettings]) -> Iterator[Finding]:
    """How its clients are set up, then what each of them sees: librdkafka all topics, Java those of the data."""
    from turnout.kafka.probe import explain
    from turnout.kafka.security import java_properties, librdkafka_properties, masked

    kafka = cluster.kafka
    try:
        properties = librdkafka_properties(kafka)
        java = java_properties(kafka) if cluster.java else {}
    except TurnoutError as error:
        yield _failed(cluster.subject, error)
        return
    yield Finding(f"{cluster.subject} librdkafka", "ok", _listed(masked(properties)))
    if java:
        yield Finding(f"{cluster.subject} java", "ok", _listed(masked(java)))
    if cause := explain(kafka):  # before a client tries for ten seconds, and then knows less
        yield Finding(cluster.subject, "fault", f"{kafka.bootstrap_servers}: {cause.text}", cause.hint)
        return
    reached = True
    for finding in _by_librdkafka(cluster, sources):
        reached = reached and not (finding.subject == cluster.subject and finding.level == "fault")
        yield finding
    if java and reached:
        yield _by_java(cluster, java)


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in properties.items())


def _by_librdkafka(cluster: Cluster, sources: Mapping[str, SourceSettings]) -> Iterator[Finding]:
    """The cluster, then its topics; of a cluster that does not answer only that."""
    from turnout.kafka.diagnosis import GROUP_DENIED
    from turnout.kafka.topics import Topics

    subject, kafka = cluster.subject, cluster.kafka
    try:
        client = Topics(kafka)
    except TurnoutError as error:  # what librdkafka thinks of a property
        yield _failed(subject, error)
        return
    try:
        known = [name for name in client.names() if not name.startswith("__")]
        yield Finding(subject, "ok", f"{kafka.bootstrap_servers} answers: {len(known)} topics")
        for place, topic in cluster.topics.items():
            name = place.removeprefix("source ")
            yield from _topic(client, place, topic, sources.get(name), cluster.schemas.get(name))
        if kafka.auth is not None and (group := client.group_refused(next(iter(cluster.topics.values())))):
            text = f"consumer group {group!r} may not be used with Turnout's Kafka identity"
            yield Finding(f"{subject} group", "warning", text, GROUP_DENIED.hint)
    except TurnoutError as error:
        yield _failed(subject, error)
    finally:
        client.close()


def _by_java(cluster: Cluster, properties: Mapping[str, str]) -> Finding:
    """Whether Spark's client connects too; it is set up by other names, and trusts other authorities."""
    from turnout.kafka.diagnosis import cause_in, without_secrets
    from turnout.kafka.probe import explain
    from turnout.spark.java_client import java_client

    subject, kafka = f"{cluster.subject} java", cluster.kafka
    oauth = kafka.auth.oauth if kafka.auth else None
    wanted = [cluster.topics[place] for place in cluster.java]
    try:
        with java_client([oauth.token_endpoint] if oauth else []) as client:
            seen, refused = client.topics(properties, wanted)
    except TurnoutError as error:
        if error.code != "kafka_unreachable":
            return _failed(subject, error)
        cause = explain(kafka, error.message)
        text = cause.text if cause else without_secrets(error.message, kafka)
        hint = cause.hint if cause else "check kafka.auth and kafka.properties"
        return Finding(subject, "fault", f"Spark's Kafka client cannot connect: {text}", hint)
    for topic, words in refused.items():
        if (cause := cause_in(words)) is not None:
            return Finding(subject, "fault", f"Spark's Kafka client, topic {topic!r}: {cause.text}", cause.hint)
    return Finding(subject, "ok", f"Spark's Kafka client connects: {seen} topics")


def _registry(registry: RegistrySettings) -> Finding:
    client = SchemaRegistry(registry)
    try:
        return Finding("schema_registry", "ok", f"{registry.url} answers: {client.reach()} subjects")
    except TurnoutError as error:
        return _failed("schema_registry", error)
    finally:
        client.close()


def _topic(
    cluster: Topics, subject: str, topic: str, source: SourceSettings | None, schemas: Schemas | None
) -> Iterator[Finding]:
    from turnout.plan.plan import Start

    try:
        end = cluster.end_offsets([topic])
        records = cluster.start_offsets([topic], Start("earliest")).behind(end)
        yield Finding(subject, "ok", f"topic {topic}: partitions {len(end.next)}, records {records:,}")
        if source is not None and records:
            yield judge(subject, source, cluster.sample(topic, SAMPLE_RECORDS), schemas)
    except TurnoutError as error:
        yield _failed(subject, error)


def _failed(subject: str, error: TurnoutError) -> Finding:
    return Finding(subject, "fault", error.message, error.hint)


def judge(
    subject: str, source: SourceSettings, values: Sequence[bytes | None], schemas: Schemas | None = None
) -> Finding:
    """Whether records fit the columns of their source; `schemas` are those of one that is not JSON."""
    if not values:
        return Finding(subject, "ok", "no record to look at")
    decoded = Decoder([shape_of("source", source, 0)], {"source": schemas} if schemas is not None else {})(raw(values))
    rows = decoded.rows[0]
    fields = {name for name in source.columns if rows[name].null_count < rows.num_rows}
    faults = decoded.faults.to_pylist() if decoded.faults is not None else []
    fields |= {fault["field"] for fault in faults if fault["field"] is not None}
    reasons = Counter(_reason(fault["field"], fault["reason"], source) for fault in faults)
    whole = len(values) - len({fault["_id"] for fault in faults})
    text = f"{whole} of the newest {len(values)} records fit"
    fields |= _undeclared(values) if schemas is None else set()
    if not fields:
        hint = f"name a topic whose values are {'JSON objects' if schemas is None else source.format}, or set format"
        return Finding(subject, "fault", f"{text}: {_shown(reasons)}", hint)
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


def _reason(field: str | None, reason: str, source: SourceSettings) -> str:
    if source.format is not Format.JSON:
        return f"{field}: {reason}" if field else reason
    return f"{field} is not {source.columns[field].name}" if field else _WORDS.get(reason, reason)


def _undeclared(values: Sequence[bytes | None]) -> set[str]:
    """The fields of JSON records, declared or not."""
    found: set[str] = set()
    for value in values:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(value or b"null")
            found |= record.keys() if isinstance(record, dict) else set()
    return found


def _shown(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} ({times}x)" for reason, times in reasons.most_common(_REASONS_SHOWN))
