"""Reads of the store for clients: each has a place, a share of the places, and a time after which it is ended.

HTTP answers, files, windows and snapshots all come through here. A client is a token, or an address where there are no
tokens; one that has read for long has one place, and rests between its reads. What is read is decided by who asks; the
threads that probes and the server itself need are others.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import duckdb

from turnout.errors import TurnoutError
from turnout.serve.limits import Buckets, Rate
from turnout.serve.threads import Threads
from turnout.serve.turns import Turns
from turnout.store.database import Database

T = TypeVar("T")

_AGAIN_SECONDS = 0.05
# Seconds that one client may spend on long reads, of all its threads, before it has to rest.
_LONG_SECONDS, _SPENDING = 0.2, Rate(per_second=0.5, burst=5)
# Whole files and large filters take long: most places are for all others.
_LARGE_PART = 4

_Line = tuple[str, bool]
"""A client, and whether its reads are large."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How many reads at once, how many of them for one client, how long one may take, and how much it may answer."""

    places: int = 16
    share: int = 4
    timeout_seconds: float = 30.0
    answer_bytes: int | None = None


class Reading:
    """One read under way: the store as its thread sees it. Others can end it."""

    def __init__(self, database: Database, max_bytes: int | None = None) -> None:
        self._database = database
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._cursor: duckdb.DuckDBPyConnection | None = None
        self._ended: TurnoutError | None = None

    @contextlib.contextmanager
    def read(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One snapshot, as `Database.read`."""
        self.check()
        with self._database.read() as cursor:
            self._use(cursor)
            try:
                yield cursor
            finally:
                self._use(None)

    def check(self) -> None:
        """For work that goes on outside of the store: raise where the read was ended."""
        if self._ended is not None:
            raise self._ended

    def end(self, reason: TurnoutError) -> None:
        """From any thread. To be repeated until it has ended: DuckDB forgets what comes between two statements."""
        with self._lock:
            self._ended = reason
            if self._cursor is not None:
                self._cursor.interrupt()

    def run(self, work: Callable[[Reading], T]) -> T:
        try:
            return work(self)
        except Exception as error:
            if self._ended is None:
                raise
            raise self._ended from error  # whatever an interrupted statement looks like from where it was

    def _use(self, cursor: duckdb.DuckDBPyConnection | None) -> None:
        # Under the lock, so that no cursor is interrupted after it was closed.
        with self._lock:
            self._cursor = cursor


@dataclass(eq=False, slots=True)
class _Waiting:
    loop: asyncio.AbstractEventLoop
    place: asyncio.Future[None]
    given: bool = False

    def wake(self) -> None:
        if not self.place.done():
            self.place.set_result(None)


class Reads:
    """The places. A place is given back when its thread has ended, whether or not anybody waits for it."""

    def __init__(self, database: Database, limits: ReadLimits | None = None) -> None:
        self._database = database
        self._limits = limits or ReadLimits()
        self._threads = Threads(self._limits.places, "read")
        self._most_large = max(1, self._limits.places // _LARGE_PART)
        self._large_threads = Threads(self._most_large, "large-read", yielding=True)
        # Threads give places back, so all that follows is under a lock.
        self._lock = threading.Lock()
        self._running: Counter[_Line] = Counter()
        self._unspent = Buckets(_SPENDING)
        self._waiting: Turns[_Line, _Waiting] = Turns()

    @property
    def running(self) -> int:
        return self._running.total()

    async def run(self, clients: Collection[str], work: Callable[[Reading], T], *, large: bool = False) -> T:
        """Do `work` on a thread; of several clients that wait for it, at the expense of the one with least to do.

        It is ended when nobody waits for it any more, and after the time limit: TurnoutError `query_timeout`.
        """
        line = min(clients, key=self._load, default="server"), large
        await self._place(line)
        loop, reading = asyncio.get_running_loop(), Reading(self._database, self._limits.answer_bytes)
        threads, began = self._large_threads if large else self._threads, loop.time()
        done = threads.start(lambda: reading.run(work))
        done.add_done_callback(lambda _: self._ended(loop, line, loop.time() - began))
        timer = loop.call_later(self._limits.timeout_seconds, self._end, loop, reading, done, self._too_long())
        try:
            return await asyncio.wrap_future(done)
        except asyncio.CancelledError:
            self._end(loop, reading, done, cancelled())
            raise
        finally:
            timer.cancel()

    def _end(self, loop: asyncio.AbstractEventLoop, reading: Reading, done: Future[T], reason: TurnoutError) -> None:
        if not done.done():
            reading.end(reason)
            loop.call_later(_AGAIN_SECONDS, self._end, loop, reading, done, reason)

    def _ended(self, loop: asyncio.AbstractEventLoop, line: _Line, seconds: float) -> None:
        """On the thread that read. Who reads all the time rests for as long as it read: that is for the others."""
        client, _ = line
        with self._lock:
            if seconds > _LONG_SECONDS:
                self._unspent.spend(client, seconds)
            rests = self._unspent.wait_seconds(client, 0) > 0
        try:
            if rests:
                loop.call_soon_threadsafe(loop.call_later, seconds, self._give_back, line)
                return
        except RuntimeError:
            pass  # the loop has ended: nobody reads any more
        self._give_back(line)

    async def _place(self, line: _Line) -> None:
        with self._lock:
            if not self._waiting.waiting(line) and self._is_free(line):
                self._running[line] += 1
                return
            loop = asyncio.get_running_loop()
            waiting = _Waiting(loop, loop.create_future())
            self._waiting.put(line, waiting)
        try:
            await waiting.place
        except asyncio.CancelledError:
            with self._lock:
                self._waiting.remove(line, waiting)
            if waiting.given:
                self._give_back(line)
            raise

    def _give_back(self, line: _Line) -> None:
        with self._lock:
            self._running[line] -= 1
            if not self._running[line]:
                del self._running[line]
            while (taken := self._waiting.take(self._is_free)) is not None:
                line, waiting = taken
                with contextlib.suppress(RuntimeError):  # its loop has ended, and so has who waited
                    waiting.loop.call_soon_threadsafe(waiting.wake)
                    waiting.given = True
                    self._running[line] += 1

    def _is_free(self, line: _Line) -> bool:
        client, large = line
        share = 1 if self._unspent.wait_seconds(client, 0) else self._limits.share
        if self._running.total() >= self._limits.places or self._of(client) >= share:
            return False
        if not large:
            return True
        all_large = sum(count for (_, is_large), count in self._running.items() if is_large)
        return all_large < self._most_large and self._running[line] < max(1, self._limits.share // 2)

    def _of(self, client: str) -> int:
        return self._running[client, False] + self._running[client, True]

    def _load(self, client: str) -> int:
        return self._of(client) + self._waiting.waiting((client, False)) + self._waiting.waiting((client, True))

    def _too_long(self) -> TurnoutError:
        return TurnoutError(
            code="query_timeout",
            message=f"the read took longer than {self._limits.timeout_seconds:g} s and was ended",
            hint="ask for less: fewer terms, a column that narrows the rows, no sort; or raise "
            "server.query_timeout_seconds",
            status=503,
        )


def cancelled() -> TurnoutError:
    return TurnoutError(code="query_timeout", message="the read was ended: nobody waits for it any more", status=503)
