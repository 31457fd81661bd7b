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


class Definition(NamedTuple):
    kind: Literal["gauge", "counter", "histogram", "summary"]
    text: str
    labels: tuple[str, ...] = ()


METRICS: Mapping[str, Definition] = {
    "turnout_build_info": Definition("gauge", "always 1; the label has the version that runs", ("version",)),
    "turnout_ready": Definition("gauge", "1 where the tables follow their topics, as `/readyz` says"),
    "turnout_trouble": Definition("gauge", "1 for the code that `/readyz` answers; absent while ready", ("code",)),
    "turnout_published_generation": Definition("gauge", "the number of the published generation; 0 before the first"),
    "turnout_generations": Definition(
        "gauge", "living generations: `live`, `lingering`, `candidate`, and the states of a build", ("state",)
    ),
    "turnout_candidate_generation": Definition(
        "gauge", "the number of the generation that waits to be published; absent without one"
    ),
    "turnout_building_percent": Definition("gauge", "how much of a build is done; absent while nothing is built"),
    "turnout_records_total": Definition(
        "counter", "records that a living generation has read; continues over restarts", ("generation",)
    ),
    "turnout_lag_records": Definition(
        "gauge",
        "records that the published generation has not read yet, measured once a second",
        ("topic", "partition"),
    ),
    "turnout_kafka_up": Definition("gauge", "1 where Kafka answered when it was asked last"),
    "turnout_newest_record_age_seconds": Definition(
        "gauge",
        "age of the newest record that is shown, by Kafka's timestamps; grows while nobody writes; 0 while a record of "
        "the future is the newest; absent before the first record",
    ),
    "turnout_batch_seconds": Definition(
        "histogram",
        "seconds that a micro-batch took, from decoding to its commit; `live`, or `catching_up`",
        ("phase",),
    ),
    "turnout_bad_records_total": Definition(
        "counter",
        "faults found in records, of all generations of this process; what they are is in the table `bad_records`",
    ),
    "turnout_evicted_rows_total": Definition(
        "counter", "rows that `max_rows` evicted, of all generations of this process", ("table",)
    ),
    "turnout_left_out_keys": Definition(
        "gauge",
        "keys that `max_rows_per_key` leaves out of a view of the published generation, or of a step of a chain",
        ("view",),
    ),
    "turnout_control_messages_total": Definition("counter", "control messages since the store was made", ("outcome",)),
    "turnout_control_up": Definition(
        "gauge",
        "1 where messages of the control topic are read, or the topic does not exist; 0 while it cannot be read, or "
        "its records cannot be stored",
    ),
    "turnout_control_waiting": Definition("gauge", "control messages without an outcome yet"),
    "turnout_swaps_total": Definition(
        "counter",
        "swaps since the store was made: `applied`, `rolled_back`, `failed`, `cancelled`, `rejected` (by a guard); "
        "candidates that were made (`candidate`), and `discarded`",
        ("outcome",),
    ),
    "turnout_guards_broken_total": Definition(
        "counter", "guards that a generation broke, since this process started; see `swap.guards`", ("guard",)
    ),
    "turnout_swap_seconds": Definition(
        "summary",
        "seconds of swaps that were made: `build`, `catch_up`, `publish`; sum and count, without quantiles",
        ("phase",),
    ),
    "turnout_sink_up": Definition("gauge", "1 where a sink writes to its topic; 0 while it starts or fails", ("sink",)),
    "turnout_sink_waiting_versions": Definition(
        "gauge", "versions of its table that a sink has not written yet", ("sink",)
    ),
    "turnout_sink_waiting_rows": Definition(
        "gauge",
        "changed rows that wait for a sink; where the difference has to be written, all rows of its table",
        ("sink",),
    ),
    "turnout_sink_records_total": Definition(
        "counter", "records that a sink has written, since this process started", ("sink",)
    ),
    "turnout_alert_up": Definition(
        "gauge",
        "1 where the rows of an alert are known and its target takes events; 0 while one of them fails",
        ("alert",),
    ),
    "turnout_alert_rows": Definition("gauge", "rows that fulfil an alert", ("alert",)),
    "turnout_alert_waiting": Definition("gauge", "events of an alert that are not delivered yet", ("alert",)),
    "turnout_alert_events_total": Definition("counter", "events of an alert, since this process started", ("alert",)),
    "turnout_alert_dropped_total": Definition(
        "counter",
        "events that were dropped because too many waited for delivery, since this process started",
        ("alert",),
    ),
    "turnout_store_up": Definition(
        "gauge", "1 where the store could be read; where it could not, what is counted in it is absent"
    ),
    "turnout_store_bytes": Definition("gauge", "size of the store's file, and of what is not in it yet"),
    "turnout_table_rows": Definition(
        "gauge",
        "rows of a table, about: DuckDB's estimate; with `rows: latest`, also those that newer ones cover",
        ("table",),
    ),
    "turnout_viewers": Definition("gauge", "open connections of `WS /api/live`"),
    "turnout_subscriptions": Definition(
        "gauge", "their subscriptions: `window`, `changes`, `summary`, `sql`, `status`", ("kind",)
    ),
    "turnout_spark_starts_total": Definition(
        "counter", "how often Spark was started: 1, and 1 more each time that it ended by itself"
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
