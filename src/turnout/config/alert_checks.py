"""How the alerts of a configuration must fit the rest of it: table, condition, and where events go."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from turnout.config.config_errors import Faults, SettingPath
from turnout.config.settings import AlertSettings, Settings, TargetSettings
from turnout.config.tables import first_plan, layout_of
from turnout.config.topic_rules import INTERNAL
from turnout.errors import TurnoutError
from turnout.plan.nearest import did_you_mean
from turnout.plan.where import compile_where, parse_terms

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[ -~]*")
_OWN_HEADERS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


def alert_faults(
    alerts: Mapping[str, AlertSettings],
    tables: Collection[str],
    used: Mapping[str, str],
    wrong: Collection[SettingPath],
) -> Faults:
    """The faults of alerts; `used` topics have another use, which is named, and `wrong` settings are told already."""
    for name, alert in alerts.items():
        path: SettingPath = ("alerts", name)
        if alert.table not in tables:
            fix = did_you_mean(alert.table, list(tables))
            text = f"no table '{alert.table}' of a source or a view (has: {', '.join(tables)}); {fix}"
            yield (*path, "table"), text
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
    tables = Settings.model_validate({name: document[name] for name in ("sources", "views") if name in document})
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
        columns = layout_of(tables, first_plan(tables)).columns(alert.table)
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
    topic = to.topic or ""
    if topic.startswith(INTERNAL):
        yield (*path, "topic"), f"'{topic}' is one of Kafka's own; choose another topic"
    elif topic in used:
        yield (*path, "topic"), f"'{topic}' is {used[topic]} too; choose another topic"
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
