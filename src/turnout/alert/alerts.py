"""All alerts of the configuration in force: started, changed and stopped; one thread looks at tables for all of them.

Each alert has a deliverer with a thread of its own, so a target that is away holds up nothing else.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import duckdb

from turnout.alert.deliverer import Deliverer
from turnout.alert.events import Events
from turnout.alert.targets import STATES, LogTarget, Target, TopicTarget
from turnout.alert.watched_rows import WatchedRows
from turnout.alert.webhook import WebhookTarget
from turnout.config import AlertSettings, KafkaSettings
from turnout.errors import TurnoutError
from turnout.plan.nearest import suggestion
from turnout.sink.sink import Say
from turnout.sink.topic_state import forget_others
from turnout.store.database import Database, is_store_failure, store_failed
from turnout.store.feed import Commit

_REST_SECONDS = 60.0
_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """One alert at one moment."""

    name: str
    settings: AlertSettings
    error: TurnoutError | None
    events: int
    delivered: int
    dropped: int
    last_delivered: datetime | None
    rows: int | None = None
    """How many rows fulfil it; None if the store does not answer."""
    waiting: int | None = None

    def to_json(self) -> dict[str, Any]:
        moment = self.last_delivered
        return {
            "name": self.name,
            "table": self.settings.table,
            "where": self.settings.where,
            "to": self.settings.to.described,
            "state": "failing" if self.error else "watching",
            "error": str(self.error) if self.error else None,
            "rows": self.rows,
            "waiting": self.waiting,
            "events": self.events,
            "delivered": self.delivered,
            "dropped": self.dropped,
            "lastDelivered": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z") if moment else None,
        }


class RunningAlert:
    """One alert: its rows, its deliverer, and what was counted since the process started."""

    def __init__(self, settings: AlertSettings, rows: WatchedRows, deliverer: Deliverer, say: Say) -> None:
        self.settings = settings
        self.rows = rows
        self.deliverer = deliverer
        self.events = 0
        self.dropped = 0
        self.error: TurnoutError | None = None
        self._say = say

    def step(self) -> None:
        """Bring its rows up to date, or say why that fails; what was missed is made up for later."""
        name = self.deliverer.name
        try:
            done = self.rows.step()
        except (TurnoutError, duckdb.Error) as error:
            known = error if isinstance(error, TurnoutError) else store_failed(error)
            if self.error is None and not is_store_failure(error):  # a store in trouble has its own words for it
                self._say("WARNING", f"alert {name} cannot be checked: {known}")
            self.error = known
            return
        self.error = None
        if done.began:
            self._say("INFO", f"alert {name} watches {self.settings.table} where {self.settings.where}")
        if done.dropped:
            self._say("WARNING", f"alert {name}: {done.dropped} events were dropped: too many waited")
        self.events += done.events
        self.dropped += done.dropped
        if done.events:
            self.deliverer.wake()

    def status(self, counts: Mapping[str, tuple[int, int]] | None) -> AlertStatus:
        one = self.deliverer
        rows, waiting = (None, None) if counts is None else counts.get(one.name, (0, 0))
        error = self.error or one.error
        return AlertStatus(
            one.name,
            self.settings,
            error,
            self.events,
            one.delivered,
            self.dropped,
            one.last_delivered,
            rows,
            waiting,
        )


class Alerts:
    """The running alerts. Any thread may ask; `change` and `stop` are for one."""

    def __init__(self, database: Database, kafka: KafkaSettings, say: Say) -> None:
        self._database = database
        self._kafka = kafka
        self._say = say
        self._events = Events(database)
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
            self._running = {name: kept.get(name) or self._made(name, one) for name, one in settings.items()}
            for name, one in self._running.items():
                if name not in kept:
                    one.deliverer.start()
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
        running[name].deliverer.test()

    def _made(self, name: str, settings: AlertSettings) -> RunningAlert:
        # The target of a topic ends its waits with the deliverer, which is made with it.
        stopping = threading.Event()
        deliverer = Deliverer(name, settings, self._target(name, settings, stopping), self._events, self._say, stopping)
        return RunningAlert(settings, WatchedRows(name, settings, self._database), deliverer, self._say)

    def _target(self, name: str, settings: AlertSettings, stopping: threading.Event) -> Target:
        if settings.to.webhook is not None:
            return WebhookTarget(settings)
        if settings.to.topic is not None:
            return TopicTarget(name, settings.to.topic, self._kafka, self._database, stopping.is_set)
        return LogTarget(self._say)

    def _end(self, alerts: list[RunningAlert], timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        for one in alerts:
            one.rows.stop()
            one.deliverer.stop(0.0)
        for one in alerts:
            one.deliverer.stop(max(0.0, deadline - time.monotonic()))

    def _committed(self, commit: Commit | None) -> None:
        self._wake.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            with self._stepping:
                for one in self._running.values():
                    one.step()
            failing = any(one.error for one in self._running.values())
            self._wake.wait(_AGAIN_SECONDS if failing else _REST_SECONDS)
