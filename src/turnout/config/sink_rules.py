"""How sinks must fit the rest of a configuration: a table that there is, and a topic that nothing else uses."""

import re
from collections.abc import Collection, Mapping

from turnout.config.auth import Faults
from turnout.config.config_errors import did_you_mean
from turnout.config.settings import Format, SinkSettings
from turnout.config.topic_rules import INTERNAL

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


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
        if sink.table not in tables:
            fix = did_you_mean(sink.table, list(tables))
            text = f"no table '{sink.table}' of a source or a view (has: {', '.join(tables)}); {fix}"
            yield ("sinks", name, "table"), text
        if sink.topic.startswith(INTERNAL):
            yield ("sinks", name, "topic"), f"'{sink.topic}' is one of Kafka's own; choose another topic"
        elif sink.topic in written:
            text = f"'{sink.topic}' is {written[sink.topic]} too; a sink needs a topic of its own"
            yield ("sinks", name, "topic"), text
        written.setdefault(sink.topic, f"sinks.{name}.topic")
        yield from _format(name, sink, tables.get(sink.table, ()), has_registry=has_registry)


def _format(name: str, sink: SinkSettings, columns: Collection[str], *, has_registry: bool) -> Faults:
    path = ("sinks", name, "format")
    if sink.format is Format.PROTOBUF:
        yield path, "a sink does not write protobuf; use json or avro"
    elif sink.format is Format.AVRO:
        if not has_registry:
            yield path, "avro needs a registry for its schema; add schema_registry: {url: ...}, or use json"
        if odd := [column for column in columns if not _AVRO_NAME.fullmatch(column)]:
            yield path, f"column {odd[0]!r} cannot be a name in Avro (letters, digits and _); rename it, or use json"
