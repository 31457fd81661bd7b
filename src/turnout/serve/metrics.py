"""`GET /metrics`: all metrics in Prometheus' text format, read when a scrape asks for them.

A scrape costs little, however large the tables are: it reads known counts, and scans only the short tables of control
messages and swaps.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import duckdb
from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector

from turnout import __version__
from turnout.errors import TurnoutError
from turnout.plan.control import Outcome
from turnout.plan.tables import BOOKS_OF_GENERATION, SHOWN_OF_STORE
from turnout.store.database import Database, first_row
from turnout.swap.metrics import METRICS, Metrics, MetricValues
from turnout.swap.publisher import DISCARDED

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ROWS = """
SELECT table_name, max(estimated_size) FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name = ? GROUP BY table_name
"""
_PHASES = {"build": "buildSeconds", "catch_up": "catchUpSeconds", "publish": "publishSeconds"}


@dataclass(frozen=True, slots=True)
class Scrape(Collector):
    """The metrics of one scrape. May block on the store; without its metrics if that fails."""

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
        now, sinks, alerts = self.metrics, self.metrics.sinks, self.metrics.alerts
        state: dict[str, MetricValues] = {
            "turnout_build_info": {__version__: 1},
            "turnout_ready": now.readiness.ready,
            "turnout_trouble": {} if now.readiness.ready else {now.readiness.code: 1},
            "turnout_published_generation": now.published,
            **now.values,
            "turnout_sink_up": {sink.name: sink.state == "writing" for sink in sinks},
            "turnout_sink_waiting_versions": {sink.name: sink.waiting_versions for sink in sinks},
            "turnout_sink_waiting_rows": {sink.name: sink.waiting_rows for sink in sinks},
            "turnout_sink_records_total": {sink.name: sink.records for sink in sinks},
            "turnout_alert_up": {alert.name: alert.error is None for alert in alerts},
            "turnout_alert_rows": {alert.name: alert.rows for alert in alerts},
            "turnout_alert_waiting": {alert.name: alert.waiting for alert in alerts},
            "turnout_alert_events_total": {alert.name: alert.events for alert in alerts},
            "turnout_alert_dropped_total": {alert.name: alert.dropped for alert in alerts},
            "turnout_viewers": self.viewers,
            "turnout_subscriptions": self.subscriptions,
        }
        return (_metric(name, values) for name, values in state.items() if values is not None)

    def _store(self) -> Iterator[Metric]:
        found: list[Metric] = []
        with contextlib.suppress(duckdb.Error, TurnoutError), self.database.read() as cursor:
            control = _metric("turnout_control_messages_total", _outcomes(cursor, "control_raw", Outcome))
            found = [self._rows(cursor), *_swaps(cursor), control]
        yield _metric("turnout_store_up", bool(found))
        size = 0
        for file in (self.database.path, self.database.path.with_suffix(".duckdb.wal")):
            with contextlib.suppress(OSError):
                size += file.stat().st_size
        yield _metric("turnout_store_bytes", size)
        yield from found

    def _rows(self, cursor: duckdb.DuckDBPyConnection) -> Metric:
        own = cursor.execute(_ROWS, [f"g{self.metrics.published}"]).fetchall()
        rows = {table: count for table, count in own if table.partition(":")[0] not in BOOKS_OF_GENERATION}
        shared = cursor.execute(_ROWS, ["turnout"]).fetchall()
        rows |= {table: count for table, count in shared if table in SHOWN_OF_STORE[1:]}  # the status is one row
        return _metric("turnout_table_rows", rows)


def _swaps(cursor: duckdb.DuckDBPyConnection) -> Iterator[Metric]:
    made = (Outcome.APPLIED, Outcome.ROLLED_BACK)
    outcomes = (*made, Outcome.FAILED, Outcome.CANCELLED, Outcome.REJECTED, Outcome.CANDIDATE, DISCARDED)
    yield _metric("turnout_swaps_total", _outcomes(cursor, "swaps", outcomes))
    sums = ", ".join(f"coalesce(sum({column}), 0)" for column in _PHASES.values())
    row = first_row(
        cursor,
        f"SELECT coalesce(sum(count), 0), {sums} FROM (SELECT outcome, 1 AS count, {', '.join(_PHASES.values())} "
        f"FROM turnout.swaps UNION ALL SELECT outcome, count, build, catchUp, publish FROM turnout.removed_rows "
        f"WHERE name = 'swaps') WHERE outcome IN (?, ?)",
        [outcome.value for outcome in made],
    )
    assert row is not None
    name, defined = "turnout_swap_seconds", METRICS["turnout_swap_seconds"]
    seconds = SummaryMetricFamily(name, defined.text, labels=defined.labels)
    for phase, total in zip(_PHASES, row[1:], strict=True):
        seconds.add_metric([phase], row[0], total)
    yield seconds


def _outcomes(cursor: duckdb.DuckDBPyConnection, table: str, outcomes: Iterable[str]) -> dict[str, int]:
    """How many rows of each outcome a table has had, with those that retention removed."""
    found = cursor.execute(
        f"SELECT outcome, CAST(sum(count) AS BIGINT) FROM (SELECT outcome, 1 AS count FROM turnout.{table} UNION ALL "
        f"SELECT outcome, count FROM turnout.removed_rows WHERE name = '{table}') GROUP BY outcome"
    ).fetchall()
    return {str(outcome): dict(found).get(outcome, 0) for outcome in outcomes}


def _metric(name: str, values: MetricValues) -> Metric:
    """A gauge or a counter as it is defined: a value, or one for each value of its labels that is known."""
    defined = METRICS[name]
    family = (CounterMetricFamily if defined.kind == "counter" else GaugeMetricFamily)(
        name, defined.text, labels=defined.labels
    )
    by_labels = values if isinstance(values, Mapping) else {(): values}
    for key, value in sorted(by_labels.items()):
        if value is not None:
            family.add_metric([key] if isinstance(key, str) else key, float(value))
    return family
