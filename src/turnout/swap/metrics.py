"""Metrics: what there is, counters of this process, and the state of one moment.

`serve/metrics.py` writes them for Prometheus, and `make reference` what each means to docs/reference/metrics.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from prometheus_client import Counter, Histogram, disable_created_metrics
from prometheus_client.registry import Collector

from turnout.plan.answers import AlertStatus, SinkStatus
from turnout.swap.health import Readiness

# They would double the number of series, and say no more than process_start_time_seconds.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metric(NamedTuple):
    """What a metric means, and what its labels are."""

    text: str
    labels: tuple[str, ...] = ()
    kind: Literal["gauge", "counter", "histogram", "summary"] = "gauge"


METRICS: Mapping[str, Metric] = {
    "turnout_build_info": Metric("always 1; the label has the version that runs", ("version",)),
    "turnout_ready": Metric("1 where the tables follow their topics, as `/readyz` says"),
    "turnout_trouble": Metric("1 for the code that `/readyz` answers; absent while ready", ("code",)),
    "turnout_published_generation": Metric("the number of the published generation; 0 before the first"),
    "turnout_generations": Metric(
        "living generations: `live`, `lingering`, `candidate`, and the states of a build", ("state",)
    ),
    "turnout_candidate_generation": Metric(
        "the number of the generation that waits to be published; absent without one"
    ),
    "turnout_building_percent": Metric("how much of a build is done; absent while nothing is built"),
    "turnout_records_total": Metric(
        "records that a living generation has read; continues over restarts", ("generation",), kind="counter"
    ),
    "turnout_lag_records": Metric(
        "records that the published generation has not read yet, measured once a second", ("topic", "partition")
    ),
    "turnout_kafka_up": Metric("1 where Kafka answered when it was asked last"),
    "turnout_newest_record_age_seconds": Metric(
        "age of the newest record that is shown, by Kafka's timestamps; grows while nobody writes; 0 while a record of "
        "the future is the newest; absent before the first record",
    ),
    "turnout_batch_seconds": Metric(
        "seconds that a micro-batch took, from decoding to its commit; `live`, or `catching_up`",
        ("phase",),
        kind="histogram",
    ),
    "turnout_bad_records_total": Metric(
        "faults found in records, of all generations of this process; what they are is in the table `bad_records`",
        kind="counter",
    ),
    "turnout_evicted_rows_total": Metric(
        "rows that `max_rows` evicted, of all generations of this process", ("table",), kind="counter"
    ),
    "turnout_left_out_keys": Metric(
        "keys that `max_rows_per_key` leaves out of a view of the published generation, or of a step of a chain",
        ("view",),
    ),
    "turnout_control_messages_total": Metric("control messages since the store was made", ("outcome",), kind="counter"),
    "turnout_control_up": Metric(
        "1 where messages of the control topic are read, or the topic does not exist; 0 while it cannot be read, or "
        "its records cannot be stored",
    ),
    "turnout_control_waiting": Metric("control messages without an outcome yet"),
    "turnout_swaps_total": Metric(
        "swaps since the store was made: `applied`, `rolled_back`, `failed`, `cancelled`, `rejected` (by a guard); "
        "candidates that were made (`candidate`), and `discarded`",
        ("outcome",),
        kind="counter",
    ),
    "turnout_guards_broken_total": Metric(
        "guards that a generation broke, since this process started; see `swap.guards`", ("guard",), kind="counter"
    ),
    "turnout_swap_seconds": Metric(
        "seconds of swaps that were made: `build`, `catch_up`, `publish`; sum and count, without quantiles",
        ("phase",),
        kind="summary",
    ),
    "turnout_sink_up": Metric("1 where a sink writes to its topic; 0 while it starts or fails", ("sink",)),
    "turnout_sink_waiting_versions": Metric("versions of its table that a sink has not written yet", ("sink",)),
    "turnout_sink_waiting_rows": Metric(
        "changed rows that wait for a sink; where the difference has to be written, all rows of its table", ("sink",)
    ),
    "turnout_sink_records_total": Metric(
        "records that a sink has written, since this process started", ("sink",), kind="counter"
    ),
    "turnout_alert_up": Metric(
        "1 where the rows of an alert are known and its target takes events; 0 while one of them fails", ("alert",)
    ),
    "turnout_alert_rows": Metric("rows that fulfil an alert", ("alert",)),
    "turnout_alert_waiting": Metric("events of an alert that are not delivered yet", ("alert",)),
    "turnout_alert_events_total": Metric("events of an alert, since this process started", ("alert",), kind="counter"),
    "turnout_alert_dropped_total": Metric(
        "events that were dropped because too many waited for delivery, since this process started",
        ("alert",),
        kind="counter",
    ),
    "turnout_store_up": Metric("1 where the store could be read; where it could not, what is counted in it is absent"),
    "turnout_store_bytes": Metric("size of the store's file, and of what is not in it yet"),
    "turnout_table_rows": Metric(
        "rows of a table, about: DuckDB's estimate; with `rows: latest`, also those that newer ones cover", ("table",)
    ),
    "turnout_viewers": Metric("open connections of `WS /api/live`"),
    "turnout_subscriptions": Metric("their subscriptions: `window`, `changes`, `summary`, `sql`, `status`", ("kind",)),
    "turnout_spark_starts_total": Metric(
        "how often Spark was started: 1, and 1 more each time that it ended by itself", kind="counter"
    ),
}


MetricValues: TypeAlias = float | Mapping[str, float | None] | Mapping[tuple[str, str], float] | None
"""The value of a metric, or one for each value of its labels; None: the metric is absent."""


def _described(name: str) -> tuple[str, str, tuple[str, ...]]:
    return name, METRICS[name].text, METRICS[name].labels


class Counters:
    """From the start of the process; any thread may add to them."""

    def __init__(self) -> None:
        self._batches = Histogram(*_described("turnout_batch_seconds"), buckets=_SECONDS, registry=None)
        self._bad = Counter(*_described("turnout_bad_records_total"), registry=None)
        self._evicted = Counter(*_described("turnout_evicted_rows_total"), registry=None)
        self._guards = Counter(*_described("turnout_guards_broken_total"), registry=None)
        for guard in ("min_rows", "min_matched", "max_bad"):
            self._guards.labels(guard)
        for phase in ("catching_up", "live"):
            self._batches.labels(phase)

    def batch(self, seconds: float, bad: int, evicted: Mapping[str, int], *, live: bool) -> None:
        """Count a batch that the store has committed."""
        self._batches.labels("live" if live else "catching_up").observe(seconds)
        self._bad.inc(bad)
        for table, count in evicted.items():
            self._evicted.labels(table).inc(count)

    def guards_broken(self, guards: Iterable[str]) -> None:
        for guard in guards:
            self._guards.labels(guard).inc()

    def collectors(self) -> list[Collector]:
        return [self._batches, self._bad, self._evicted, self._guards]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The state of one moment, as the orchestrator has last seen it."""

    readiness: Readiness
    values: Mapping[str, MetricValues] = field(default_factory=dict)
    """By the names of the metrics."""
    counters: Counters = field(default_factory=Counters)
    published: int = 0
    sinks: Sequence[SinkStatus] = ()
    alerts: Sequence[AlertStatus] = ()
