"""The settings of turnout.yaml as types, with their defaults.

Each is checked by itself here; how they fit together is `checks.py`, and reading them `loading.py`.
"""

import ipaddress
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    model_validator,
)

from turnout.config import config_errors
from turnout.config.auth import AuthSettings, Located, RegistrySettings, Section, located
from turnout.plan.chains import Step
from turnout.plan.columns import ColumnType
from turnout.plan.joins import Duplicates, Join, parse_join
from turnout.plan.plan import Start, parse_topic


class Rows(StrEnum):
    """Whether every record of a source is a row, or the newest of each key."""

    ALL = "all"
    LATEST = "latest"


class Format(StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class LogFormat(StrEnum):
    """How the log of the process is written: for people, or a JSON object a line."""

    TEXT = "text"
    JSON = "json"


class Role(StrEnum):
    """What a token may do: look, or also swap."""

    VIEWER = "viewer"
    OPERATOR = "operator"


def _number(value: object) -> object:
    if isinstance(value, bool):  # Python's true is a 1, a file's is a mistake
        raise ValueError(f"must be a number, got {config_errors.describe(value)}")  # noqa: TRY004
    return value


def _text_of(pattern: str, rule: str) -> AfterValidator:
    """A validator that wants the whole text to match; `rule` says that to people."""
    compiled = re.compile(pattern, re.IGNORECASE)

    def check(text: str) -> str:
        if compiled.fullmatch(text):
            return text
        raise ValueError(f"must {rule}, got {config_errors.describe(text)}")

    return AfterValidator(check)


def _parsed_by(parse: Any) -> PlainValidator:
    """A validator for values that are written as text and have a parser."""

    def check(value: object) -> object:
        if isinstance(value, ColumnType | Join):
            return value
        if not isinstance(value, str):
            raise ValueError(f"must be text, got {config_errors.describe(value)}")  # noqa: TRY004
        return parse(value)

    return PlainValidator(check)


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        shown = config_errors.describe(text)
        raise ValueError(f"must look like 10.0.0.5 or 10.0.0.0/24, got {shown}") from None


def _several(value: object) -> object:
    """One name, or a list of names."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _properties(value: object) -> object:
    """Raw properties as text: `true` and `10` need no quotes there."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        return value
    scalar = bool | int | float
    return {name: config_errors.describe(item) if isinstance(item, scalar) else item for name, item in value.items()}


def _shared(text: str, info: ValidationInfo) -> str:
    """A path like any other, unless it is a URL."""
    return text if "://" in text else str(located(Path(text), info))


_ADDRESS = r"(\[[0-9a-f:.]+\]|[^\s,:\[\]]+):[0-9]{1,5}"
Addresses = Annotated[str, _text_of(rf"{_ADDRESS}(\s*,\s*{_ADDRESS})*", "look like host:9092 or host1:9092,host2:9092")]
_SITE = r"https?://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?"
Origin = Annotated[str, _text_of(_SITE, "look like https://app.example or http://localhost:4200, without a path")]
Network = Annotated[str, AfterValidator(_network)]
NonEmpty = Annotated[str, _text_of(r"(?s:.*\S.*)", "not be empty")]
SharedFolder = Annotated[NonEmpty, AfterValidator(_shared)]
Topic = Annotated[str, AfterValidator(parse_topic)]
_SIGNS = "be a topic name in which * stands for any signs and ? for one, such as users-*"
TopicPattern = Annotated[str, _text_of(r"[A-Za-z0-9._*?-]{1,249}", _SIGNS)]
Column = Annotated[ColumnType, _parsed_by(ColumnType.parse)]
JoinName = Annotated[Join, _parsed_by(parse_join)]
StartAt = Annotated[Start, PlainValidator(Start.parse)]
Names = Annotated[tuple[str, ...], BeforeValidator(_several)]
Whole = Annotated[int, BeforeValidator(_number)]
Seconds = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
MemorySize = Annotated[str, _text_of(r"[0-9]*\.?[0-9]+ ?[kmgt]i?b", "look like 2GB or 512MiB")]
# Not in repr: raw properties can hold secrets.
Properties = Annotated[dict[str, str], BeforeValidator(_properties), Field(repr=False)]


class KafkaSettings(Section):
    """One cluster: where it is and how to get in."""

    bootstrap_servers: Addresses = "localhost:9092"
    auth: AuthSettings | None = None
    properties: Properties = Field(default_factory=dict)
    librdkafka_properties: Properties = Field(default_factory=dict)

    def inheriting(self, base: "KafkaSettings") -> "KafkaSettings":
        """These settings, with those of `base` where the file gives none; raw properties belong to their `auth`."""
        own = self.model_fields_set
        given: dict[str, Any] = {} if "bootstrap_servers" in own else {"bootstrap_servers": base.bootstrap_servers}
        if "auth" not in own:
            names = ("auth", "properties", "librdkafka_properties")
            given |= {name: getattr(base, name) for name in names if name not in own}
        return self.model_copy(update=given)


class ControlSettings(Section):
    """Where control messages come from and outcomes go."""

    topic: Topic = "control"
    ack_topic: Topic | None = None
    topics: Annotated[tuple[TopicPattern, ...], BeforeValidator(_several)] = ()
    kafka: KafkaSettings | None = None


class SourceSettings(Section):
    """One topic and the table that shows it."""

    topic: Topic
    table: str
    key: str
    columns: dict[str, Column]
    format: Format = Format.JSON
    schema_file: Located | None = None
    message: NonEmpty | None = None
    rows: Rows = Rows.ALL
    max_rows: Annotated[int, BeforeValidator(_number), Field(ge=1)] | None = None
    start: StartAt | None = None


class OnSettings(Section):
    """The columns that a step joins by: one that is there by then, and one of its right side."""

    left: str
    right: str


class StepSettings(Section):
    """One join of a chain; what it does not say is as the view says."""

    right: str
    on: Annotated[OnSettings, BeforeValidator(lambda on: {"left": on, "right": on} if isinstance(on, str) else on)]
    join: JoinName | None = None
    duplicates: Duplicates | None = None


class ViewSettings(Section):
    """A table over sources: a join of those that share a key, a chain of joins, or somebody's own Spark SQL."""

    on: str = ""
    left: str | None = None
    right: Names = ()
    steps: tuple[StepSettings, ...] = ()
    join: JoinName = Join.LEFT
    duplicates: Duplicates = Duplicates.LATEST
    sources: Names = ()
    sql: Annotated[NonEmpty, AfterValidator(lambda text: text.strip().rstrip(";").rstrip())] | None = None
    columns: dict[str, Column] = Field(default_factory=dict)

    @property
    def read(self) -> tuple[str, ...]:
        """The sources that it is made of, the left one first."""
        rights = [step.right for step in self.steps] or self.right
        return self.sources if self.left is None else (self.left, *rights)

    @property
    def first_join(self) -> Join | None:
        """The join that messages change: of a chain that of the steps which name none of their own, or of its only
        step. None where there is no such join."""
        if self.sql is not None or (len(self.steps) > 1 and all(step.join is not None for step in self.steps)):
            return None
        return (self.steps[0].join if len(self.steps) == 1 else None) or self.join

    def chain_steps(self, join: Join) -> list[Step]:
        """The steps of a chain while the view's join is this one."""
        return [
            Step(
                step.right,
                step.on.left,
                step.on.right,
                join if step.join is None or len(self.steps) == 1 else step.join,
                step.duplicates or self.duplicates,
            )
            for step in self.steps
        ]


class SwapSettings(Section):
    """How long a build may take, and how long a replaced generation stays."""

    linger_seconds: Seconds = 8.0
    max_linger_generations: Whole = Field(2, ge=0)
    catch_up_timeout_seconds: Seconds = Field(600.0, gt=0)


class ServerSettings(Section):
    """Where viewers connect, how many, and how much of the server one client may have."""

    host: NonEmpty = "127.0.0.1"
    port: Whole = Field(10000, ge=0, le=65535)
    allowed_origins: tuple[Origin, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    max_connections: Whole = Field(1000, ge=1)
    max_connections_per_client: Whole = Field(500, ge=1)
    max_viewers: Whole = Field(500, ge=1)
    max_viewers_per_client: Whole = Field(100, ge=1)
    max_subscriptions_per_client: Whole = Field(1000, ge=1)
    max_reads: Whole = Field(16, ge=1)
    max_reads_per_client: Whole = Field(4, ge=1)
    query_timeout_seconds: Seconds = Field(30.0, gt=0)
    max_answer_megabytes: Whole = Field(64, ge=1)
    sql_memory_limit: MemorySize = "512MB"
    max_held_megabytes_per_client: Whole = Field(512, ge=1)
    max_download_megabytes_per_client: Whole = Field(4096, ge=1)

    @model_validator(mode="after")
    def _viewers_fit(self) -> Self:
        if self.max_viewers > self.max_connections:
            shown = f"max_viewers is {self.max_viewers}, more than max_connections ({self.max_connections})"
            raise ValueError(f"{shown}; raise the one or lower the other")
        return self


class TokenSettings(Section):
    """One token, here or in a file, and what its bearer may do."""

    name: NonEmpty
    role: Role
    token: SecretStr | None = None
    token_file: Located | None = None


class SqlAccess(StrEnum):
    """Who may send SELECTs of their own."""

    OPERATOR = "operator"
    VIEWER = "viewer"
    OFF = "off"


class AccessSettings(Section):
    """Who may connect, and what for."""

    tokens: tuple[TokenSettings, ...]
    # YAML reads a bare `off` as false.
    sql: Annotated[SqlAccess, BeforeValidator(lambda given: "off" if given is False else given)] = SqlAccess.OPERATOR


class SparkSettings(Section):
    master: NonEmpty = "local[*]"
    conf: Properties = Field(default_factory=dict)
    driver_memory: Annotated[str, _text_of(r"[1-9][0-9]*[kmgt]b?", "look like 2g or 512m")] = "1g"
    max_records_per_batch: Whole = Field(250_000, ge=1)
    ship_packages: bool = True
    shared_dir: SharedFolder | None = None


class StoreSettings(Section):
    memory_limit: MemorySize = "2GB"
    log_rows: Whole = Field(10_000, ge=1)
    control_rows: Whole = Field(10_000, ge=1)
    swap_rows: Whole = Field(10_000, ge=1)
    bad_rows: Whole = Field(100_000, ge=1)
    keep_days: Annotated[float, BeforeValidator(_number), Field(gt=0, le=36_500)] | None = None


class LogSettings(Section):
    format: LogFormat = LogFormat.TEXT


def default_sources() -> dict[str, Any]:
    """The sources of a file that has none, as a document."""
    users = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
    accounts = {"userId": "string", "accountType": "string", "balance": "double"}
    return {
        "users": {"topic": "users", "table": "users_ui", "key": "userId", "columns": users},
        "accounts": {"topic": "accounts", "table": "accounts_ui", "key": "userId", "columns": accounts},
    }


def default_views() -> dict[str, Any]:
    return {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}}


class Settings(Section):
    """The whole configuration; `Settings()` is the default one."""

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    control: ControlSettings = Field(default_factory=ControlSettings)
    schema_registry: RegistrySettings | None = None
    sources: dict[str, SourceSettings] = Field(default_factory=default_sources, validate_default=True)
    views: dict[str, ViewSettings] = Field(default_factory=default_views, validate_default=True)
    start: StartAt = Field(default_factory=Start)
    dead_letter_topic: Topic | None = None
    swap: SwapSettings = Field(default_factory=SwapSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    access: AccessSettings | None = None
    spark: SparkSettings = Field(default_factory=SparkSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    data_dir: Located = Field(Path("turnout-data"), validate_default=True)
    _secret_variables: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def control_kafka(self) -> KafkaSettings:
        """The cluster of the control topic: that of the data, unless `control.kafka` names another."""
        return self.kafka if self.control.kafka is None else self.control.kafka.inheriting(self.kafka)

    @property
    def joined_views(self) -> tuple[str, ...]:
        """The views that have a join which messages can change."""
        return tuple(name for name, view in self.views.items() if view.first_join is not None)

    @property
    def secret_variables(self) -> frozenset[str]:
        """The environment variables that secrets came from; programs that Turnout starts must not see them."""
        return self._secret_variables
