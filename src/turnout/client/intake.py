"""Where a connection's thread and a consumer meet: one subscription's feed and state, behind one lock.

The connection puts messages in and tells the state; the consumer waits for events on any thread or event loop. Neither
holds the other back. What the consumer sees of it is `subscription.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from turnout.client.events import Json, State
from turnout.client.mirror import Feed
from turnout.errors import TurnoutError

_JOIN_SECONDS = 5.0

E = TypeVar("E")
Told = tuple[State, str]


class Intake(Generic[E]):
    """One subscription's data on its way in. `lock` guards the feed."""

    def __init__(self, feed: Feed[E]) -> None:
        self.table = feed.table
        self.state, self.reason = State.CONNECTING, ""
        self.error: TurnoutError | None = None
        self.seen = False
        """Whether it ever had data."""
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.thread: threading.Thread | None = None
        """That of its callbacks, if it has any."""
        self._feed = feed
        self._wakers: set[Callable[[], None]] = set()

    # -- for the connection

    def request(self) -> Json:
        with self.lock:
            return self._feed.request()

    def doubt(self) -> None:
        """Go on from nothing: what is known means nothing to this server."""
        with self.lock:
            self._feed.doubt()

    def receive(self, message: Json) -> bool:
        """Take in a message of the server; False: ask it again."""
        with self.lock:
            if self.state.over:
                return True
            fits = self._feed.receive(message)
            if fits and message.get("last", True):
                self.state, self.reason, self.seen = State.LIVE, "", True
            self._notify()
        return fits

    def set_state(self, state: State, reason: str = "", error: TurnoutError | None = None) -> None:
        """Tell how it goes; what is over stays over."""
        with self.lock:
            if not self.state.over:
                self.state, self.reason, self.error = state, reason, error
                self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        for wake in self._wakers:
            wake()
        self._wakers.clear()

    def join(self) -> None:
        """Wait until its callbacks have ended."""
        # A callback may close its own subscription; one that never returns must not hold up who closes it.
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(_JOIN_SECONDS)

    # -- for the consumer

    def wait(self, timeout: float | None) -> None:
        """Return once there is data."""
        with self.lock:
            if not self._changed.wait_for(lambda: self.state is State.LIVE or self.state.over, timeout):
                raise self._late(timeout)
            if self.state.over:
                raise self._over()

    def take(self, timeout: float | None) -> E:
        """The next event; TimeoutError when none comes in time, TurnoutError when none will."""
        with self.lock:
            make = self._changed.wait_for(self._next_or_over, timeout)
            if make is True:
                raise self._over()
        if not make:
            raise self._late(timeout)
        return make()

    async def take_async(self) -> E:
        """The same on the caller's event loop. Cancelling it loses nothing."""
        loop = asyncio.get_running_loop()
        while True:
            woken: asyncio.Future[None] = loop.create_future()
            wake = _waker(loop, woken)
            with self.lock:
                make = self._next_or_over()
                if make is True:
                    raise self._over()
                if not make:
                    self._wakers.add(wake)
            if make:
                return make()
            try:
                await woken
            finally:
                with self.lock:
                    self._wakers.discard(wake)

    def take_or_state(self, told: Told) -> tuple[Told, Callable[[], E] | None]:
        """Wait for an event, or for another state than `told`; gives both as they are."""
        with self.lock:
            found: list[Callable[[], E] | None] = [None]

            def something() -> bool:
                found[0] = None if self.state is State.CLOSED else self._feed.collect()
                return found[0] is not None or (self.state, self.reason) != told

            self._changed.wait_for(something)
            return (self.state, self.reason), found[0]

    def _next_or_over(self) -> Callable[[], E] | bool:
        """The next event; True: it is over; False: not yet. What came before a refusal is handed out before it."""
        if self.state is State.CLOSED:
            return True
        return self._feed.collect() or self.state.over

    def _over(self) -> TurnoutError:
        if self.error is not None:
            return self.error
        return TurnoutError(
            code="closed", message=f"the subscription of {self.table} is closed", hint="subscribe again", status=410
        )

    def _late(self, timeout: float | None) -> TimeoutError:
        reason = f": {self.reason}" if self.reason else ""
        return TimeoutError(f"{self.table}: nothing came within {timeout:g} s ({self.state}{reason})")


def _waker(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> Callable[[], None]:
    def resolve() -> None:
        if not woken.done():
            woken.set_result(None)

    def wake() -> None:
        # The loop may be gone already; then nobody waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(resolve)

    return wake
