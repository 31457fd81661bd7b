"""Alerts at work, all of the configuration in force: started, changed and stopped.

One thread looks at tables for all of them. Each brings its events to its target on a thread of its own, oldest first,
and again after a failure: a target that is away makes no batch, no swap and no other alert wait. What waits is in the
store, so a restart goes on with it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from uuid import uuid4

import duckdb

from turnout.alert.events import AlertEvent, Events
from turnout.alert.targets import STATES, LogTarget, Target, TopicTarget, WebhookTarget
from turnout.alert.watched_rows import WatchedRows
from turnout.config import AlertSettings, KafkaSettings
from turnout.errors import TurnoutError, first_line
from turnout.logs import Say
from turnout.plan.answers import AlertStatus
from turnout.plan.nearest import suggestion
from turnout.plan.times import now_text
from turnout.sink.sink import OutputTools, stop_all
from turnout.sink.topic_state import forget_others
from turnout.store.database import Database, is_store_failure, store_failed
from turnout.store.feed import Commit
from turnout_client.retries import growing_pause

log = logging.getLogger("turnout")

PAUSES_SECONDS = (1.0, 300.0)
TEST_SECONDS = 30.0
_REST_SECONDS = 60.0
_AGAIN_SECONDS = 1.0


class RunningAlert:
    """One alert, and what was counted since the process started. Any thread may ask for its status, and test."""

    def __init__(self, name: str, settings: AlertSettings, tools: OutputTools, events: Events) -> None:
        self.name = name
        self.settings = settings
        self.fault: TurnoutError | None = None
        """Why its rows cannot be checked."""
        self._error: TurnoutError | None = None
        self._event_count = self._dropped = self._delivered = 0
        self._last_delivered: str | None = None
        self._tools = tools
        self._events = events
        self._rows = WatchedRows(name, settings, tools.database)
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._not_before = 0.0
        self._failures = 0
        self._test: Future[None] | None = None
        self._target = self._made_target()
        self._thread = threading.Thread(target=self._run, name=f"turnout-alert-{name}", daemon=True)

    def _made_target(self) -> Target:
        to, tools = self.settings.to, self._tools
        if to.webhook is not None:
            return WebhookTarget(self.settings)
        if to.topic is not None:
            return TopicTarget(self.name, to.topic, tools.kafka, tools.database, self._stopped.is_set)
        return LogTarget(tools.say)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """End the thread, in a bounded time; what was under way is delivered again after the next start."""
        self._rows.stop()
        self._stopped.set()
        self._wake.set()
        self._thread.join(timeout_seconds)

    def step(self) -> None:
        """Bring its rows up to date, or say why that fails; what was missed is made up for later."""
        try:
            done = self._rows.step()
        except (TurnoutError, duckdb.Error) as error:
            known = error if isinstance(error, TurnoutError) else store_failed(error)
            if self.fault is None and not is_store_failure(error):  # a store in trouble has its own words for it
                self._tools.say("WARNING", f"alert {self.name} cannot be checked: {known}")
            self.fault = known
            return
        self.fault = None
        if done.began:
            self._tools.say("INFO", f"alert {self.name} watches {self.settings.table} where {self.settings.where}")
        if done.dropped:
            self._tools.say("WARNING", f"alert {self.name}: {done.dropped} events were dropped: too many waited")
        self._event_count += done.events
        self._dropped += done.dropped
        if done.events:
            self._wake.set()

    def status(self, counts: Mapping[str, tuple[int, int]] | None) -> AlertStatus:
        """How it stands; `counts` has its rows and what waits, None where the store does not answer."""
        rows, waiting = (None, None) if counts is None else counts.get(self.name, (0, 0))
        error, settings = self.fault or self._error, self.settings
        return AlertStatus(
            name=self.name,
            table=settings.table,
            where=settings.where,
            to=settings.to.described,
            state="failing" if error else "watching",
            error=error,
            rows=rows,
            waiting=waiting,
            events=self._event_count,
            delivered=self._delivered,
            dropped=self._dropped,
            last_delivered=self._last_delivered,
        )

    def test(self) -> None:
        """Send a sample to the target, and wait for it; TurnoutError says why it did not arrive."""
        if self._test is not None:
            raise TurnoutError("too_many_requests", f"a test of alert {self.name} is under way", "wait for its end")
        test = self._test = Future()
        self._wake.set()
        try:
            test.result(TEST_SECONDS)
        except TimeoutError:
            raise _undelivered(f"the test took over {TEST_SECONDS:g} s", "try again") from None
        finally:
            self._test = None

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wake.clear()
            self._try_test()
            self._wake.wait(self._deliver())
        self._target.close()

    def _deliver(self) -> float:
        """Deliver what waits, if its time has come; the seconds until the next look."""
        if (pause := self._not_before - time.monotonic()) > 0:
            return pause
        try:
            events = self._events.waiting(self.name)
            if not events:
                return _REST_SECONDS
            self._target.send(events)
            self._events.delivered(events)
        except Exception as error:  # whatever happens, it tries again
            return self._failed(error)
        if self._error is not None:
            self._tools.say("INFO", f"alert {self.name} is delivered to its {self.settings.to.described} again")
        self._error, self._failures = None, 0
        self._delivered += len(events)
        self._last_delivered = now_text()
        self._not_before = time.monotonic() + self.settings.min_seconds
        return self.settings.min_seconds

    def _failed(self, error: Exception) -> float:
        self._target.close()
        if self._stopped.is_set():
            return 0.0
        known = _known(error)
        if self._error is None or self._error.message != known.message:
            self._tools.say("WARNING", f"alert {self.name} is not delivered: {known}")
        self._error = known
        pause = growing_pause(self._failures, *PAUSES_SECONDS)
        self._failures += 1
        self._not_before = time.monotonic() + pause
        return pause

    def _try_test(self) -> None:
        test = self._test
        if test is None or test.done():
            return
        content = {"ts": now_text(), "key": None, "rowId": None, "row": None}
        try:
            self._target.send([AlertEvent(0, uuid4().hex, self.name, "test", content)])
        except Exception as error:
            self._target.close()
            test.set_exception(_undelivered(_known(error).message, _known(error).hint))
        else:
            test.set_result(None)


def _known(error: Exception) -> TurnoutError:
    if isinstance(error, TurnoutError):
        return error
    log.error("an alert was not delivered", exc_info=error)
    return _undelivered(f"unexpected error: {first_line(error)}", "see the log of the process")


def _undelivered(message: str, hint: str) -> TurnoutError:
    return TurnoutError("alert_not_delivered", message, hint)


class Alerts:
    """The running alerts. Any thread may ask; `change` and `stop` are for one."""

    def __init__(self, database: Database, kafka: KafkaSettings, say: Say) -> None:
        self._database = database
        self._events = Events(database)
        self._tools = OutputTools(database, kafka, say)
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
        kept = {name: one for name, one in self._running.items() if settings.get(name) == one.settings}
        with self._stepping:
            stop_all([one.stop for name, one in self._running.items() if name not in kept], 5.0)
            with contextlib.suppress(duckdb.Error, TurnoutError):  # a store in trouble has its own words for it
                self._events.forget_others(settings.keys())
                topics = [f"{STATES}:{name}" for name, one in settings.items() if one.to.topic]
                forget_others(self._database, topics, STATES)
            made = {
                name: kept.get(name) or RunningAlert(name, one, self._tools, self._events)
                for name, one in settings.items()
            }
            self._running = made
            for name in made.keys() - kept.keys():
                made[name].start()
        self._wake.set()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        self._database.feed.leave(self._committed)
        self._stopped.set()
        self._wake.set()
        deadline = time.monotonic() + timeout_seconds
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        stop_all([one.stop for one in self._running.values()], max(0.0, deadline - time.monotonic()))

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
