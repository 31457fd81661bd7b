"""The checks of a file and of this machine: Java, folders, port, Spark, registry, issuer; then each Kafka cluster."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path

import httpx

from turnout.config import Settings, SparkSettings, load
from turnout.config.server import OidcSettings, ServerSettings
from turnout.config.tables import first_plan, layout_of
from turnout.errors import ConfigError, TurnoutError
from turnout.java.runtime import find_java
from turnout.preflight import Finding
from turnout.preflight.clusters import Cluster, check_cluster, check_data
from turnout.schemas.registry import SchemaRegistry
from turnout.schemas.source_schemas import schemas_of

_ANSWER_SECONDS = 3.0


def check_all(path: Path) -> list[Finding]:
    """All findings for a configuration file, in the order in which they are best fixed."""
    found = [_tried("java", lambda: str(find_java()))]
    try:
        settings = load(path)
        described = f"{path} is valid: {len(settings.sources)} sources, {len(settings.views)} views"
        described += f", {len(settings.sinks)} sinks" if settings.sinks else ""
        described += f", {len(settings.alerts)} alerts" if settings.alerts else ""
        found.insert(0, Finding("configuration", "ok", described))
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
