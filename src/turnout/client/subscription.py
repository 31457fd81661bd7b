"""A subscription as its consumer has it: a callback on a thread of its own, a blocking iterator, or an async one.

A consumer that is slow or fails never holds back the connection or another consumer: `intake.py` is between them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar, Unpack

from turnout.client.events import Changes, Json, State, Window, WindowOptions
from turnout.client.intake import Intake
from turnout.client.mirror import ChangesFeed, Feed, Mirror, WindowFeed
from turnout.client.wire import window_options
from turnout.errors import TurnoutError, first_line

log = logging.getLogger("turnout.client")

E = TypeVar("E")
OnState = Callable[[State, str], object]


class Connection(Protocol):
    """What a subscription asks of the connection that fills it; from any thread."""

    def add(self, intake: Intake[Any]) -> None:
        """Fill it from now on."""

    def remove(self, intake: Intake[Any]) -> None:
        """Send it nothing more; after the last one, end."""

    def ask_again(self, intake: Intake[Any]) -> None:
        """Send its request anew."""


class Subscription(Generic[E]):
    """Live data of one table. It follows swaps and outlives the server's absence; close it, or use it in `with`.

    Each event goes to one consumer: give a callback, or iterate in one place.
    """

    def __init__(self, connection: Connection, feed: Feed[E]) -> None:
        self._connection = connection
        self._intake = Intake(feed)
        connection.add(self._intake)

    @property
    def table(self) -> str:
        return self._intake.table

    @property
    def state(self) -> State:
        return self._intake.state

    @property
    def reason(self) -> str:
        """Why it is in its state, in words; empty while all is well."""
        return self._intake.reason

    @property
    def error(self) -> TurnoutError | None:
        """Why it was refused, if it was."""
        return self._intake.error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.table}: {self.state}{f' ({self.reason})' if self.reason else ''}>"

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
        self._intake.set_state(State.CLOSED)
        self._connection.remove(self._intake)
        self._intake.join()

    def wait(self, timeout: float | None = None) -> Self:
        """Return once there is data; TurnoutError where it is over, TimeoutError after `timeout` seconds."""
        self._intake.wait(timeout)
        return self

    def get(self, timeout: float | None = None) -> E:
        """The next event; TimeoutError when none comes within `timeout` seconds, TurnoutError when none will."""
        return self._intake.take(timeout)

    def events(self, timeout: float | None = None) -> Iterator[E]:
        """Every event until it is closed; TimeoutError when none comes within `timeout` seconds."""
        while True:
            try:
                event = self.get(timeout)
            except TurnoutError:
                if self.state is State.CLOSED:
                    return
                raise
            yield event

    def __iter__(self) -> Iterator[E]:
        return self.events()

    async def aget(self) -> E:
        """The next event, on the caller's event loop. Cancelling it loses nothing."""
        return await self._intake.take_async()

    async def __aiter__(self) -> AsyncIterator[E]:
        while True:
            try:
                event = await self.aget()
            except TurnoutError:
                if self.state is State.CLOSED:
                    return
                raise
            yield event

    def _call(self, callback: Callable[[E], object], on_state: OnState | None) -> Self:
        """Hand every event to `callback`, one at a time, on a thread of its own."""
        caller = _Caller(self._intake, callback, on_state)
        name = f"turnout-callback-{self.table}"
        self._intake.thread = threading.Thread(target=caller.run, name=name, daemon=True)
        self._intake.thread.start()
        return self


class WindowSubscription(Subscription[Window]):
    """A window of a table: an event is the whole window; a slow consumer gets only the newest."""

    def __init__(self, connection: Connection, table: str, options: WindowOptions) -> None:
        self._feed = WindowFeed(table, options)
        super().__init__(connection, self._feed)

    @property
    def latest(self) -> Window | None:
        """The window as it was last known, whether or not a consumer has seen it."""
        with self._intake.lock:
            return self._feed.newest

    def move(self, **options: Unpack[WindowOptions]) -> None:
        """Look at other rows by the same subscription: any of columns, where, sort, offset, limit."""
        checked = window_options(self.table, options)
        with self._intake.lock:
            self._feed.move(checked)
        self._connection.ask_again(self._intake)


class ChangesSubscription(Subscription[Changes]):
    """Every change of a table, and a mirror of it; a slow consumer gets several changes as one."""

    def __init__(self, connection: Connection, table: str, options: Json) -> None:
        self._feed = ChangesFeed(table, options)
        super().__init__(connection, self._feed)

    @property
    def mirror(self) -> Mirror:
        """The table as it is now; it may be ahead of the events that were taken."""
        return self._feed.mirror


class _Caller(Generic[E]):
    """Runs the callbacks of one subscription; an error of theirs is told once and ends nothing."""

    def __init__(self, intake: Intake[E], callback: Callable[[E], object], on_state: OnState | None) -> None:
        self._intake = intake
        self._callback = callback
        self._on_state = on_state
        self._failed = False

    def run(self) -> None:
        told = (State.CONNECTING, "")
        while True:
            now, make = self._intake.take_or_state(told)
            if now != told:
                told = now
                self._safely(self._tell, *now)
            if make is not None:
                self._safely(self._hand_over, make)
            elif now[0].over:
                return

    def _hand_over(self, make: Callable[[], E]) -> None:
        self._callback(make())

    def _tell(self, state: State, reason: str) -> None:
        if self._on_state is not None:
            self._on_state(state, reason)
        elif state is State.REFUSED:
            # Nobody else would hear of it.
            log.error("the subscription of %s is over: %s", self._intake.table, self._intake.error)

    def _safely(self, call: Callable[..., object], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            if not self._failed:
                text = "a callback for %s failed; the subscription goes on, later failures are not told: %s"
                log.exception(text, self._intake.table, first_line(error))
            self._failed = True
