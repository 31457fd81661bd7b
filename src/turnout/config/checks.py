"""How the settings of a configuration must fit together: names, keys, views, topics and security.

Each check gives the path of the setting at fault, what is wrong and what to do. A setting that is wrong by itself has
its fault already: a source or a view comes here without it, any other section as None.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from turnout.config.auth import RegistrySettings, auth_faults, registry_faults, rendered_names
from turnout.config.config_errors import Faults, SettingPath
from turnout.config.output_checks import alert_faults, sink_faults
from turnout.config.server import AccessSettings, oidc_faults
from turnout.config.settings import (
    AlertSettings,
    ControlSettings,
    Format,
    KafkaSettings,
    SinkSettings,
    SourceSettings,
    ViewSettings,
)
from turnout.config.topic_rules import one_cluster, reserved
from turnout.plan.joins import Step, key_steps, right_names, view_columns
from turnout.plan.nearest import did_you_mean
from turnout.plan.tables import RESERVED
from turnout_client.column_types import ColumnType

TAKEN_NAMES = ("topic", "configuration")
"""What the history says of requests that no client sent: no client and no token has these names."""

ANY_TYPE = replace(ColumnType.parse("string"))
"""In the place of a column type that is wrong by itself: it differs from none."""

_ANY_TOPIC = "-"
_TOKEN = re.compile(r"[!-~]{16,512}")
_VIEW_KINDS = {
    "steps": (("left",), ("on", "right", "sources", "columns", "sql")),
    "sql": (("on", "sources", "columns"), ("left", "right", "join", "duplicates", "max_rows_per_key")),
    "a join of left and right": (("on", "left", "right"), ("sources", "columns")),
}
"""For each kind of view the settings that it needs, and those that do not go with it."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_M = TypeVar("_M", bound=BaseModel)


class ValidParts:
    """The parts of a document that are valid by themselves: all faults are reported at once.

    A source or a view with a wrong setting is here without it. It is None where it cannot be without it; other sections
    are None where something in them is wrong.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.wrong: set[SettingPath] = set()
        """Settings that were left out because they are wrong by themselves."""
        self.kafka = _valid(KafkaSettings, document.get("kafka", {}))
        self.control = _valid(ControlSettings, document.get("control", {}))
        self.access = _valid(AccessSettings, document.get("access"))
        self.has_registry = document.get("schema_registry") is not None
        self.schema_registry = _valid(RegistrySettings, document.get("schema_registry"))
        self.sources = self._each("sources", SourceSettings, document["sources"])
        self.views = self._each("views", ViewSettings, document["views"])
        self.sinks = self._each("sinks", SinkSettings, document.get("sinks", {}))
        self.alerts = self._each("alerts", AlertSettings, document.get("alerts", {}))
        self.dead_letter_topic = document.get("dead_letter_topic")
        self.no_source = document["sources"] == {}

    def _each(self, section: str, model: type[_M], items: object) -> dict[str, _M | None]:
        if not isinstance(items, Mapping):
            return {}
        return {str(name): self._mended((section, str(name)), model, value) for name, value in items.items()}

    def _mended(self, path: SettingPath, model: type[_M], value: object) -> _M | None:
        """The section without its settings that are wrong by themselves; None where it cannot be without them."""
        try:
            return model.model_validate(value)
        except ValidationError as error:
            places = [detail["loc"] for detail in error.errors(include_url=False, include_input=False)]
        self.wrong |= {(*path, *place) for place in places}
        for place in places:
            value = _without(value, place)
        return _valid(model, value)


def _without(node: Any, path: SettingPath) -> Any:
    """The section without one setting; a topic and a type, which a source must have, become any."""
    if not isinstance(node, Mapping) or not path or path[0] not in node:
        return node
    rest = {name: value for name, value in node.items() if name != path[0]}
    if path[:1] == ("columns",) and len(path) > 1:
        return rest | {"columns": {name: ANY_TYPE if name == path[1] else one for name, one in node["columns"].items()}}
    return rest | {"topic": _ANY_TOPIC} if path == ("topic",) else rest


def _valid(model: type[_M], value: object) -> _M | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None


def cross_faults(parts: ValidParts) -> Faults:
    """The faults between settings; none of a setting that is wrong by itself."""
    return ((path, text) for path, text in _cross_faults(parts) if path not in parts.wrong)


def _cross_faults(parts: ValidParts) -> Faults:
    sources, views = parts.sources, parts.views
    if parts.no_source:
        yield ("sources",), "there is none; describe at least one"
    yield from _named("source", [(("sources", name), name) for name in sources])
    for name, source in sources.items():
        if source is not None:
            yield from _source(("sources", name), source)
            if ("sources", name, "format") not in parts.wrong:
                yield from _format(("sources", name), source, has_registry=parts.has_registry)
    tables: list[tuple[SettingPath, str]] = [(("sources", name, "table"), s.table) for name, s in sources.items() if s]
    tables += [(("views", name), name) for name in views]
    yield from _named("table", tables)
    for path, name in tables:
        if name.lower() in RESERVED:
            yield path, f"'{name}' is a name of Turnout itself (taken: {', '.join(RESERVED)}); choose another"
    # What kind of view it is says which settings it needs.
    unclear = {path[1] for path in parts.wrong if path[0] == "views" and path[2:3] in (("sql",), ("steps",))}
    for name, view in views.items():
        if view is not None and name not in unclear:
            yield from _view(("views", name), view, sources)
    yield from _topics(parts)
    yield from _named("sink", [(("sinks", name), name) for name in parts.sinks])
    yield from _named("alert", [(("alerts", name), name) for name in parts.alerts])
    yield from _outputs(parts)
    if parts.kafka is not None:
        yield from _kafka(("kafka",), parts.kafka)
    if parts.control is not None and parts.control.kafka is not None:
        yield from _kafka(("control", "kafka"), parts.control.kafka)
    if parts.schema_registry is not None:
        yield from registry_faults(("schema_registry",), parts.schema_registry)
    if parts.access is not None:
        yield from _access(parts.access)


def _named(kind: str, names: Sequence[tuple[SettingPath, str]]) -> Faults:
    """Names must be plain words, and differ by more than case: SQL does not tell `Users` from `users`."""
    first: dict[str, SettingPath] = {}
    for path, name in names:
        if not _NAME.fullmatch(name):
            article = "an" if kind == "alert" else "a"
            rule = "a letter, then letters, digits and _"
            yield path, f"{name!r} is not {article} {kind} name ({rule}); choose another"
        elif name.lower() in first:
            other = ".".join(map(str, first[name.lower()]))
            yield path, f"the {kind} name '{name}' is used by {other} already (case does not matter); choose another"
        first.setdefault(name.lower(), path)


def _columns(path: SettingPath, columns: Mapping[str, object]) -> Faults:
    seen: dict[str, str] = {}
    for column in columns:
        if not column.strip():
            yield (*path, "columns"), f"the column name {column!r} is empty; give it a name"
        elif column.startswith("_"):
            yield (*path, "columns", column), "a column name must not start with '_' (Turnout's own do); rename it"
        elif column.lower() in seen:
            other = seen[column.lower()]
            yield (*path, "columns", column), f"is the same as '{other}' (case does not matter); rename one"
        seen.setdefault(column.lower(), column)


def _source(path: SettingPath, source: SourceSettings) -> Faults:
    columns = source.columns
    yield from _columns(path, columns)
    if not columns:
        yield (*path, "columns"), "there is none; describe at least one, such as {id: string}"
    elif source.key not in columns:
        fix = did_you_mean(source.key, list(columns), "fix the name or add the column")
        yield (*path, "key"), f"no column '{source.key}' (has: {', '.join(columns)}); {fix}"
    elif not columns[source.key].exact:
        shown = f"column '{source.key}' is {columns[source.key]}, which is not exact enough for a key"
        yield (*path, "key"), f"{shown}; use string, int64 or decimal(p,s)"
    if source.max_rows is not None and source.rows == "latest":
        yield (*path, "max_rows"), "works only with rows: all, got rows: latest; remove one of them"


def _format(path: SettingPath, source: SourceSettings, *, has_registry: bool) -> Faults:
    """A format with schemas needs a registry or a file."""
    if source.format is Format.JSON:
        if source.schema_file is not None:
            yield (*path, "schema_file"), "has no effect with format: json; set format: avro or protobuf, or remove it"
    elif source.schema_file is None and not has_registry:
        remedy = "add schema_registry: {url: ...}, or schema_file here"
        yield (*path, "format"), f"{source.format} needs schemas, and there is none; {remedy}"
    if source.message is not None and (source.format is not Format.PROTOBUF or source.schema_file is None):
        yield (*path, "message"), "works only with format: protobuf and schema_file; remove it"


def _view(path: SettingPath, view: ViewSettings, sources: Mapping[str, SourceSettings | None]) -> Faults:
    """The faults of a view; what follows from another fault is not told."""
    chain = bool(view.steps) or "steps" in view.model_fields_set
    kind = "steps" if chain else "sql" if view.sql is not None else "a join of left and right"
    needed, others = _VIEW_KINDS[kind]
    for name in needed:
        if not getattr(view, name):
            yield (*path, name), "is missing; add it"
    for name in others:
        if name in view.model_fields_set:
            yield (*path, name), f"does not go with {kind}; remove it"
    if chain and not view.steps:
        yield (*path, "steps"), "there is none; add one, such as {right: accounts, on: userId}"
    wrong = list(_read_sources(path, view, sources))
    yield from wrong
    found = {name: source for name in view.read if (source := sources.get(name))}
    if not chain and view.on and len(set(view.read)) == len(view.read):
        yield from _keys(path, view, found)
    elif view.steps and view.left and not wrong and len(found) == len(view.read):
        yield from _steps(path, view, found)


def _read_sources(path: SettingPath, view: ViewSettings, sources: Mapping[str, SourceSettings | None]) -> Faults:
    """The faults of the names of sources."""
    seen: set[str] = set()
    for number, name in enumerate(view.read):
        first: SettingPath = ("sources",) if view.left is None else ("left",)
        later: SettingPath = ("steps", number - 1, "right") if view.steps else ("right",)
        place = (*path, *(later if number and view.left is not None else first))
        if sources and name not in sources:
            yield place, f"no source '{name}' (has: {', '.join(sources)}); {did_you_mean(name, list(sources))}"
        if name in seen:
            other = "is the same source as left" if name == view.left else "is named twice"
            yield place, f"{other}, '{name}'; choose another"
        seen.add(name)


def _keys(path: SettingPath, view: ViewSettings, sources: Mapping[str, SourceSettings]) -> Faults:
    """The faults of the key column of a view's sources, then those of its columns."""
    on, keyed = view.on, 0
    for name, source in sources.items():
        if on not in source.columns:
            has = ", ".join(source.columns)
            yield (*path, "on"), f"source '{name}' has no column '{on}' (has: {has}); fix the name or add the column"
        elif on != source.key:
            yield (*path, "on"), f"'{on}' is not the key of source '{name}' (key: {source.key}); join on the key"
        else:
            keyed += 1
    if sources and keyed == len(view.read):
        yield from _types(path, on, sources)
        yield from _result_columns(path, view, sources)


def _types(path: SettingPath, on: str, sources: Mapping[str, SourceSettings]) -> Faults:
    """Keys of different types are never equal."""
    types = {name: source.columns[on] for name, source in sources.items()}
    first, *others = types
    for name in others:
        if _differ(types[name], types[first]):
            shown = f"{types[first]} in '{first}' and {types[name]} in '{name}'"
            yield (*path, "on"), f"column '{on}' is {shown}; give both the same type"


def _result_columns(path: SettingPath, view: ViewSettings, sources: Mapping[str, SourceSettings]) -> Faults:
    if view.sql is not None:
        kind = next(iter(sources.values())).columns[view.on]
        if view.columns:
            yield from _columns(path, view.columns)
        if view.columns and view.on not in view.columns:
            yield (*path, "columns"), f"no column '{view.on}', the key of every row; select it and add it"
        elif view.columns and _differ(view.columns[view.on], kind):
            yield (*path, "columns", view.on), f"is {view.columns[view.on]}, and {kind} in the sources; make it {kind}"
        return
    columns = {name: tuple(sources[name].columns) for name in view.read}
    yield from _doubled(path, columns, key_steps(view.read[1:], view.on, view.join))


def _doubled(path: SettingPath, columns: Mapping[str, Sequence[str]], steps: Sequence[Step]) -> Faults:
    """The columns that a join of sources would have twice."""
    for column, count in Counter(name.lower() for name in view_columns(columns, steps)).items():
        if count > 1:
            among = " or ".join(f"'{name}'" for name in columns)
            yield path, f"would have two columns '{column}'; rename a column of {among}"


def _differ(one: ColumnType, other: ColumnType) -> bool:
    """Whether two types that are known are not the same."""
    return one is not ANY_TYPE and other is not ANY_TYPE and one != other


def _steps(path: SettingPath, view: ViewSettings, sources: Mapping[str, SourceSettings]) -> Faults:
    steps = view.chain_steps(view.first_join or view.join)
    columns = {name: tuple(source.columns) for name, source in sources.items()}
    names = right_names(columns, steps)
    there: dict[str, ColumnType] = dict(sources[view.read[0]].columns)
    hidden: dict[str, int] = {}
    for number, (step, shown) in enumerate(zip(steps, names, strict=True)):
        place: SettingPath = (*path, "steps", number, "on")
        right = sources[step.right]
        yield from _step_columns(place, step, there, hidden, right)
        added = {name: right.columns[column] for column, name in shown.items()}
        there |= added
        hidden |= dict.fromkeys(added if step.join.hides else (), number)
    yield from _doubled(path, columns, steps)


def _step_columns(
    place: SettingPath, step: Step, there: Mapping[str, ColumnType], hidden: Mapping[str, int], right: SourceSettings
) -> Faults:
    """The faults of the columns that meet in one step."""
    wrong = False
    if step.left_on not in there:
        has = ", ".join(there)
        fix = did_you_mean(step.left_on, list(there), "fix the name, or put the step that adds it before this one")
        yield place, f"the left side has no column '{step.left_on}' at this step (has: {has}); {fix}"
        wrong = True
    elif step.left_on in hidden:
        shown = f"'{step.left_on}' comes from steps[{hidden[step.left_on]}], whose join shows no right column"
        yield place, f"{shown}; give that step another join"
    if step.right_on not in right.columns:
        fix = did_you_mean(step.right_on, list(right.columns), "fix the name, or write {left: ..., right: ...}")
        yield place, f"source '{step.right}' has no column '{step.right_on}' (has: {', '.join(right.columns)}); {fix}"
        wrong = True
    if wrong:
        return
    kind, other = there[step.left_on], right.columns[step.right_on]
    if _differ(kind, other):
        shown = f"'{step.left_on}' is {kind} and '{step.right_on}' of '{step.right}' is {other}"
        yield place, f"{shown}; give both the same type"
    elif not kind.exact:
        shown = f"column '{step.left_on}' is {kind}, which is not exact enough to join by"
        yield place, f"{shown}; use string, int64 or decimal(p,s)"


def _topics(parts: ValidParts) -> Faults:
    """What Turnout writes must not be what it reads: it would feed itself."""
    read, control = _read_topics(parts), parts.control
    # A topic that is written and read is a fault of the setting that writes it.
    taken = {topic: "is the control topic" for topic, setting in read.items() if setting == "control.topic"}
    for name, source in parts.sources.items():
        if source is not None and (reason := reserved(source.topic, taken)):
            yield ("sources", name, "topic"), f"'{source.topic}' {reason}; choose another topic"
    if control is not None:
        if control.ack_topic == control.topic:
            yield ("control", "ack_topic"), f"is the control topic '{control.topic}' itself; choose another topic"
        elif control.ack_topic in read and one_cluster(parts.kafka, control.kafka):
            yield ("control", "ack_topic"), f"is read as {read[control.ack_topic]} too; choose another topic"
    if isinstance(parts.dead_letter_topic, str) and parts.dead_letter_topic in read:
        yield ("dead_letter_topic",), f"is read as {read[parts.dead_letter_topic]} too; choose another topic"


def _read_topics(parts: ValidParts) -> dict[str, str]:
    """The topics of the data's cluster that Turnout reads, and the setting that names each."""
    read = {source.topic: f"sources.{name}.topic" for name, source in parts.sources.items() if source}
    control = parts.control
    return read | ({control.topic: "control.topic"} if control and one_cluster(parts.kafka, control.kafka) else {})


def _outputs(parts: ValidParts) -> Faults:
    """The faults of sinks and alerts."""
    sources, control = parts.sources, parts.control
    tables = {source.table: list(source.columns) for source in sources.values() if source}
    for name, view in parts.views.items():
        read = [source for one in (view.read if view else ()) if (source := sources.get(one))]
        tables[name] = [*(view.columns if view else ()), *(column for source in read for column in source.columns)]
    used = _read_topics(parts)
    if control is not None and control.ack_topic and one_cluster(parts.kafka, control.kafka):
        used[control.ack_topic] = "control.ack_topic"
    if isinstance(parts.dead_letter_topic, str):
        used[parts.dead_letter_topic] = "dead_letter_topic"
    sinks = {name: sink for name, sink in parts.sinks.items() if sink}
    yield from sink_faults(sinks, tables, used, has_registry=parts.has_registry)
    alerts = {name: alert for name, alert in parts.alerts.items() if alert}
    used |= {sink.topic: f"sinks.{name}.topic" for name, sink in sinks.items()}
    yield from alert_faults(alerts, tables, used, parts.wrong)


def _kafka(path: SettingPath, kafka: KafkaSettings) -> Faults:
    for name in ("properties", "librdkafka_properties"):
        if "bootstrap.servers" in getattr(kafka, name):
            yield (*path, name, "bootstrap.servers"), "has its own setting; use bootstrap_servers"
    if kafka.auth is None:
        return
    for name in rendered_names(kafka.auth):
        if name in kafka.properties:
            yield (*path, "properties", name), "is already set by auth; remove one of them"
    yield from auth_faults((*path, "auth"), kafka.auth)


def _access(access: AccessSettings) -> Faults:
    if not access.tokens and access.oidc is None:
        yield ("access", "tokens"), "there is none, so nobody could connect; add one or remove access"
    if access.oidc is not None:
        yield from oidc_faults(("access", "oidc"), access.oidc)
    names: set[str] = set()
    values: list[tuple[SettingPath, str]] = []
    for place, token in enumerate(access.tokens):
        path: SettingPath = ("access", "tokens", place)
        if token.name in names:
            yield (*path, "name"), f"'{token.name}' already exists; choose another name"
        elif token.name in TAKEN_NAMES:
            yield (*path, "name"), f"'{token.name}' means something else in the history; choose another name"
        names.add(token.name)
        if token.token is None and token.token_file is None:
            yield (*path, "token"), "is missing; add it, or token_file"
        elif token.token is not None and token.token_file is not None:
            yield (*path, "token_file"), "is given beside token; remove one of them"
        elif token.token is not None:
            values.append(((*path, "token"), token.token.get_secret_value()))
    yield from token_faults(values)


def token_faults(tokens: Iterable[tuple[SettingPath, str]]) -> Faults:
    """The faults of tokens, which show none of them."""
    seen: set[str] = set()
    for path, token in tokens:
        if not _TOKEN.fullmatch(token):
            rule = "must be 16 to 512 visible ASCII characters, without spaces"
            yield path, f"{rule}; `openssl rand -hex 32` makes a good one"
        elif token in seen:
            yield path, "is already the token of another name; give each name its own"
        seen.add(token)
