"""How sinks and alerts must fit the rest of a configuration: tables, conditions, topics, formats and targets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from turnout.config.config_errors import Faults, SettingPath
from turnout.config.settings import AlertSettings, Format, Settings, SinkSettings, TargetSettings
from turnout.config.tables import first_plan, layout_of
from turnout.config.topic_rules import INTERNAL
from turnout.errors import TurnoutError
from turnout.plan.nearest import did_you_mean
from turnout.plan.where import compile_where, parse_terms

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")
_OWN_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


def sink_faults(
    sinks: Mapping[str, SinkSettings],
    tables: Mapping[str, Collection[str]],
    used: Mapping[str, str],
    *,
    has_registry: bool,
) -> Faults:
    """`tables` are those of sources and views, with their columns; `used` topics have another use, which is named."""
    written = dict(used)
    for name, sink in sinks.items():
        yield from _table_faults(("sinks", name), sink.table, tables)
        yield from _topic_faults(("sinks", name), sink.topic, written, "each sink needs its own topic")
        written.setdefault(sink.topic, f"sinks.{name}.topic")
        yield from _sink_format(name, sink, tables.get(sink.table, ()), has_registry=has_registry)


def _sink_format(name: str, sink: SinkSettings, columns: Collection[str], *, has_registry: bool) -> Faults:
    path = ("sinks", name, "format")
    if sink.format is Format.PROTOBUF:
        yield path, "a sink cannot write protobuf; use json or avro"
    elif sink.format is Format.AVRO:
        if not has_registry:
            yield path, "avro needs a registry for its schema; add schema_registry: {url: ...}, or use json"
        if odd := [column for column in columns if not _AVRO_NAME.fullmatch(column)]:
            yield path, f"column {odd[0]!r} cannot be a name in Avro (letters, digits and _); rename it, or use json"


def _table_faults(path: SettingPath, table: str, tables: Collection[str]) -> Faults:
    if table not in tables:
        fix = did_you_mean(table, list(tables))
        yield (*path, "table"), f"no table '{table}' of a source or a view (has: {', '.join(tables)}); {fix}"


def _topic_faults(path: SettingPath, topic: str, used: Mapping[str, str], remedy: str) -> Faults:
    if topic.startswith(INTERNAL):
        yield (*path, "topic"), f"'{topic}' is one of Kafka's own; choose another topic"
    elif topic in used:
        yield (*path, "topic"), f"'{topic}' is {used[topic]} too; {remedy}"


def alert_faults(
    alerts: Mapping[str, AlertSettings],
    tables: Collection[str],
    used: Mapping[str, str],
    wrong: Collection[SettingPath],
) -> Faults:
    """The faults of alerts; `used` topics have another use, which is named, and `wrong` settings are told already."""
    for name, alert in alerts.items():
        path: SettingPath = ("alerts", name)
        yield from _table_faults(path, alert.table, tables)
        try:
            parse_terms(alert.where)
        except TurnoutError as error:
            yield _where_fault(path, error)
        if not any(place[:3] == (*path, "to") for place in wrong):
            yield from _target_faults((*path, "to"), alert.to, used)


def filter_faults(
    alerts: Mapping[str, AlertSettings | None], document: Mapping[str, Any], wrong: Collection[SettingPath]
) -> Faults:
    """The faults of conditions that do not fit the columns of their tables, once those have no fault themselves."""
    if not alerts or any(path[0] in ("sources", "views") for path in wrong):
        return
    tables = Settings.model_validate({name: document[name] for name in ("sources", "views")})
    for name, alert in alerts.items():
        if alert is not None and not any(("alerts", name, step) in wrong for step in ("table", "where")):
            yield from _filter_faults(name, alert, tables)


def fitting_alerts(now: Settings, other: Settings) -> list[str]:
    """The alerts in force whose tables and columns other settings have, too."""
    tables = {*other.views, *(source.table for source in other.sources.values())}
    here = {name: alert for name, alert in now.alerts.items() if alert.table in tables}
    return [name for name, alert in here.items() if not any(_filter_faults(name, alert, other))]


def _filter_faults(name: str, alert: AlertSettings, tables: Settings) -> Faults:
    try:
        columns = layout_of(tables, first_plan(tables)).of(alert.table).columns
        compile_where(parse_terms(alert.where), columns)
    except TurnoutError as error:
        yield _where_fault(("alerts", name), error)


def _where_fault(path: SettingPath, error: TurnoutError) -> tuple[SettingPath, str]:
    return (*path, "where"), f"{error.message.removeprefix('where: ')}; {error.hint or 'correct it'}"


def _target_faults(path: SettingPath, to: TargetSettings, used: Mapping[str, str]) -> Faults:
    given = [name for name in ("webhook", "topic", "log") if getattr(to, name)]
    if len(given) != 1:
        got = f"got {' and '.join(given)}" if given else "there is none"
        yield path, f"must be one of webhook, topic and log, {got}; choose one"
    yield from _topic_faults(path, to.topic or "", used, "choose another topic")
    if to.webhook is None:
        for name in ("headers", "private"):
            if getattr(to, name):
                yield (*path, name), "works only with webhook; remove it"
        return
    yield from _address_faults((*path, "webhook"), to.webhook.get_secret_value(), private=to.private)
    for name, value in to.headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
            yield (*path, "headers", name), "is not the name of a header, or is one that Turnout sets itself; remove it"
        elif not _HEADER_VALUE.fullmatch(value):
            yield (*path, "headers", name), "has characters that a header cannot carry; use visible ASCII in one line"


def _address_faults(path: SettingPath, url: str, *, private: bool) -> Faults:
    """The faults of an address, which is not shown."""
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0 and parts.scheme in ("http", "https")
    except ValueError:
        whole = False
    if not whole or re.search(r"[^!-~]", url):
        yield path, "must look like https://hooks.example.com/path; correct it"
    elif parts.username is not None or parts.password is not None:
        yield path, "must not have a user or a password; put them into headers"
    elif parts.scheme == "http" and not private:
        yield path, "must be https; http is for private addresses, with private: true"
