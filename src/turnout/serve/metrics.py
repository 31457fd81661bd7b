"""`GET /metrics`: everything that is measured, in Prometheus' text format, read when it is asked for.

A scrape costs little, however large the tables are: it reads counts that are known, and scans no rows but those of the
short tables about control messages and swaps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping

import duckdb
from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from turnout import __version__
from turnout.errors import TurnoutError
from turnout.plan.control import Outcome
from turnout.plan.own_tables import BOOKS_OF_GENERATION, SHOWN_OF_STORE
from turnout.store.database import Database
from turnout.swap.counters import Measures

_Values = dict[tuple[str, ...], float]
"""Values of the labels -> value."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ROWS = """
SELECT table_name, max(estimated_size) FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name = ? GROUP BY table_name
"""
_PHASES = {"build": "buildSeconds", "catch_up": "catchUpSeconds", "publish": "publishSeconds"}


def scrape(database: Database, measures: Measures, viewers: int, subscriptions: dict[str, int]) -> bytes:
    """The whole answer. May block on the store; where that is broken, what is in it is left out."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (_State(measures, viewers, subscriptions), _Store(database, measures), *measures.tally.counts()):
        registry.register(collector)
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _State(Collector):
    """The orchestrator and the server."""

    def __init__(self, measures: Measures, viewers: int, subscriptions: dict[str, int]) -> None:
        self._measures = measures
        self._viewers = viewers
        self._subscriptions = subscriptions

    def collect(self) -> Iterator[Metric]:
        now = self._measures
        yield _gauges("turnout_build_info", "The version that runs, as a label", ["version"], {(__version__,): 1})
        yield _gauge("turnout_ready", "1 where the tables follow their topics", now.readiness.ready)
        trouble: _Values = {} if now.readiness.ready else {(now.readiness.code,): 1.0}
        yield _gauges("turnout_trouble", "1 for the code of /readyz, while it is not ready", ["code"], trouble)
        yield _gauge("turnout_published_generation", "The number of the published generation", now.published)
        yield _gauges("turnout_generations", "Living generations", ["state"], _keyed(now.generations))
        if now.building_percent is not None:
            yield _gauge("turnout_building_percent", "How much of a build is done", now.building_percent)
        records = CounterMetricFamily("turnout_records", "Records that a generation has read", labels=["generation"])
        for number, count in now.records.items():
            records.add_metric([str(number)], count)
        yield records
        lags: _Values = {(topic, str(partition)): lag for (topic, partition), lag in now.lags.items()}
        yield _gauges(
            "turnout_lag_records",
            "Records of a partition that the published generation has not read yet",
            ["topic", "partition"],
            lags,
        )
        yield _gauge("turnout_kafka_up", "1 where Kafka answered when it was asked last", now.kafka_answers)
        if now.newest_record is not None:
            age = max(0.0, time.time() - now.newest_record / 1000)
            yield _gauge("turnout_newest_record_age_seconds", "Age of the newest record that is shown", age)
        text = "1 where messages of the control topic are taken, or there is no such topic"
        yield _gauge("turnout_control_up", text, now.control_read)
        yield _gauge("turnout_control_waiting", "Control messages without an outcome yet", now.waiting_messages)
        yield CounterMetricFamily("turnout_spark_starts", "How often Spark was started", now.spark_starts)
        yield _gauge("turnout_viewers", "Open connections of WS /api/live", self._viewers)
        yield _gauges("turnout_subscriptions", "Open subscriptions", ["kind"], _keyed(self._subscriptions))


class _Store(Collector):
    """What the store knows about itself."""

    def __init__(self, database: Database, measures: Measures) -> None:
        self._database = database
        self._published = measures.published

    def collect(self) -> Iterable[Metric]:
        found: list[Metric] = []
        with contextlib.suppress(duckdb.Error, TurnoutError), self._database.read() as cursor:
            found = [self._rows(cursor), *self._swaps(cursor), self._control(cursor)]
        return [
            _gauge("turnout_store_up", "1 where the store could be read", bool(found)),
            _gauge("turnout_store_bytes", "Size of the store's file, and of what is not in it yet", self._bytes()),
            *found,
        ]

    def _bytes(self) -> int:
        size = 0
        for file in (self._database.path, self._database.path.with_suffix(".duckdb.wal")):
            with contextlib.suppress(OSError):
                size += file.stat().st_size
        return size

    def _rows(self, cursor: duckdb.DuckDBPyConnection) -> Metric:
        own = cursor.execute(_ROWS, [f"g{self._published}"]).fetchall()
        rows = {table: count for table, count in own if table not in BOOKS_OF_GENERATION}
        shared = cursor.execute(_ROWS, ["turnout"]).fetchall()
        rows |= {table: count for table, count in shared if table in SHOWN_OF_STORE[1:]}  # the status is one row
        return _gauges("turnout_table_rows", "Rows of a table, about: DuckDB's estimate", ["table"], _keyed(rows))

    def _swaps(self, cursor: duckdb.DuckDBPyConnection) -> Iterator[Metric]:
        swaps = CounterMetricFamily("turnout_swaps", "Swaps, since the store was made", labels=["outcome"])
        counts = _outcomes(cursor, "swaps")
        for outcome in (Outcome.APPLIED, Outcome.ROLLED_BACK, Outcome.FAILED):
            swaps.add_metric([outcome.value], counts.get(outcome.value, 0))
        yield swaps
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

    def _control(self, cursor: duckdb.DuckDBPyConnection) -> Metric:
        messages = CounterMetricFamily(
            "turnout_control_messages", "Control messages, since the store was made", labels=["outcome"]
        )
        counts = _outcomes(cursor, "control_raw")
        for outcome in Outcome:
            messages.add_metric([outcome.value], counts.get(outcome.value, 0))
        return messages


def _outcomes(cursor: duckdb.DuckDBPyConnection, table: str) -> dict[str, int]:
    """How many rows of each outcome a table has had, those that are not kept any more too."""
    found = cursor.execute(
        f"SELECT outcome, CAST(sum(count) AS BIGINT) FROM (SELECT outcome, 1 AS count FROM turnout.{table} UNION ALL "
        f"SELECT outcome, count FROM turnout.removed_rows WHERE name = '{table}') GROUP BY outcome"
    ).fetchall()
    return dict(found)


def _keyed(counts: Mapping[str, float]) -> _Values:
    return {(name,): count for name, count in counts.items()}


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, float(value))


def _gauges(name: str, text: str, labels: list[str], values: _Values) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family
