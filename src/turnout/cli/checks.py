"""The checks of `turnout check`: file, Java, folders, Spark, schema registry; Kafka is `kafka_checks.py`.

They change nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from turnout.cli.check import Finding
from turnout.cli.kafka_checks import Cluster, check_cluster
from turnout.config import RegistrySettings, Settings, SparkSettings, load
from turnout.config.tables import first_plan, layout_of
from turnout.decode.registry import SchemaRegistry
from turnout.decode.schemas import schemas_of
from turnout.errors import ConfigError, TurnoutError
from turnout.java.runtime import find_java

_MASTER_SECONDS = 3.0


def check_all(path: Path) -> list[Finding]:
    """All findings for a configuration file, in the order in which they are best fixed."""
    found = [_tried("java", lambda: str(find_java()))]
    try:
        settings = load(path)
        described = f"{path} is valid: {len(settings.sources)} sources, {len(settings.views)} views"
        found.insert(0, Finding("configuration", "ok", described))
        found += [_data_dir(settings.data_dir), *check_spark(settings.spark)]
        if len(settings.joined_views) < len(settings.views):
            found.append(_tried("views", lambda: _own_views(settings)))
        schemas = schemas_of(settings)
    except ConfigError as error:
        return [*map(_config_fault, error.faults), *found]
    if (registry := settings.schema_registry) is not None:
        found.append(_tried("schema_registry", lambda: _registry(registry)))
    sources = {f"source {name}": source.topic for name, source in settings.sources.items()}
    data = sources | _given("dead_letter_topic", settings.dead_letter_topic)
    control = {"control topic": settings.control.topic} | _given("control.ack_topic", settings.control.ack_topic)
    if settings.control.kafka is None:
        both = Cluster("kafka", settings.kafka, data | control, tuple(data), schemas)
        return [*found, *check_cluster(both, settings.sources)]
    found += check_cluster(Cluster("kafka", settings.kafka, data, tuple(data), schemas), settings.sources)
    return [*found, *check_cluster(Cluster("control kafka", settings.control_kafka, control), {})]


def _tried(subject: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(subject, "ok", attempt())
    except TurnoutError as error:
        return Finding.of_error(subject, error)


def _config_fault(fault: str) -> Finding:
    text, _, hint = fault.partition("; ")
    return Finding("configuration", "fault", text, hint)


def _data_dir(folder: Path) -> Finding:
    # The nearest that is there: a check makes no folders.
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("data_dir", "ok", f"{folder} can be written")
    why = "may not be written" if there.is_dir() else "is not a folder"
    return Finding("data_dir", "fault", f"{folder}: {there} {why}", "give another data_dir, or change its rights")


def check_spark(settings: SparkSettings, environ: Mapping[str, str] = os.environ) -> list[Finding]:
    """Where executors are on other machines: whether the master answers, and what the hosts need."""
    from turnout.spark.cluster import NEEDED, address_toward, answers, is_local, python_of_workers

    if is_local(settings.master):
        return []
    if settings.master == "yarn" and not (environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")):
        hint = "set HADOOP_CONF_DIR to the folder with the cluster's core-site.xml and yarn-site.xml"
        return [Finding("spark", "fault", "spark.master is yarn, and nothing says where that is", hint)]
    if (trouble := answers(settings.master, _MASTER_SECONDS)) is not None:
        hint = "start the master, or correct spark.master"
        return [Finding("spark", "fault", f"{settings.master} does not answer ({trouble})", hint)]
    address = settings.conf.get("spark.driver.host") or address_toward(settings.master) or "this host's name"
    packages = "packages are sent" if settings.ship_packages else f"packages must be there: {', '.join(NEEDED)}"
    needs = f"hosts of executors need Kafka, {address} and {python_of_workers(settings, environ)} ({packages})"
    return [Finding("spark", "ok", f"{settings.master}: {needs}")]


def _own_views(settings: Settings) -> str:
    """Only Spark can tell whether it understands somebody's SQL; where that runs does not matter for it."""
    from turnout.spark.session import start_session
    from turnout.spark.views.own_sql import check_own_views

    views = layout_of(settings, first_plan(settings)).views
    with tempfile.TemporaryDirectory(prefix="turnout-check-") as folder:
        session = start_session(SparkSettings(master="local[1]"), Path(folder) / "spark")
        try:
            check_own_views(session, views)
        finally:
            session.stop()
    return f"Spark understands the SQL of {', '.join(view.table for view in views if view.own)}"


def _registry(registry: RegistrySettings) -> str:
    with closing(SchemaRegistry(registry)) as client:
        return f"{registry.url} answers: {client.reach()} subjects"


def _given(place: str, topic: str | None) -> dict[str, str]:
    return {place: topic} if topic else {}
