"""A subscription as its consumer has it: a callback on a thread of its own, a blocking iterator, or an async one.

It joins a feed, which the connection's thread fills, to a consumer on any other thread or event loop. A consumer
that is slow or fails never holds back the connection or another consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from turnout.client.events import Changes, Json, State, Window, WindowOptions
from turnout.client.mirror import ChangesFeed, Feed, Mirror, WindowFeed
from turnout.client.wire import window_options
from turnout.errors import TurnoutError, first_line

log = logging.getLogger("turnout.client")

E = TypeVar("E")
OnState = Callable[[State, str], object]

_CLOSE_SECONDS = 5.0


class Connection(Protocol):
    """What a subscription asks of the connection that fills it; from any thread."""

    def remove(self, subscription: Subscription[Any]) -> None:
        """Send it nothing more; after the last one, end."""

    def ask_again(self, subscription: Subscription[Any]) -> None:
        """Send its request anew."""


class Subscription(Generic[E]):
    """Live data of one table. It follows swaps and outlives the server's absence; close it, or use it in `with`.

    Each event goes to one consumer: give a callback, or iterate in one place.
    """

    def __init__(self, connection: Connection, feed: Feed[E]) -> None:
        self._connection = connection
        self._feed = feed
        self._changed = threading.Condition()
        self._wakers: set[Callable[[], None]] = set()
        self._state, self._reason = State.CONNECTING, ""
        self._error: TurnoutError | None = None
        self._seen = False
        self._caller: _Caller[E] | None = None

    @property
    def table(self) -> str:
        return self._feed.table

    @property
    def state(self) -> State:
        return self._state

    @property
    def reason(self) -> str:
        """Why it is in its state, in words; empty while all is well."""
        return self._reason

    @property
    def error(self) -> TurnoutError | None:
        """Why it was refused, if it was."""
        return self._error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.table}: {self._state}{f' ({self._reason})' if self._reason else ''}>"

    # -- the life of it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End it, from any thread, its own callback included; its threads are gone when this returns."""
        self.set_state(State.CLOSED)
        self._connection.remove(self)
        if self._caller is not None:
            self._caller.join()

    # -- for consumers

    def wait(self, timeout: float | None = None) -> Self:
        """Return once there is data; TurnoutError where it is over, TimeoutError after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._state is State.LIVE or self._state.over, timeout):
                raise self._late(timeout)
            if self._state.over:
                raise self._over()
        return self

    def get(self, timeout: float | None = None) -> E:
        """The next event; TimeoutError when none comes within `timeout` seconds, TurnoutError when none will."""
        with self._changed:
            make = self._changed.wait_for(self._next_or_over, timeout)
            if make is True:
                raise self._over()
        if not make:
            raise self._late(timeout)
        return make()

    def events(self, timeout: float | None = None) -> Iterator[E]:
        """Every event until it is closed; TimeoutError when none comes within `timeout` seconds."""
        while True:
            try:
                event = self.get(timeout)
            except TurnoutError:
                if self._state is State.CLOSED:
                    return
                raise
            yield event

    def __iter__(self) -> Iterator[E]:
        return self.events()

    async def __aiter__(self) -> AsyncIterator[E]:
        while True:
            try:
                event = await self.aget()
            except TurnoutError:
                if self._state is State.CLOSED:
                    return
                raise
            yield event

    async def aget(self) -> E:
        """The next event, on the caller's event loop. Cancelling it loses nothing."""
        loop = asyncio.get_running_loop()
        while True:
            woken: asyncio.Future[None] = loop.create_future()

            def wake(woken: asyncio.Future[None] = woken) -> None:
                # The loop may be gone already; then nobody waits.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_resolve, woken)

            with self._changed:
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
                with self._changed:
                    self._wakers.discard(wake)

    def _next_or_over(self) -> Callable[[], E] | bool:
        """The next event; True: it is over; False: not yet. What came before the end is handed out before it."""
        if self._state is State.CLOSED:
            return True
        return self._feed.collect() or self._state.over

    def _over(self) -> TurnoutError:
        if self._error is not None:
            return self._error
        return TurnoutError(
            code="closed", message=f"the subscription of {self.table} is closed", hint="subscribe again", status=410
        )

    def _late(self, timeout: float | None) -> TimeoutError:
        reason = f": {self._reason}" if self._reason else ""
        return TimeoutError(f"{self.table}: nothing came within {timeout:g} s ({self._state}{reason})")

    # -- for the connection, which calls these from its thread

    @property
    def seen(self) -> bool:
        """Whether it ever had data."""
        return self._seen

    def request(self) -> Json:
        with self._changed:
            return self._feed.request()

    def doubt(self) -> None:
        """Go on from nothing: the position means nothing to this server."""
        with self._changed:
            self._feed.doubt()

    def receive(self, message: Json) -> bool:
        """Take in a message of the server; False: ask it again."""
        with self._changed:
            if self._state.over:
                return True
            fits = self._feed.receive(message)
            if fits and message.get("last", True):
                self._state, self._reason, self._seen = State.LIVE, "", True
            self._notify()
        return fits

    def set_state(self, state: State, reason: str = "", error: TurnoutError | None = None) -> None:
        """Tell how it goes; what is over stays over."""
        with self._changed:
            if not self._state.over:
                self._state, self._reason, self._error = state, reason, error
                self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        for wake in self._wakers:
            wake()
        self._wakers.clear()

    # -- for callbacks

    def call(self, callback: Callable[[E], object], on_state: OnState | None) -> Self:
        """Hand every event to `callback`, one at a time, on a thread of its own."""
        self._caller = _Caller(self, callback, on_state)
        self._caller.start()
        return self

    def next_for_callback(self, told: tuple[State, str]) -> tuple[tuple[State, str], Callable[[], E] | None]:
        """Wait for an event or another state; gives both as they are."""
        with self._changed:
            found: list[Callable[[], E] | None] = [None]

            def something() -> bool:
                found[0] = None if self._state is State.CLOSED else self._feed.collect()
                return found[0] is not None or (self._state, self._reason) != told

            self._changed.wait_for(something)
            return (self._state, self._reason), found[0]


class _Caller(Generic[E]):
    """The thread that runs the callbacks of one subscription; an error of theirs is told once and ends nothing."""

    def __init__(
        self, subscription: Subscription[E], callback: Callable[[E], object], on_state: OnState | None
    ) -> None:
        self._subscription = subscription
        self._callback = callback
        self._on_state = on_state
        self._failed = False
        name = f"turnout-callback-{subscription.table}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        # A callback may close its own subscription; one that never returns must not hold up who closes it.
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        told = (State.CONNECTING, "")
        while True:
            now, make = self._subscription.next_for_callback(told)
            if now != told:
                told = now
                self._tell(*now)
            if make is not None:
                self._safely(lambda make=make: self._callback(make()))  # type: ignore[misc]
            elif now[0].over:
                return

    def _tell(self, state: State, reason: str) -> None:
        if self._on_state is not None:
            on_state = self._on_state
            self._safely(lambda: on_state(state, reason))
        elif state is State.REFUSED:
            # Nobody else would hear of it.
            log.error("the subscription of %s is over: %s", self._subscription.table, self._subscription.error)

    def _safely(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            if not self._failed:
                table = self._subscription.table
                text = "a callback for %s failed; the subscription goes on, later failures are not told: %s"
                log.exception(text, table, first_line(error))
            self._failed = True


class WindowSubscription(Subscription[Window]):
    """A window of a table: an event is the whole window; a slow consumer gets only the newest."""

    def __init__(self, connection: Connection, table: str, options: WindowOptions) -> None:
        self._window = WindowFeed(table, options)
        super().__init__(connection, self._window)

    @property
    def latest(self) -> Window | None:
        """The window as it was last known, whether or not a consumer has seen it."""
        with self._changed:
            return self._window.newest

    def move(self, **options: Any) -> None:
        """Look at other rows by the same subscription: any of columns, where, sort, offset, limit."""
        checked = window_options(self.table, options)
        with self._changed:
            self._window.move(checked)
        self._connection.ask_again(self)


class ChangesSubscription(Subscription[Changes]):
    """Every change of a table, and a mirror of it; a slow consumer gets several changes as one."""

    def __init__(self, connection: Connection, table: str, options: Json) -> None:
        self._changes = ChangesFeed(table, options)
        super().__init__(connection, self._changes)

    @property
    def mirror(self) -> Mirror:
        """The table as it is now; it may be ahead of the events that were taken."""
        return self._changes.mirror


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
