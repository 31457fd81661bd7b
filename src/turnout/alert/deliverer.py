"""Brings the events of one alert to its target, on a thread of its own: oldest first, again after a failure.

It makes no batch, no swap and no other alert wait. What waits is in the store, so a restart goes on with it.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime
from uuid import uuid4

from turnout.alert.events import AlertEvent, Events
from turnout.alert.targets import Target
from turnout.config import AlertSettings
from turnout.errors import TurnoutError, first_line
from turnout.sink.sink import Say
from turnout_client.retries import growing_pause

log = logging.getLogger("turnout")

PAUSES_SECONDS = (1.0, 300.0)
TEST_SECONDS = 30.0
_REST_SECONDS = 60.0


class Deliverer:
    """Delivers the events of one alert. Any thread may read its properties, wake it and test."""

    def __init__(
        self,
        name: str,
        settings: AlertSettings,
        target: Target,
        events: Events,
        say: Say,
        stopped: threading.Event,
    ) -> None:
        """`stopped` is set when it stops."""
        self.name = name
        self.error: TurnoutError | None = None
        self.delivered = 0
        """How many events it has delivered since the process started."""
        self.last_delivered: datetime | None = None
        self._settings = settings
        self._target = target
        self._events = events
        self._say = say
        self._wake = threading.Event()
        self._stopped = stopped
        self._not_before = 0.0
        self._failures = 0
        self._test: Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"turnout-alert-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Look for events that wait."""
        self._wake.set()

    def stop(self, timeout_seconds: float) -> None:
        """End the thread, in a bounded time; what was under way is delivered again after the next start."""
        self._stopped.set()
        self._wake.set()
        self._thread.join(timeout_seconds)

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
            self._wake.wait(self._step())
        self._target.close()

    def _step(self) -> float:
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
        if self.error is not None:
            self._say("INFO", f"alert {self.name} is delivered to its {self._settings.to.described} again")
        self.error, self._failures = None, 0
        self.delivered += len(events)
        self.last_delivered = datetime.now(UTC)
        self._not_before = time.monotonic() + self._settings.min_seconds
        return self._settings.min_seconds

    def _failed(self, error: Exception) -> float:
        self._target.close()
        if self._stopped.is_set():
            return 0.0
        known = _known(error)
        if self.error is None or self.error.message != known.message:
            self._say("WARNING", f"alert {self.name} is not delivered: {known}")
        self.error = known
        pause = growing_pause(self._failures, *PAUSES_SECONDS)
        self._failures += 1
        self._not_before = time.monotonic() + pause
        return pause

    def _try_test(self) -> None:
        test = self._test
        if test is None or test.done():
            return
        ts = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        content = {"ts": ts, "key": None, "rowId": None, "row": None}
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
