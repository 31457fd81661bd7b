"""The base class of subscriptions, which deliver live data to a callback, a blocking iterator or an async iterator.

The connection's thread delivers messages and sets the state; the consumer takes events on any thread or event loop.
Neither blocks the other. `newest.py` and `changes.py` define the subscriptions.
"""

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

from turnout_client.errors import TurnoutError, first_line
from turnout_client.events import Json, State
from turnout_client.live import Live
from turnout_client.wire import checked_options

log = logging.getLogger("turnout_client")

_JOIN_SECONDS = 5.0

E = TypeVar("E")
OnState = Callable[[State, str], object]


class _ClosedError(TurnoutError):
    """The error after the program closed the subscription."""


class Subscription(ABC, Generic[E]):
    """Live data of one table, across swaps and restarts of the server. Close it, or use it in a `with` block.

    Each event is delivered once: use either one callback or one iterator.
    """

    _kind: ClassVar[str]
    """The type of the request message."""

    _resumes: ClassVar[bool] = True
    """Whether the server can resume this kind of subscription at a client's position."""

    def __init__(self, live: Live, table: str, options: Mapping[str, Any], subject: Json | None = None) -> None:
        """Create a subscription; `subject` replaces the table in the request if it is about something else."""
        self.table = table
        self._subject = subject or {"table": table}
        self.state, self.reason = State.CONNECTING, ""
        self.error: TurnoutError | None = None
        self._live = live
        self._options = checked_options(self._kind, self._subject, options)
        self._had_data = False
        self._collected_generation: int | None = None
        # Whether the server can resume at the position of the present data, instead of sending everything again.
        self._resumable = False
        # The lock of this condition guards all attributes and the data.
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], object]] = set()
        self._callbacks: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.table}: {self.state}{f' ({self.reason})' if self.reason else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the subscription and wait for its threads; it can be called from any thread, also from its callback."""
        self._set_state(State.CLOSED)
        self._live.remove(self)
        # A callback may close its own subscription; one that never returns must not block closing.
        if self._callbacks is not None and self._callbacks is not threading.current_thread():
            self._callbacks.join(_JOIN_SECONDS)

    # -- for the consumer

    def wait(self, timeout: float | None = None) -> Self:
        """Wait for current data; raise TurnoutError if the subscription ends, TimeoutError after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.state.over or self.state is State.LIVE, timeout):
                raise self._late(timeout)
            if self.state.over:
                raise self._ended()
        return self

    def get(self, timeout: float | None = None) -> E:
        """Return the next event; raise TurnoutError if the subscription ends, TimeoutError after `timeout` seconds."""
        with self._changed:
            make = self._changed.wait_for(self._next, timeout)
        if make is None:
            raise self._late(timeout)
        return make()

    def events(self, timeout: float | None = None) -> Iterator[E]:
        """Yield events until the subscription is closed; raise TimeoutError if none arrives for `timeout` seconds."""
        with contextlib.suppress(_ClosedError):
            while True:
                yield self.get(timeout)

    def __iter__(self) -> Iterator[E]:
        return self.events()

    async def aget(self) -> E:
        """Return the next event, on the caller's event loop. Cancelling the call loses no event."""
        woken = asyncio.Event()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, woken.set)
        while True:
            with self._changed:
                make = self._next()
                if make is None:
                    self._wakers.add(wake)
            if make is not None:
                return make()
            try:
                await woken.wait()
            finally:
                with self._changed:
                    self._wakers.discard(wake)
            woken.clear()

    async def __aiter__(self) -> AsyncIterator[E]:
        with contextlib.suppress(_ClosedError):
            while True:
                yield await self.aget()

    def _next(self) -> Callable[[], E] | None:
        """Return the next event, or None if there is none yet; a refusal is raised after the events before it."""
        make = self._collect_open()
        if make is None and self.state.over:
            raise self._ended()
        return make

    def _collect_open(self) -> Callable[[], E] | None:
        return None if self.state is State.CLOSED else self._collect()

    def _ended(self) -> TurnoutError:
        return self.error or _ClosedError(
            code="closed", message=f"the subscription of {self.table} is closed", hint="subscribe again", status=410
        )

    def _late(self, timeout: float | None) -> TimeoutError:
        reason = f": {self.reason}" if self.reason else ""
        return TimeoutError(f"{self.table}: nothing arrived within {timeout:g} s ({self.state}{reason})")

    # -- with callbacks

    def _call(self, callback: Callable[[E], object], on_state: OnState | None) -> Self:
        """Call `callback` with each event, one at a time, on a separate thread."""
        calls = (callback, on_state or self._log_refusal)
        name = f"turnout-callback-{self.table}"
        self._callbacks = threading.Thread(target=self._run_callbacks, args=calls, name=name, daemon=True)
        self._callbacks.start()
        return self

    def _run_callbacks(self, callback: Callable[[E], object], on_state: OnState) -> None:
        failed = False

        def safely(call: Callable[..., object], *arguments: object) -> None:
            nonlocal failed
            try:
                call(*arguments)
            except Exception as error:
                if not failed:
                    text = "a callback for %s failed; the subscription continues, later failures are not logged: %s"
                    log.exception(text, self.table, first_line(error))
                failed = True

        seen = (State.CONNECTING, "")
        while True:
            with self._changed:
                while (make := self._collect_open()) is None and (self.state, self.reason) == seen:
                    if self.state.over:
                        return
                    self._changed.wait()
                now = (self.state, self.reason)
            if now != seen:
                safely(on_state, *now)
            if make is not None:
                safely(lambda make: callback(make()), make)
            seen = now

    def _log_refusal(self, state: State, _: str) -> None:
        if state is State.REFUSED:
            log.error("the subscription of %s is over: %s", self.table, self.error)

    # -- for the connection

    def _request(self) -> Json:
        """Return the request for the server, without an id."""
        with self._changed:
            asked = {"type": self._kind, **self._subject, **self._options}
            if self._resumable:
                generation, version = self._position()
                asked["resume"] = {"generation": generation, "version": version}
            return asked

    def _forget_position(self) -> None:
        """Make the next request ask for all data; the present data is kept until then."""
        with self._changed:
            self._resumable = False

    def _receive(self, message: Json) -> bool:
        """Process a message; return False if it does not follow the present data, so that a new request is needed."""
        with self._changed:
            if self.state.over:
                return True
            fits = self._apply(message)
            if not fits:
                self._resumable = False
            elif message.get("last", True):
                self.state, self.reason = State.LIVE, ""
                self._resumable, self._had_data = self._resumes, True
            self._notify()
        return fits

    def _set_state(self, state: State, reason: str = "", error: TurnoutError | None = None) -> None:
        """Set the state and its reason, unless the subscription has ended."""
        with self._changed:
            if not self.state.over:
                self.state, self.reason, self.error = state, reason, error
                self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        for wake in self._wakers:
            with contextlib.suppress(RuntimeError):  # the event loop has ended, so nothing waits there
                wake()
        self._wakers.clear()

    # -- the data; called with the lock held

    def _swapped(self, generation: int) -> bool:
        """Whether this generation differs from that of the previous event."""
        before, self._collected_generation = self._collected_generation, generation
        return before not in (None, generation)

    @abstractmethod
    def _position(self) -> tuple[int, int]:
        """Return generation and version of the present data."""

    @abstractmethod
    def _apply(self, message: Json) -> bool:
        """Apply a message with data; return False if it does not follow the present data."""

    @abstractmethod
    def _collect(self) -> Callable[[], E] | None:
        """Return a function that creates the next event, to be called without the lock; None if nothing is new."""
