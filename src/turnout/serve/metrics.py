"""`GET /metrics`: all metrics in Prometheus' text format, read when a scrape asks for them.

A scrape costs little, however large the tables are: it reads known counts, and scans only the short tables of control
messages and swaps.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import duckdb
from prometheus_client import Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from turnout import __version__
from turnout.errors import TurnoutError
from turnout.plan.control import Outcome
from turnout.plan.own_tables import BOOKS_OF_GENERATION, SHOWN_OF_STORE
from turnout.store.database import Database
from turnout.swap.metrics import Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ROWS = """
SELECT table_name, max(estimated_size) FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name = ? GROUP BY table_name
"""
_PHASES = {"build": "buildSeconds", "catch_up": "catchUpSeconds", "publish": "publishSeconds"}


def scrape(database: Database, metrics: Metrics, viewers: int, subscriptions: dict[str, int]) -> bytes:
    """The whole answer. May block on the store; without its metrics if that fails."""
    return generate_latest(_Scrape(database, metrics, viewers, subscriptions))


@dataclass(frozen=True, slots=True)
class _Scrape(Collector):
    database: Database
    metrics: Metrics
    viewers: int
    subscriptions: dict[str, int]

    def collect(self) -> Iterator[Metric]:
        yield from self._state()
        yield from self._store()
        for collector in (*self.metrics.counters.collectors(), ProcessCollector(registry=None)):
            yield from collector.collect()

    def _state(self) -> Iterator[Metric]:
        now = self.metrics
        yield _gauges("turnout_build_info", "The version that runs, as a label", ["version"], {__version__: 1})
        yield _gauge("turnout_ready", "1 where the tables follow their topics", now.readiness.ready)
        trouble = {} if now.readiness.ready else {now.readiness.code: 1.0}
        yield _gauges("turnout_trouble", "1 for the code of /readyz, while it is not ready", ["code"], trouble)
        yield _gauge("turnout_published_generation", "The number of the published generation", now.published)
        yield _gauges("turnout_generations", "Living generations", ["state"], now.generations)
        if now.building_percent is not None:
            yield _gauge("turnout_building_percent", "How much of a build is done", now.building_percent)
        records = {str(number): count for number, count in now.records.items()}
        yield _counts("turnout_records", "Records that a generation has read", "generation", records)
        lags = {(topic, str(partition)): lag for (topic, partition), lag in now.lags.items()}
        text = "Records of a partition that the published generation has not read yet"
        yield _gauges("turnout_lag_records", text, ["topic", "partition"], lags)
        yield _gauge("turnout_kafka_up", "1 where Kafka answered when it was asked last", now.kafka_answers)
        if now.newest_record is not None:
            age = max(0.0, time.time() - now.newest_record / 1000)
            yield _gauge("turnout_newest_record_age_seconds", "Age of the newest record that is shown", age)
        text = "1 where messages of the control topic are taken, or there is no such topic"
        yield _gauge("turnout_control_up", text, now.control_read)
        yield _gauge("turnout_control_waiting", "Control messages without an outcome yet", now.waiting_messages)
        yield CounterMetricFamily("turnout_spark_starts", "How often Spark was started", now.spark_starts)
        yield from self._sinks()
        yield _gauge("turnout_viewers", "Open connections of WS /api/live", self.viewers)
        yield _gauges("turnout_subscriptions", "Open subscriptions", ["kind"], self.subscriptions)

    def _sinks(self) -> Iterator[Metric]:
        sinks = self.metrics.sinks
        up = {sink.name: float(sink.state == "writing") for sink in sinks}
        yield _gauges("turnout_sink_up", "1 where a sink writes to its topic", ["sink"], up)
        versions = {sink.name: sink.waiting_versions for sink in sinks if sink.waiting_versions is not None}
        yield _gauges(
            "turnout_sink_waiting_versions", "Versions of its table that a sink has not written yet", ["sink"], versions
        )
        rows = {sink.name: sink.waiting_rows for sink in sinks if sink.waiting_rows is not None}
        yield _gauges("turnout_sink_waiting_rows", "Rows that wait for a sink, about", ["sink"], rows)
        written = {sink.name: sink.records for sink in sinks}
        yield _counts("turnout_sink_records", "Records that a sink has written", "sink", written)

    def _store(self) -> Iterator[Metric]:
        found: list[Metric] = []
        with contextlib.suppress(duckdb.Error, TurnoutError), self.database.read() as cursor:
            found = [self._rows(cursor), *_swaps(cursor), _control(cursor)]
        yield _gauge("turnout_store_up", "1 where the store could be read", bool(found))
        size = 0
        for file in (self.database.path, self.database.path.with_suffix(".duckdb.wal")):
            with contextlib.suppress(OSError):
                size += file.stat().st_size
        yield _gauge("turnout_store_bytes", "Size of the store's file, and of what is not in it yet", size)
        yield from found

    def _rows(self, cursor: duckdb.DuckDBPyConnection) -> Metric:
        own = cursor.execute(_ROWS, [f"g{self.metrics.published}"]).fetchall()
        rows = {table: count for table, count in own if table.partition(":")[0] not in BOOKS_OF_GENERATION}
        shared = cursor.execute(_ROWS, ["turnout"]).fetchall()
        rows |= {table: count for table, count in shared if table in SHOWN_OF_STORE[1:]}  # the status is one row
        return _gauges("turnout_table_rows", "Rows of a table, about: DuckDB's estimate", ["table"], rows)


def _swaps(cursor: duckdb.DuckDBPyConnection) -> Iterator[Metric]:
    outcomes = (Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.FAILED)
    swaps = _outcomes(cursor, "swaps", outcomes)
    yield _counts("turnout_swaps", "Swaps, since the store was made", "outcome", swaps)
    sums = ", ".join(f"coalesce(sum({column}), 0)" for column in _PHASES.values())
    row = cursor.execute(
        f"SELECT coalesce(sum(count), 0), {sums} FROM (SELECT outcome, 1 AS count, {', '.join(_PHASES.values())} "
        f"FROM turnout.swaps UNION ALL SELECT outcome, count, build, catchUp, publish FROM turnout.removed_rows "
        f"WHERE name = 'swaps') WHERE outcome <> ?",
        [Outcome.FAILED.value],
    ).fetchone()
    assert row is not None
    seconds = SummaryMetricFamily("turnout_swap_seconds", "Seconds of swaps that were made", labels=["phase"])
    for phase, total in zip(_PHASES, row[1:], strict=True):
        seconds.add_metric([phase], row[0], total)
    yield seconds


def _control(cursor: duckdb.DuckDBPyConnection) -> Metric:
    messages = _outcomes(cursor, "control_raw", Outcome)
    return _counts("turnout_control_messages", "Control messages, since the store was made", "outcome", messages)


def _outcomes(cursor: duckdb.DuckDBPyConnection, table: str, outcomes: Iterable[Outcome]) -> dict[str, int]:
    """How many rows of each outcome a table has had, with those that retention removed."""
    found = cursor.execute(
        f"SELECT outcome, CAST(sum(count) AS BIGINT) FROM (SELECT outcome, 1 AS count FROM turnout.{table} UNION ALL "
        f"SELECT outcome, count FROM turnout.removed_rows WHERE name = '{table}') GROUP BY outcome"
    ).fetchall()
    return {outcome.value: dict(found).get(outcome.value, 0) for outcome in outcomes}


def _counts(name: str, text: str, label: str, counts: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, float(value))


def _gauges(
    name: str, text: str, labels: list[str], values: Mapping[str, float] | Mapping[tuple[str, str], float]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric([key] if isinstance(key, str) else key, value)
    return family
