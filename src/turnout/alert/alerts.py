"""All alerts of the configuration in force: started, changed and stopped; one thread looks at tables for all of them.

Each alert brings its events to its target on a thread of its own, so a target that is away holds up nothing else.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping

import duckdb

from turnout.alert.events import Events
from turnout.alert.running_alert import AlertStatus, AlertTools, RunningAlert
from turnout.alert.targets import STATES
from turnout.config import AlertSettings, KafkaSettings
from turnout.errors import TurnoutError
from turnout.plan.nearest import suggestion
from turnout.sink.sink import Say
from turnout.sink.topic_state import forget_others
from turnout.store.database import Database
from turnout.store.feed import Commit

_REST_SECONDS = 60.0
_AGAIN_SECONDS = 1.0


class Alerts:
    """The running alerts. Any thread may ask; `change` and `stop` are for one."""

    def __init__(self, database: Database, kafka: KafkaSettings, say: Say) -> None:
        self._database = database
        self._events = Events(database)
        self._tools = AlertTools(database, kafka, self._events, say)
        self._running: Mapping[str, RunningAlert] = {}
        self._stepping = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnout-alerts", daemon=True)

    def start(self, settings: Mapping[str, AlertSettings]) -> None:
        self.change(settings)
        self._database.feed.listen(self._committed)
        self._thread.start()

    def change(self, settings: Mapping[str, AlertSettings]) -> None:
        """Run these alerts from now on; one whose table and condition stay goes on with the rows that it knows."""
        going = [one for name, one in self._running.items() if settings.get(name) != one.settings]
        with self._stepping:
            self._end(going, 5.0)
            kept = {name: one for name, one in self._running.items() if one not in going}
            with contextlib.suppress(duckdb.Error, TurnoutError):  # a store in trouble has its own words for it
                self._events.forget_others(settings.keys())
                topics = [f"{STATES}:{name}" for name, one in settings.items() if one.to.topic]
                forget_others(self._database, topics, STATES)
            started = {name: RunningAlert(name, one, self._tools) for name, one in settings.items() if name not in kept}
            self._running = {name: kept.get(name) or started[name] for name in settings}
            for alert in started.values():
                alert.start()
        self._wake.set()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        self._database.feed.leave(self._committed)
        self._stopped.set()
        self._wake.set()
        deadline = time.monotonic() + timeout_seconds
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        self._end(list(self._running.values()), max(0.0, deadline - time.monotonic()))

    def status(self) -> list[AlertStatus]:
        """Each alert, with its rows and what waits; asks the store."""
        running, counts = self._running, None
        if running:
            with contextlib.suppress(duckdb.Error, TurnoutError):
                counts = self._events.counts()
        return [one.status(counts) for one in running.values()]

    def test(self, name: str) -> None:
        """Send a sample to the target of an alert; TurnoutError where there is no such alert, or it did not arrive."""
        running = self._running
        if name not in running:
            hint = f"{suggestion(name, list(running))}alerts: {', '.join(running) or 'none'}"
            raise TurnoutError("unknown_alert", f"no alert {name!r}", hint)
        running[name].test()

    def _end(self, alerts: list[RunningAlert], timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        for one in alerts:
            one.stop(0.0)
        for one in alerts:
            one.stop(max(0.0, deadline - time.monotonic()))

    def _committed(self, commit: Commit | None) -> None:
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            with self._stepping:
                for one in self._running.values():
                    one.step()
            failing = any(one.fault for one in self._running.values())
            self._wake.wait(_AGAIN_SECONDS if failing else _REST_SECONDS)
