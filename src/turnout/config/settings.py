"""The settings of turnout.yaml as types, with their defaults.

The text below a setting is its meaning in docs/reference/configuration.md, which `make reference` writes; a default
that is no value ends it. Kinds of values are `values.py`, how settings fit together is `checks.py`, and reading them
`loading.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr

from turnout.config.auth import AuthSettings, RegistrySettings
from turnout.config.server import AccessSettings, ServerSettings
from turnout.config.values import (
    Addresses,
    Column,
    JoinName,
    Located,
    MemorySize,
    Names,
    NonEmpty,
    Percent,
    Properties,
    Seconds,
    Section,
    SharedFolder,
    StartAt,
    Topic,
    TopicPattern,
    Whole,
    number,
    several,
    text_of,
)
from turnout.plan.guards import GuardLimits
from turnout.plan.joins import Duplicates, Join, Step
from turnout.plan.plan import Start


class KeptRows(StrEnum):
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


class KafkaSettings(Section):
    """One cluster: where it is and how to get in."""

    bootstrap_servers: Addresses = "localhost:9092"
    """The addresses of the brokers: `host:port`, several separated by commas."""
    auth: AuthSettings | None = None
    """Security of the connection; without it, `PLAINTEXT`."""
    properties: Properties = Field(default_factory=dict)
    """Further client properties by their Java names; see docs/reference/configuration.md#kafka-properties."""
    librdkafka_properties: Properties = Field(default_factory=dict)
    """Further client properties by librdkafka's names, for librdkafka alone."""
    max_record_megabytes: int = Field(default=16, ge=1, le=64)
    """The largest value of a record, unpacked. A larger one, and a batch that cannot be unpacked, is a row of
    `bad_records`."""

    def inheriting(self, base: "KafkaSettings") -> "KafkaSettings":
        """These settings, with those of `base` where the file gives none; raw properties belong to their `auth`."""
        own = self.model_fields_set
        given: dict[str, Any] = {} if "bootstrap_servers" in own else {"bootstrap_servers": base.bootstrap_servers}
        if "auth" not in own:
            names = ("auth", "properties", "librdkafka_properties")
            given |= {name: getattr(base, name) for name in names if name not in own}
        return self.model_copy(update=given)


class ControlSettings(Section):
    """The topics of control messages and of their outcomes."""

    topic: Topic = "control"
    """The topic of control messages; always read from its earliest record."""
    ack_topic: Topic | None = None
    """The topic that gets the outcome of each control message."""
    topics: Annotated[tuple[TopicPattern, ...], BeforeValidator(several)] = ()
    """Patterns (`*` any characters, `?` one) of topics that messages may name, besides those of the file; without it,
    all. In any case no source may read the control topic, `control.ack_topic`, `dead_letter_topic`, the topic of a sink
    or an alert, or a topic whose name begins with `__`. This limits messages, not applied files. Default: none."""
    kafka: KafkaSettings | None = None
    """The cluster of the control topic, or its credentials, where they differ. Default: as `kafka`."""


class SourceSettings(Section):
    """One topic and the table that shows it."""

    topic: Topic
    """The topic at the start; control messages change it by the field `NAMETopic`."""
    table: str
    """The table that shows it."""
    key: str
    """The column that views join on, unless they have `steps`; not `float` or `double`."""
    columns: dict[str, Column]
    """`column: type`; types are KNOWN_TYPES (docs/reference/columns.md); no name starts with `_`."""
    format: Format = Format.JSON
    """What the values are: `json`, `avro` or `protobuf`; see docs/how-to/formats.md."""
    schema_file: Located | None = None
    """A file with the schema of records that carry no schema id: `.avsc`, or `.proto`."""
    message: NonEmpty | None = None
    """Which message of a `.proto` file the records are. Default: the first."""
    rows: KeptRows = KeptRows.ALL
    """`all`: every record is a row; `latest`: the newest record of each key is."""
    max_rows: Annotated[int, BeforeValidator(number), Field(ge=1)] | None = None
    """With `rows: all`: how many rows are kept, the newest."""
    start: StartAt | None = None
    """Where Turnout starts to read this source. Default: as `start`."""


class OnSettings(Section):
    """The columns that a step joins by: one that is there by then, and one of its right side."""

    left: str
    """A column that the left side has at this step; `on: userId` is short for the same name on both sides."""
    right: str
    """The column of the right source that it is compared with, of the same type; it need not be the key."""


class StepSettings(Section):
    """One join of a chain; what it does not say is as the view says."""

    right: str
    """The source that this step adds; each source once."""
    on: Annotated[OnSettings, BeforeValidator(lambda on: {"left": on, "right": on} if isinstance(on, str) else on)]
    join: JoinName | None = None
    """The join of this step, which control messages then do not change, unless it is the only step. Default: as
    `views.NAME.join`."""
    duplicates: Duplicates | None = None
    """Which right rows to take of several with one value in that column: the newest (`latest`) or `all`. Default: as
    `views.NAME.duplicates`."""


MAX_ROWS_PER_KEY = 100_000


class ViewSettings(Section):
    """A table over sources: a join of those that share a key, a chain of joins, or somebody's own Spark SQL."""

    on: str = ""
    """The key column of all its sources, of one type. Default: required, unless there are `steps`."""
    left: str | None = None
    """The source that comes first. Default: required, unless there is `sql`."""
    right: Names = ()
    """Another source, or a list of sources that are joined one after the other. Default: required, unless there are
    `steps` or `sql`."""
    steps: tuple[StepSettings, ...] = ()
    """Instead of `right` and `on`: joins by different columns, as a list of `{right: users, on: userId}`; see
    docs/how-to/chains.md. Default: none."""
    join: JoinName = Join.LEFT
    """KNOWN_JOINS (docs/reference/control.md#joins); control messages change it by `joinType`, or `NAMEJoinType`."""
    duplicates: Duplicates = Duplicates.LATEST
    """Which right rows to take of several with one key: the newest (`latest`) or `all`; `inner` takes all."""
    max_rows_per_key: Annotated[int, BeforeValidator(number), Field(ge=1)] = MAX_ROWS_PER_KEY
    """Where rows of both sides are paired: a key that would have more rows is left out of the view until it has fewer;
    see docs/how-to/views.md. Not with `sql`."""
    sources: Names = ()
    """The sources that it reads. Default: required with `sql`."""
    sql: Annotated[NonEmpty, AfterValidator(lambda text: text.strip().rstrip(";").rstrip())] | None = None
    """Instead of a join: your own Spark SQL over `sources`, whose rows belong to one key each; see
    docs/how-to/views.md."""
    columns: dict[str, Column] = Field(default_factory=dict)
    """`column: type` of what it selects, the key among them. Default: required with `sql`."""

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


class Delivery(StrEnum):
    """Whether a sink writes in Kafka's transactions."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class SinkSettings(Section):
    """A table whose changes are written to a topic; see docs/how-to/sinks.md."""

    table: str
    """The table of a source or a view."""
    topic: Topic
    """The topic, which nothing else of the file may use; best with `cleanup.policy=compact`."""
    format: Format = Format.JSON
    """What the values are: `json`, or `avro` with the schema registry of the file."""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    """`exactly_once` in Kafka's transactions, or `at_least_once` without them."""
    max_waiting_rows: Whole = Field(200_000, ge=1)
    """How many changed rows are kept for a sink that is behind; beyond that, it writes the difference between topic and
    table."""


class TargetSettings(Section):
    """Where the events of an alert go: one of a webhook, a topic and the log."""

    webhook: SecretStr | None = None
    """The address that gets events by POST, as `https://...`; it is treated as a secret."""
    headers: Properties = Field(default_factory=dict)
    """Further headers of the webhook's requests, such as `{Authorization: "${HOOK_TOKEN}"}`."""
    private: bool = False
    """Whether the webhook may be `http:`, and have a loopback, private or link-local address."""
    topic: Topic | None = None
    """The topic that gets events, exactly once. Alerts can share it; no source, sink or control may use it."""
    log: bool = False
    """Whether events are lines of the log and of `orchestrator_logs`; `to: log` is short for it."""

    @property
    def described(self) -> str:
        """The target for people, without its secrets."""
        if self.webhook is not None:
            return f"webhook {urlsplit(self.webhook.get_secret_value()).hostname}"
        return "log" if self.topic is None else f"topic {self.topic}"


class AlertSettings(Section):
    """Rows of a table that are told when they come to fulfil a condition, and when they no longer do."""

    table: str
    """The table of a source or a view."""
    where: NonEmpty
    """The condition, as filters are written: `balance > 1000000, accountType = gold`."""
    to: Annotated[TargetSettings, BeforeValidator(lambda to: {"log": True} if to == "log" else to)]
    min_seconds: Seconds = 0.0
    """The least time between two deliveries; events in between are sent together."""


class OnBreak(StrEnum):
    """What becomes of a generation that breaks a guard."""

    REJECT = "reject"
    REVIEW = "review"


class GuardSettings(Section):
    """What a new generation must show, compared with what is shown; see docs/how-to/review.md#guards."""

    min_rows: Percent | None = None
    """The fewest rows that each view must have, as a share of its current rows, such as `50%`."""
    min_matched: Percent | None = None
    """The smallest share of left rows that must match in each view, relative to the current share."""
    max_bad: Percent | None = None
    """The largest share of bad records among those that the new generation has read."""
    on_break: OnBreak = OnBreak.REJECT
    """`reject` removes a generation that breaks a guard, `review` makes it a candidate."""
    watch: bool = False
    """Whether the guards are checked again when the linger time ends; a broken guard rolls back."""

    @property
    def limits(self) -> GuardLimits:
        given = {name: getattr(self, name) for name in ("min_rows", "min_matched", "max_bad")}
        return GuardLimits(**{name: Fraction(share[:-1]) / 100 for name, share in given.items() if share is not None})


class SwapSettings(Section):
    """How long a build may take, and how long a replaced generation stays."""

    linger_seconds: Seconds = 8.0
    """How long a replaced generation stays ready for an immediate rollback."""
    max_linger_generations: Whole = Field(2, ge=0)
    """How many replaced generations stay at most."""
    catch_up_timeout_seconds: Seconds = Field(600.0, gt=0)
    """How long a new generation may take to catch up before the swap fails."""
    candidate_seconds: Seconds = Field(3600.0, gt=0, le=31_536_000)
    """How long a candidate waits to be published before it is discarded; see docs/how-to/review.md."""
    guards: GuardSettings | None = None
    """What a new generation must fulfil before it is published; without it, nothing is checked."""


class SparkSettings(Section):
    """The Spark that Turnout runs on, and its settings."""

    master: NonEmpty = "local[*]"
    """Any Spark master: `local[*]`, `spark://host:7077`, `yarn`, `k8s://https://host:443`; see
    docs/how-to/cluster.md."""
    conf: Properties = Field(default_factory=dict)
    """Further Spark properties."""
    driver_memory: Annotated[str, text_of(r"[1-9][0-9]*[kmgt]b?", "look like 2g or 512m")] = "1g"
    """Memory of Spark's driver."""
    max_records_per_batch: Whole = Field(250_000, ge=1)
    """The most records that one batch reads."""
    ship_packages: bool = True
    """On a cluster: send the Python packages that executors need; `false` where their Python has pyarrow and numpy,
    and what the formats of the sources need."""
    shared_dir: SharedFolder | None = None
    """On a cluster: a path mounted on all hosts, or a URL that Spark knows (`hdfs:`, `s3a:`), for checkpoints and the
    files of views being built; without it they are in `data_dir`, and rows are sent."""


class StoreSettings(Section):
    """Memory of the store, and how many rows Turnout's own tables keep."""

    memory_limit: MemorySize = "2GB"
    """Memory of the store, before it spills to disk."""
    log_rows: Whole = Field(10_000, ge=1)
    """How many rows of `orchestrator_logs` are kept."""
    control_rows: Whole = Field(10_000, ge=1)
    """How many rows of `control_raw` are kept; a message without an outcome, or whose outcome is not acknowledged yet,
    stays in any case."""
    swap_rows: Whole = Field(10_000, ge=1)
    """How many rows of `swaps` are kept."""
    bad_rows: Whole = Field(100_000, ge=1)
    """How many rows of `bad_records` each generation keeps, the newest."""
    keep_days: Annotated[float, BeforeValidator(number), Field(gt=0, le=36_500)] | None = None
    """Rows of `orchestrator_logs`, `control_raw` and `swaps` that are older are removed too. The age of a control
    message counts from its arrival. Followers see all of this as deletes."""


class LogSettings(Section):
    """The log of the process."""

    format: LogFormat = LogFormat.TEXT
    """How the log on standard error is written: `text`, or `json`, one object a line; see
    docs/how-to/monitoring.md#logs."""


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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class FileOrigin:
    """What settings were read from. It holds secrets, so it shows none of itself.

    All are equal: settings are compared by what they say, wherever they came from.
    """

    document: Mapping[str, Any]
    """The file, with the default sources and views where it has none."""
    given: Mapping[str, Any]
    """With what the environment gives in place of settings."""
    filled: Mapping[str, Any]
    """With variables and secrets in place."""
    folder: Path
    environ: Mapping[str, str]
    secret_variables: frozenset[str]
    path: Path | None = None

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, FileOrigin)

    __hash__ = None  # type: ignore[assignment]


class Settings(Section):
    """The whole configuration; `Settings()` is the default one."""

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    control: ControlSettings = Field(default_factory=ControlSettings)
    schema_registry: RegistrySettings | None = None
    """Where schemas of Avro and Protobuf are; see docs/how-to/formats.md."""
    sources: dict[str, SourceSettings] = Field(default_factory=default_sources, validate_default=True)
    """The topics that are shown, each under a name that you choose. Default: `users` and `accounts`, as in the file
    below."""
    views: dict[str, ViewSettings] = Field(default_factory=default_views, validate_default=True)
    """The tables that are made of sources, each under its own name; `{}` means no view. Default: `final_ui`, as in the
    file below."""
    sinks: dict[str, SinkSettings] = Field(default_factory=dict)
    """The tables that are written to topics, each under a name that you choose; see docs/how-to/sinks.md."""
    alerts: dict[str, AlertSettings] = Field(default_factory=dict)
    """The conditions that send an event when a row begins to fulfil them, each under a name that you choose; see
    docs/how-to/alerts.md."""
    start: StartAt = Field(default_factory=Start)
    """Where a generation starts to read: `latest`, `earliest`, or `{timestamp: 2026-01-01T00:00:00Z}` (UTC unless it
    says otherwise)."""
    dead_letter_topic: Topic | None = None
    """The topic that gets copies of records that cannot be read; not compacted, since they may have no key."""
    swap: SwapSettings = Field(default_factory=SwapSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    access: AccessSettings | None = None
    """Who may connect; without it, everyone who reaches the server may read and swap, and its user may apply files."""
    spark: SparkSettings = Field(default_factory=SparkSettings)
    store: StoreSettings = Field(default_factory=StoreSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    data_dir: Located = Field(Path("turnout-data"), validate_default=True)
    """Where the store and the checkpoints are; made readable for the user of the process alone (700, its files
    600)."""
    _origin: FileOrigin | None = PrivateAttr(default=None)

    @property
    def control_kafka(self) -> KafkaSettings:
        """The cluster of the control topic: that of the data, unless `control.kafka` names another."""
        return self.kafka if self.control.kafka is None else self.control.kafka.inheriting(self.kafka)

    @property
    def joined_views(self) -> tuple[str, ...]:
        """The views that have a join which messages can change."""
        return tuple(name for name, view in self.views.items() if view.first_join is not None)

    @property
    def written_topics(self) -> dict[str, str]:
        """The topics of sinks and alerts, by their paths."""
        topics = {f"sinks.{name}.topic": sink.topic for name, sink in self.sinks.items()}
        return topics | {
            f"alerts.{name}.to.topic": topic for name, one in self.alerts.items() if (topic := one.to.topic)
        }

    @property
    def secret_variables(self) -> frozenset[str]:
        """The environment variables that secrets came from; programs that Turnout starts must not see them."""
        return self._origin.secret_variables if self._origin else frozenset()

    @property
    def origin(self) -> FileOrigin | None:
        """What they were read from; None for settings that were made in code."""
        return self._origin
