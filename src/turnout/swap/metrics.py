"""Metrics: counters of this process, and the state of one moment. `serve/metrics.py` writes them for Prometheus."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import Counter, Histogram, disable_created_metrics
from prometheus_client.registry import Collector

from turnout.sink.status import SinkStatus
from turnout.swap.health import Readiness

# They would double the number of series, and say no more than process_start_time_seconds.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Counters:
    """From the start of the process; any thread may add to them."""

    def __init__(self) -> None:
        self._batches = Histogram(
            "turnout_batch_seconds",
            "Seconds that a micro-batch took, from decoding to its commit",
            ["phase"],
            buckets=_SECONDS,
            registry=None,
        )
        self._bad = Counter("turnout_bad_records", "Faults found in records", registry=None)
        self._evicted = Counter("turnout_evicted_rows", "Rows that max_rows evicted", ["table"], registry=None)
        for phase in ("catching_up", "live"):
            self._batches.labels(phase)

    def batch(self, seconds: float, bad: int, evicted: Mapping[str, int], *, live: bool) -> None:
        """Count a batch that the store has committed."""
        self._batches.labels("live" if live else "catching_up").observe(seconds)
        self._bad.inc(bad)
        for table, count in evicted.items():
            self._evicted.labels(table).inc(count)

    def collectors(self) -> list[Collector]:
        return [self._batches, self._bad, self._evicted]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The state of one moment, as the orchestrator has last seen it."""

    readiness: Readiness
    counters: Counters = field(default_factory=Counters)
    published: int = 0
    records: Mapping[int, int] = field(default_factory=dict)
    """How many records each living generation has read."""
    generations: Mapping[str, int] = field(default_factory=dict)
    """How many there are of each state."""
    building_percent: float | None = None
    lags: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How far the published generation is behind each partition, as last measured."""
    kafka_answers: bool = True
    newest_record: int | None = None
    """Its time, in milliseconds since 1970."""
    control_read: bool = True
    waiting_messages: int = 0
    spark_starts: int = 0
    sinks: Sequence[SinkStatus] = ()
