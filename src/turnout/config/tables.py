"""What follows from a configuration: the first plan, the tables of a generation, where each topic starts."""

import json
import math
from collections.abc import Mapping
from typing import Any

from turnout.config.changes import SECTIONS
from turnout.config.settings import MAX_ROWS_PER_KEY, Format, Settings, SourceSettings
from turnout.plan.chains import Chain, chain_of
from turnout.plan.plan import Plan, Start
from turnout.plan.tables import Layout, SourceTable, ViewTable, chain_view, joined_view, own_view

_TABLES_FORM = 3
"""Counts the forms that the tables of a generation have had: those of an older form are built anew."""


def first_plan(settings: Settings) -> Plan:
    """The plan of a configuration, before any control message."""
    return Plan(
        topics={name: source.topic for name, source in settings.sources.items()},
        joins={name: join for name, view in settings.views.items() if (join := view.first_join) is not None},
        start=settings.start,
        sections=sections_of(settings),
    )


def sections_of(settings: Settings) -> str:
    """The sections that belong to a generation, as the text that a plan has; empty where there is no file."""
    document = settings.origin.document if settings.origin else {}
    return json.dumps({name: document[name] for name in SECTIONS if name in document}) if document else ""


def plan_after(plan: Plan, old: Settings, new: Settings) -> Plan:
    """The plan of `new` after that of `old`: messages changed topics and joins, which stay unless the file changes."""
    before, after = first_plan(old), first_plan(new)
    topics = {name: topic for name, topic in plan.topics.items() if _same(name, before.topics, after.topics)}
    joins = {name: join for name, join in plan.joins.items() if _same(name, before.joins, after.joins)}
    start = plan.start if before.start == after.start else None
    starts = {name: one for name, one in plan.starts.items() if name in after.topics} if start else {}
    return after.with_(topics=topics, joins=joins, start=start, starts=starts)


def _same(name: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    return name in before and name in after and before[name] == after[name]


def layout_of(settings: Settings, plan: Plan) -> Layout:
    """The tables of a generation that is built from this plan."""
    chains = chains_of(settings, plan)
    hashed: dict[str, list[str]] = {name: [] for name in settings.sources}
    for chained, chain in chains.items():
        for name, columns in zip(settings.views[chained].read, chain.used, strict=True):
            hashed[name] += [column for column in columns if column != settings.sources[name].key]
    sources = {
        name: source_table(name, source, plan.topics[name], tuple(dict.fromkeys(hashed[name])))
        for name, source in settings.sources.items()
    }
    views: list[ViewTable] = []
    for name, view in settings.views.items():
        read = [sources[source] for source in view.read]
        if name in chains:
            views.append(chain_view(name, read, chains[name], view.max_rows_per_key))
        elif view.sql is None:
            views.append(joined_view(name, read, plan.joins[name], view.duplicates, view.max_rows_per_key))
        else:
            views.append(own_view(name, read, view.on, view.columns, view.sql))
    return Layout(tuple(sources.values()), tuple(views))


def chains_of(settings: Settings, plan: Plan) -> dict[str, Chain]:
    """The chains among the views, by their names."""
    found = {}
    for name, view in settings.views.items():
        if view.steps:
            columns = {source: tuple(settings.sources[source].columns) for source in view.read}
            found[name] = chain_of(columns, view.chain_steps(plan.joins.get(name, view.join)))
    return found


def source_table(name: str, source: SourceSettings, topic: str, hashed: tuple[str, ...] = ()) -> SourceTable:
    return SourceTable(
        source=name,
        topic=topic,
        table=source.table,
        key=source.key,
        columns=source.columns,
        latest=source.rows == "latest",
        max_rows=source.max_rows,
        form=source.format.value,
        hashed=hashed,
    )


def starts_of(settings: Settings, plan: Plan) -> dict[str, Start]:
    """Map each topic to its start: that of the source in a message, else of all in a message, else of the file.

    Sources of the same topic are read together, from the earliest of their starts.
    """
    named = plan.start != settings.start
    starts: dict[str, Start] = {}
    for source, topic in plan.topics.items():
        start = plan.starts.get(source) or (plan.start if named else settings.sources[source].start or plan.start)
        starts[topic] = min(starts.get(topic, start), start, key=_moment)
    return starts


def _moment(start: Start) -> float:
    """The time of a start, to compare it with others."""
    if start.timestamp_ms is not None:
        return start.timestamp_ms
    return math.inf if start.kind == "latest" else -math.inf


def _source_signature(source: SourceSettings) -> list[Any]:
    """The settings that the rows of a source depend on, besides its topic."""
    columns = {column: kind.name for column, kind in source.columns.items()}
    signature = [source.key, columns, source.rows.value, source.max_rows]
    if source.format is not Format.JSON:
        signature += [source.format.value, str(source.schema_file or ""), source.message or ""]
    return signature


def unchanged_topics(old: tuple[Settings, Plan], new: tuple[Settings, Plan]) -> set[str]:
    """The topics that two plans read alike: by the same sources, each with the same key, columns, format and rows."""
    before, after = _readers(*old), _readers(*new)
    return {topic for topic, readers in after.items() if before.get(topic) == readers}


def _readers(settings: Settings, plan: Plan) -> dict[str, dict[str, list[Any]]]:
    """For each topic the sources that read it, with their signatures."""
    readers: dict[str, dict[str, list[Any]]] = {}
    for name, topic in plan.topics.items():
        readers.setdefault(topic, {})[name] = _source_signature(settings.sources[name])
    return readers


def layout_signature(settings: Settings) -> str:
    """The settings that the tables of a generation depend on, besides its plan, as one text."""
    sources = {name: [source.table, *_source_signature(source)] for name, source in settings.sources.items()}
    views: dict[str, list[Any]] = {}
    for name, view in settings.views.items():
        columns = {column: kind.name for column, kind in view.columns.items()}
        # As it was written while there was one right side only: generations of before are taken up.
        right = view.right[0] if len(view.right) == 1 else view.right
        joined = [view.left, right, view.on, view.duplicates.value]
        views[name] = joined if view.sql is None else [view.sources, view.on, view.sql, columns]
        if view.steps:
            steps = [[s.right, s.on.left, s.on.right, s.join, s.duplicates or view.duplicates] for s in view.steps]
            views[name] = [view.left, steps]
        if view.max_rows_per_key != MAX_ROWS_PER_KEY:
            views[name].append(view.max_rows_per_key)
    return json.dumps([_TABLES_FORM, sources, views])
