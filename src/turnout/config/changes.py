"""What differs between two configurations, and what each difference needs to take effect.

The table here is the only place that says so. Everything is pure; `swap/applies.py` acts on it.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, SecretStr

from turnout.config.config_errors import SettingPath, is_secret, place
from turnout.config.secrets import REDACTED
from turnout.config.settings import Settings
from turnout.plan.answers import Answer
from turnout.plan.plan import Start
from turnout_client.column_types import ColumnType


class Needs(StrEnum):
    """What a changed setting needs: a new generation, a restart of the process, or nothing."""

    GENERATION = "generation"
    RESTART = "restart"
    NOTHING = "nothing"


_SETTINGS = {
    # Clients of Kafka and of the registry are made at the start, and live as long as the process.
    Needs.RESTART: "kafka control.topic control.ack_topic control.kafka schema_registry dead_letter_topic "
    # The address, and what the web server is made with; thread pools have their size from their start.
    "server.host server.port server.trusted_proxies server.allowed_origins server.max_reads access "
    "spark store.memory_limit log data_dir",
    # Tables, and what fills them.
    Needs.GENERATION: "sources views start",
    # Limits are looked at each time; a sink or an alert starts, stops or starts anew.
    Needs.NOTHING: "sinks alerts control.topics swap "
    "server.embed_origins server.max_connections server.max_connections_per_client server.max_viewers "
    "server.max_viewers_per_client server.max_subscriptions_per_client server.max_reads_per_client "
    "server.query_timeout_seconds server.max_answer_megabytes server.sql_memory_limit "
    "server.max_held_megabytes_per_client server.max_download_megabytes_per_client "
    "store.log_rows store.control_rows store.swap_rows store.bad_rows store.keep_days",
}
NEEDS: Mapping[str, Needs] = {name: needs for needs, names in _SETTINGS.items() for name in names.split()}
"""What each setting needs: itself, or the section that it is in."""

SECTIONS = ("sources", "views", "start", "sinks")
"""The sections that are kept with a generation: a rollback brings them back, sinks with their tables."""

# Their order is that of tables, of columns, and of the fields of messages.
_ORDERED = ("sources", "views", "columns")


class SettingChange(Answer):
    """A setting that differs; values as people write them, secrets as `***`, null where there is none."""

    path: str
    before: Any = Field(validation_alias="from", serialization_alias="from")
    after: Any = Field(validation_alias="to", serialization_alias="to")
    needs: Needs
    """What it takes to put it in force."""

    def __str__(self) -> str:
        return f"{self.path}: {_brief(self.before)} -> {_brief(self.after)}"


def as_json(changes: Iterable[SettingChange]) -> list[dict[str, Any]]:
    return [change.model_dump(mode="json") for change in changes]


def needs_of(path: SettingPath) -> Needs:
    """What a setting needs, by its own entry or that of the nearest section above it."""
    for length in range(len(path), 0, -1):
        if (needs := NEEDS.get(".".join(map(str, path[:length])))) is not None:
            return needs
    raise KeyError(f"{place(path)} is not in the table of what settings need")


def compare(old: Settings, new: Settings) -> tuple[SettingChange, ...]:
    """What `new` has other than `old`, in the order of the settings."""
    return tuple(
        SettingChange(path=place(path), before=_value(before, path), after=_value(after, path), needs=needs_of(path))
        for path, before, after in _differences(old, new, ())
    )


def _differences(old: Any, new: Any, path: SettingPath) -> Iterator[tuple[SettingPath, Any, Any]]:
    if isinstance(old, BaseModel) and type(old) is type(new):
        for name in type(old).model_fields:
            yield from _differences(getattr(old, name), getattr(new, name), (*path, name))
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(old.get(name), new.get(name), (*path, name))
        both = [[name for name in one if name in old and name in new] for one in (old, new)]
        if path[-1] in _ORDERED and both[0] != both[1]:
            yield path, tuple(old), tuple(new)
    elif isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new) and _are_models(old):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, (*path, number))
    elif old != new:
        yield path, old, new


def _are_models(items: Iterable[object]) -> bool:
    return all(isinstance(item, BaseModel) for item in items)


def _value(value: Any, path: SettingPath) -> Any:
    """A value as JSON, without secrets."""
    if value is None:
        return None
    if isinstance(value, SecretStr) or is_secret(Settings, path):
        return REDACTED
    if isinstance(value, BaseModel):
        # Only what is other than the default: a new source is then as it was written.
        given = {name: getattr(value, name) for name in type(value).model_fields if name in value.model_fields_set}
        return {name: _value(held, (*path, name)) for name, held in given.items() if held is not None}
    if isinstance(value, Mapping):
        return {name: _value(held, (*path, name)) for name, held in value.items()}
    if isinstance(value, tuple | list):
        return [_value(held, (*path, number)) for number, held in enumerate(value)]
    if isinstance(value, Start):
        return value.to_json()
    if isinstance(value, ColumnType):
        return value.name
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _brief(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping | list):
        return f"({', '.join(map(str, value))})"
    return str(value).lower() if isinstance(value, bool) else str(value)
