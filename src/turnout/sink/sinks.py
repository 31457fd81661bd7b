"""All sinks of the configuration in force: started, changed and stopped; and how far each is behind."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import duckdb

from turnout.config import Format, KafkaSettings, RegistrySettings, SinkSettings
from turnout.errors import TurnoutError
from turnout.schemas.registry import SchemaRegistry
from turnout.sink.avro_values import AvroValues
from turnout.sink.records import JsonValues, Lag, Values, lag
from turnout.sink.sink import Say, Sink, SinkStatus, SinkTools
from turnout.sink.topic_state import forget_others
from turnout.store.database import Database
from turnout.store.feed import Commit


class Sinks:
    """The running sinks. Any thread may ask; `change` and `stop` are for one."""

    def __init__(self, database: Database, kafka: KafkaSettings, registry: RegistrySettings | None, say: Say) -> None:
        self._database = database
        self._registry = None if registry is None else SchemaRegistry(registry)
        self._tools = SinkTools(database, kafka, self._values, say)
        self._lock = threading.Lock()
        self._running: dict[str, Sink] = {}
        database.feed.listen(self._committed)

    def change(self, settings: Mapping[str, SinkSettings]) -> None:
        """Run these sinks from now on: what is new starts, what is gone stops, what differs starts anew.

        A sink that starts writes the difference between what its topic holds and what is shown.
        """
        going = [sink for name, sink in self._running.items() if settings.get(name) != sink.settings]
        self._stop(going, 5.0)
        kept = {name: sink for name, sink in self._running.items() if sink not in going}
        with contextlib.suppress(duckdb.Error, TurnoutError):  # a store in trouble has its own words for it
            forget_others(self._database, settings.keys())
        started = {name: Sink(name, one, self._tools) for name, one in settings.items() if name not in kept}
        with self._lock:
            self._running = {name: kept.get(name) or started[name] for name in settings}
        for sink in started.values():
            sink.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        self._database.feed.leave(self._committed)
        self._stop(list(self._running.values()), timeout_seconds)
        if self._registry is not None:
            self._registry.close()

    def status(self) -> list[SinkStatus]:
        """Each sink, with what waits for it; asks the store."""
        with self._lock:
            running = list(self._running.values())
        lags = self._lags(running)
        return [_with_lag(sink.status(), lags.get(sink.name)) for sink in running]

    def _lags(self, sinks: list[Sink]) -> dict[str, Lag]:
        if not sinks:
            return {}
        try:
            with self._database.read() as cursor:
                return {sink.name: lag(cursor, sink.settings.table, sink.written) for sink in sinks}
        except (duckdb.Error, TurnoutError):
            return {}

    def _committed(self, commit: Commit | None) -> None:
        for sink in self._running.values():
            sink.wake()

    def _stop(self, sinks: list[Sink], timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        for sink in sinks:
            sink.stop(0.0)
        for sink in sinks:
            sink.stop(max(0.0, deadline - time.monotonic()))

    def _values(self, sink: SinkSettings) -> Values:
        if sink.format is Format.AVRO and self._registry is not None:
            return AvroValues(self._registry, sink.topic)
        return JsonValues()


def _with_lag(status: SinkStatus, found: Lag | None) -> SinkStatus:
    return status if found is None else replace(status, waiting_versions=found.versions, waiting_rows=found.rows)
