"""The checks of a file, in the order in which their findings are best fixed: this machine, then each Kafka cluster.

They change nothing. This machine: Java, folders, port, Spark, registry, issuer. A cluster: how its clients are set up,
what they see, topics, their newest records, sinks and alerts.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import httpx
from confluent_kafka import KafkaException

from turnout.alert.targets import allowed_addresses, writer_id
from turnout.config import (
    AlertSettings,
    Format,
    KafkaSettings,
    Settings,
    SinkSettings,
    SourceSettings,
    SparkSettings,
    load,
)
from turnout.config.server import OidcSettings, ServerSettings
from turnout.config.tables import first_plan, layout_of, source_table
from turnout.errors import ConfigError, TurnoutError
from turnout.java.runtime import find_java
from turnout.kafka.diagnosis import cause_in, cause_of, explain
from turnout.kafka.security import java_properties, librdkafka_properties, masked
from turnout.kafka.topics import Topics
from turnout.plan.plan import Start
from turnout.schemas.record_decoder import RecordDecoder, raw
from turnout.schemas.registry import SchemaRegistry
from turnout.schemas.source_schemas import Schemas, schemas_of
from turnout.sink.topic_channel import TopicReader, failure, policy_complaint, sink_id

_ANSWER_SECONDS = 3.0
SAMPLE_RECORDS = 100
_REASONS_SHOWN = 3
_WORDS = {"not valid JSON": "not JSON", "not an object": "not a JSON object"}


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; a warning does not stop `run`."""

    subject: str
    level: Literal["ok", "warning", "fault"]
    text: str
    hint: str = ""

    @classmethod
    def of_error(cls, subject: str, error: TurnoutError) -> Finding:
        return cls(subject, "fault", error.message, error.hint)


def check_all(path: Path) -> list[Finding]:
    """All findings for a configuration file, in the order in which they are best fixed."""
    found = [_tried("java", lambda: str(find_java()))]
    try:
        settings = load(path)
        has = {"source": len(settings.sources), "view": len(settings.views)}
        has |= {"sink": len(settings.sinks), "alert": len(settings.alerts)}
        described = ", ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in has.items() if count)
        found.insert(0, Finding("configuration", "ok", f"{path} is valid: {described}"))
        found += [_data_dir(settings.data_dir), _server(settings.server), *check_spark(settings.spark)]
        if any(view.sql is not None for view in settings.views.values()):
            found.append(_tried("views", lambda: _own_views(settings)))
        schemas = schemas_of(settings)
    except ConfigError as error:
        faults = (fault.partition("; ") for fault in error.faults)
        return [*(Finding("configuration", "fault", text, hint) for text, _, hint in faults), *found]
    if settings.schema_registry is not None:
        with closing(SchemaRegistry(settings.schema_registry)) as registry:
            found.append(_tried("schema_registry", lambda: f"{registry.url} answers: {registry.reach()} subjects"))
    if settings.access is not None and settings.access.oidc is not None:
        found.append(check_issuer(settings.access.oidc))
    sources = {f"source {name}": source.topic for name, source in settings.sources.items()}
    data = sources | _given("dead_letter_topic", settings.dead_letter_topic)
    control = {"control topic": settings.control.topic} | _given("control.ack_topic", settings.control.ack_topic)
    if settings.control.kafka is None:
        both = Cluster("kafka", settings.kafka, data | control, tuple(data), schemas)
        return [*found, *check_data(both, settings)]
    found += check_data(Cluster("kafka", settings.kafka, data, tuple(data), schemas), settings)
    return [*found, *check_cluster(Cluster("control kafka", settings.control_kafka, control), {})]


def _tried(subject: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, "ok", attempt())
    except TurnoutError as error:
        return Finding.of_error(subject, error)


def check_issuer(oidc: OidcSettings) -> Finding:
    """Whether the identity provider answers as `access.oidc` says; nobody is signed in for that."""
    from turnout.issuer.provider import IdentityProvider

    return _tried("access.oidc", lambda: f"{asyncio.run(IdentityProvider(oidc).metadata())['issuer']} answers")


def _data_dir(folder: Path) -> Finding:
    # The nearest that is there: a check makes no folders.
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("data_dir", "ok", f"{folder} can be written")
    why = "may not be written" if there.is_dir() else "is not a folder"
    return Finding("data_dir", "fault", f"{folder}: {there} {why}", "give another data_dir, or change its rights")


def _server(settings: ServerSettings) -> Finding:
    """Whether the address is free; where a Turnout has it already, that may be the one that the file is for."""
    address = f"{settings.host}:{settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        with suppress(httpx.HTTPError, httpx.InvalidURL, ValueError):
            if httpx.get(f"http://{address}/healthz", timeout=_ANSWER_SECONDS).json() == {"status": "ok"}:
                return Finding("server", "warning", f"{address}: a Turnout answers there already", "stop it first")
        hint = "end the program that uses it, or give another server.port (0 takes a free one)"
        return Finding("server", "fault", f"{address}: {os.strerror(error.errno or 0)}", hint)
    return Finding("server", "ok", f"{address} is free")


def check_spark(settings: SparkSettings, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check a Spark master on other machines: does it answer, and what do the hosts of executors need?"""
    from turnout.spark.jvm.cluster import NEEDED, address_toward, answers, is_local, python_of_workers

    if is_local(settings.master):
        return []
    if settings.master == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        hint = "set HADOOP_CONF_DIR to the folder with the cluster's core-site.xml and yarn-site.xml"
        return [Finding("spark", "fault", "spark.master is yarn, and nothing says where that is", hint)]
    if (trouble := answers(settings.master, _ANSWER_SECONDS)) is not None:
        hint = "start the master, or correct spark.master"
        return [Finding("spark", "fault", f"{settings.master} does not answer ({trouble})", hint)]
    address = settings.conf.get("spark.driver.host") or address_toward(settings.master) or "this host's name"
    packages = "packages are sent" if settings.ship_packages else f"packages must be there: {', '.join(NEEDED)}"
    needs = f"hosts of executors need Kafka, {address} and {python_of_workers(settings, environ)} ({packages})"
    return [Finding("spark", "ok", f"{settings.master}: {needs}")]


def _own_views(settings: Settings) -> str:
    """Only Spark can tell whether it understands somebody's SQL; where that runs does not matter for it."""
    from turnout.spark.jvm.session import start_session
    from turnout.spark.views.own_sql import check_own_views

    views = layout_of(settings, first_plan(settings)).views
    with tempfile.TemporaryDirectory(prefix="turnout-check-") as folder:
        session = start_session(SparkSettings(master="local[1]"), Path(folder) / "spark")
        try:
            check_own_views(session, views)
        finally:
            session.stop()
    return f"Spark understands the SQL of {', '.join(view.table for view in views if view.own_sql)}"


def _given(place: str, topic: str | None) -> dict[str, str]:
    return {place: topic} if topic else {}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster to look at: the topics by their place in the file, and those places that Spark reads or writes."""

    subject: str
    kafka: KafkaSettings
    topics: Mapping[str, str]
    java: tuple[str, ...] = ()
    schemas: Mapping[str, Schemas] = field(default_factory=dict)
    """The schemas of sources that are not JSON."""


def check_data(cluster: Cluster, settings: Settings) -> list[Finding]:
    """The cluster of the data, then the topics of dead letters and sinks and the targets of alerts, if it answers."""
    found = list(check_cluster(cluster, settings.sources))
    if any(finding.subject == cluster.subject and finding.level == "fault" for finding in found):
        return found
    if settings.dead_letter_topic is not None:
        found += check_dead_letters(settings.dead_letter_topic, settings.kafka)
    found += [check_sink(name, sink, settings.kafka) for name, sink in settings.sinks.items()]
    return [*found, *(check_alert(name, alert, settings.kafka) for name, alert in settings.alerts.items())]


def check_cluster(cluster: Cluster, sources: Mapping[str, SourceSettings]) -> Iterator[Finding]:
    """How its clients are set up, then what each of them sees: librdkafka all topics, Java those of the data."""
    kafka = cluster.kafka
    try:
        properties = librdkafka_properties(kafka)
        java = java_properties(kafka) if cluster.java else {}
    except TurnoutError as error:
        yield Finding.of_error(cluster.subject, error)
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
    subject, kafka = cluster.subject, cluster.kafka
    try:
        with closing(Topics(kafka)) as client:
            known = [name for name in client.names() if not name.startswith("__")]
            yield Finding(subject, "ok", f"{kafka.bootstrap_servers} answers: {len(known)} topics")
            for place, topic in cluster.topics.items():
                name = place.removeprefix("source ")
                yield from _topic(client, place, topic, sources.get(name), cluster.schemas.get(name))
    except TurnoutError as error:
        yield Finding.of_error(subject, error)


def _by_java(cluster: Cluster, properties: Mapping[str, str]) -> Finding:
    """Whether Spark's client connects too; it is set up by other names, and trusts other authorities."""
    from turnout.spark.jvm.java_client import java_client

    subject, kafka = f"{cluster.subject} java", cluster.kafka
    oauth = kafka.auth.oauth if kafka.auth else None
    wanted = [cluster.topics[place] for place in cluster.java]
    try:
        with java_client([oauth.token_endpoint] if oauth else []) as client:
            seen, refused = client.topics(properties, wanted)
    except TurnoutError as error:
        if error.code != "kafka_unreachable":
            return Finding.of_error(subject, error)
        cause = cause_of(kafka, error.message, "check kafka.auth and kafka.properties")
        return Finding(subject, "fault", f"Spark's Kafka client cannot connect: {cause.text}", cause.hint)
    for topic, words in refused.items():
        if (known := cause_in(words)) is not None:
            return Finding(subject, "fault", f"Spark's Kafka client, topic {topic!r}: {known.text}", known.hint)
    return Finding(subject, "ok", f"Spark's Kafka client connects: {seen} topics")


def _topic(
    cluster: Topics, subject: str, topic: str, source: SourceSettings | None, schemas: Schemas | None
) -> Iterator[Finding]:
    try:
        end = cluster.end_offsets([topic])
        records = cluster.start_offsets([topic], Start("earliest")).behind(end)
        yield Finding(subject, "ok", f"topic {topic}: partitions {len(end.next)}, records {records:,}")
        if source is not None and records:
            sample = cluster.look(topic, SAMPLE_RECORDS)
            found = sample.records
            for why in sample.unreadable:
                yield Finding(subject, "warning", f"topic {topic}, {why}", "expect a row in bad_records")
            keys, values = [key for key, _ in found], [value for _, value in found]
            yield check_records(subject, source, values, schemas, keys)
    except TurnoutError as error:
        yield Finding.of_error(subject, error)


def check_records(
    subject: str,
    source: SourceSettings,
    values: Sequence[bytes | None],
    schemas: Schemas | None = None,
    keys: Sequence[bytes | None] = (),
) -> Finding:
    """Whether records fit the columns of their source; `schemas` are those of one that is not JSON.

    By its key a tombstone is one that removes a row, which is no fault.
    """
    if not values:
        return Finding(subject, "ok", "no records yet")
    table = source_table("source", source, source.topic)
    decoded = RecordDecoder([table], {"source": schemas} if schemas is not None else {}).decode(raw(values, keys=keys))
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
        return Finding(subject, "fault", f"{text}: {_most_frequent(reasons)}", hint)
    absent = [name for name in source.columns if name not in fields]
    if source.key in absent:
        has = ", ".join(sorted(fields)[:10])
        return Finding(subject, "fault", f"no record has the key {source.key} (has: {has})", "fix key and columns")
    told = f"{text}: {_most_frequent(reasons)}" if reasons else text
    if absent:
        names = f"column {absent[0]} is" if len(absent) == 1 else f"columns {', '.join(absent)} are"
        told += f"; {names} in none of them"
    if reasons or absent:
        expected = "nulls and rows in bad_records" if reasons else "nulls"
        return Finding(subject, "warning", told, f"fix the columns, or expect {expected}")
    return Finding(subject, "ok", text)


def _reason(field: str | None, reason: str, source: SourceSettings) -> str:
    if source.format is not Format.JSON:
        return f"{field}: {reason}" if field else reason
    return f"{field} is not {source.columns[field].name}" if field else _WORDS.get(reason, reason)


def _undeclared(values: Sequence[bytes | None]) -> set[str]:
    """The fields of JSON records, declared or not."""
    found: set[str] = set()
    for value in values:
        with suppress(ValueError, RecursionError):
            record = json.loads(value or b"null")
            found |= record.keys() if isinstance(record, dict) else set()
    return found


def _most_frequent(reasons: Counter[str]) -> str:
    return ", ".join(f"{reason} ({times}x)" for reason, times in reasons.most_common(_REASONS_SHOWN))


def check_written(subject: str, topic: str, writer: str, kafka: KafkaSettings) -> tuple[Finding, str | None]:
    """Check whether a topic may be written with a transactional id, and how Kafka removes its old records."""
    reader = TopicReader(kafka, topic, lambda: False)
    try:
        found = reader.find()
    except (KafkaException, TimeoutError) as error:
        return Finding.of_error(subject, failure(error, topic, writer, kafka)), None
    if found.missing_rights:
        text = f"topic {topic} may not be used with Turnout's Kafka identity (no {', '.join(found.missing_rights)})"
        return Finding(subject, "fault", text, "grant it Describe, Read and Write on the topic"), None
    partitions = f"topic {topic}: partitions {len(found.partitions)}"
    return Finding(subject, "ok", partitions), reader.admin.cleanup_policy(topic)


def check_dead_letters(topic: str, kafka: KafkaSettings) -> Iterator[Finding]:
    """Check whether the topic takes records without a key, as those that cannot be read may be."""
    policy = TopicReader(kafka, topic, lambda: False).admin.cleanup_policy(topic)
    if policy is not None and "compact" in policy:
        text = f"topic {topic!r} has cleanup.policy={policy}, so Kafka refuses records without a key"
        hint = "set cleanup.policy=delete on the topic; otherwise reading stops at a bad record without a key"
        yield Finding("dead_letter_topic", "warning", text, hint)


def check_sink(name: str, sink: SinkSettings, kafka: KafkaSettings) -> Finding:
    found, policy = check_written(f"sink {name}", sink.topic, sink_id(sink.topic), kafka)
    if complaint := policy_complaint(sink.topic, policy):
        return Finding(found.subject, "warning", *complaint)
    return replace(found, text=f"{found.text}, {sink.delivery}") if found.level == "ok" else found


def check_alert(name: str, alert: AlertSettings, kafka: KafkaSettings) -> Finding:
    """Whether events of an alert can go to its target; a webhook's host is looked up, and nothing is sent to it."""
    subject, topic = f"alert {name}", alert.to.topic
    if topic is not None:
        found, policy = check_written(subject, topic, writer_id(name, topic), kafka)
        if policy is not None and "compact" in policy:
            text = f"topic {topic!r} has cleanup.policy={policy}, so Kafka keeps the last event of each alert only"
            return Finding(subject, "warning", text, "set cleanup.policy=delete on the topic")
        return found
    try:
        addresses = allowed_addresses(alert.to) if alert.to.webhook is not None else []
    except TurnoutError as error:
        return Finding.of_error(subject, error)
    return Finding(subject, "ok", f"{alert.to.described}{f': {len(addresses)} addresses' if addresses else ''}")
