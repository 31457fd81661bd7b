"""Reads of the store for clients: limits how many run at once, how many of each client, and how long each takes.

HTTP answers, files, windows and snapshots all come through here. A client is a token, or an address where there are no
tokens; one that has read for long gets one place, and rests between its reads. A short SELECT does not wait behind long
reads: where those have all places of its client, it gets a few seconds of another. Probes and the server itself have
other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

import duckdb

from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError
from turnout.serve.limits import Buckets, Rate, one_less
from turnout.serve.threads import Threads, Turns
from turnout.store.database import Database, Interruptible
from turnout.store.query.kept_orders import KeptOrders

T = TypeVar("T")

_AGAIN_SECONDS = 0.05
# Seconds that one client may spend on long reads, of all its threads, before it has to rest.
_LONG_SECONDS, _SPENDING = 0.2, Rate(per_second=0.5, burst=5)
# Whole files, SQL and large filters take long: they get one place of so many.
_LARGE_PART = 4
# For so many of these there is one more, for SELECTs that find none: they have some seconds, or begin anew later.
_SLICED_PART = 4
_SLICE_SECONDS = 3.0


class _Lane(Enum):
    """A kind of places."""

    SMALL = auto()
    LARGE = auto()
    SLICED = auto()


_Line = tuple[str, _Lane]
"""A client, and the kind of places that its reads wait for."""


@dataclass(slots=True, eq=False)
class Reading:
    """One read under way: the store, for its thread. Other threads can end it."""

    _database: Database
    max_bytes: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cursors: list[Interruptible] = field(default_factory=list)
    _ended: TurnoutError | None = None

    @contextlib.contextmanager
    def read(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """One snapshot, as `Database.read`."""
        self.check()
        with self._database.read() as cursor, self.ending(cursor):
            yield cursor

    @contextlib.contextmanager
    def ending(self, connection: Interruptible) -> Iterator[None]:
        """Have the statements of a connection interrupted when the read is ended."""
        # Under the lock, so that none is interrupted after it was closed.
        with self._lock:
            self._cursors.append(connection)
        try:
            yield
        finally:
            with self._lock:
                self._cursors.remove(connection)

    def check(self) -> None:
        """Raise if the read was ended; for work outside of the store."""
        if self._ended is not None:
            raise self._ended

    def end(self, reason: TurnoutError) -> None:
        """From any thread. Repeat until the read has ended: an interrupt between two statements is lost."""
        with self._lock:
            self._ended = reason
            for cursor in self._cursors:
                cursor.interrupt()

    def run(self, work: Callable[[Reading], T]) -> T:
        try:
            return work(self)
        except Exception as error:
            if self._ended is None:
                raise
            raise self._ended from error  # in place of the error of an interrupted statement


class Reads:
    """Gives places to reads, on one event loop. A place is free again when its thread has ended, not before."""

    def __init__(self, database: Database, limits: ServerSettings | None = None) -> None:
        self._database = database
        self.kept = KeptOrders(database.feed)
        self.limits = limits or ServerSettings()
        self._threads = Threads(self.limits.max_reads, "read")
        large = max(1, self.limits.max_reads // _LARGE_PART)
        self._most = {_Lane.LARGE: large, _Lane.SLICED: max(1, large // _SLICED_PART)}
        self._large_threads = Threads(sum(self._most.values()), "large-read", yielding=True)
        self._running: Counter[_Line] = Counter()
        self._unspent = Buckets(_SPENDING)
        self._waiting: Turns[_Line, asyncio.Future[None]] = Turns()

    @property
    def running(self) -> int:
        return self._running.total()

    async def run(
        self,
        clients: Collection[str],
        work: Callable[[Reading], T],
        *,
        large: bool = False,
        sliced: bool = False,
    ) -> T:
        """Do `work` on a thread. Of several clients that wait for it, it counts for the one with the fewest reads.

        It ends when its caller is cancelled, and after the time limit: TurnoutError `query_timeout`. The time of
        waiting for a place does not count. Where `sliced`, it has the same limit, and a large read that finds no place
        is tried for a few seconds first, so `work` may be done twice.
        """
        client, limit = min(clients, key=self._load, default="server"), self.limits.query_timeout_seconds
        longest = limit if sliced else None
        line = client, _Lane.LARGE if large else _Lane.SMALL
        if sliced and (self._waiting.waiting(line) or not self._is_free(line)):
            over = _too_long(_SLICE_SECONDS)
            try:
                return await self._run((client, _Lane.SLICED), work, _SLICE_SECONDS, over, longest)
            except TurnoutError as error:
                if error is not over:
                    raise
        return await self._run(line, work, limit, _too_long(limit), longest)

    async def _run(
        self, line: _Line, work: Callable[[Reading], T], seconds: float, over: TurnoutError, longest: float | None
    ) -> T:
        """Do `work` when there is a place in the line; `over` is what ends it after so many seconds."""
        try:
            async with asyncio.timeout(longest):
                await self._place(line)
        except TimeoutError:
            raise self._no_place(line[0], longest or 0) from None
        loop, reading = (
            asyncio.get_running_loop(),
            Reading(self._database, self.limits.max_answer_megabytes * 1_000_000),
        )
        threads, began = self._threads if line[1] is _Lane.SMALL else self._large_threads, loop.time()

        def ended(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody reads any more
                loop.call_soon_threadsafe(self._ended, line, loop.time() - began)

        done = threads.submit(reading.run, work)
        done.add_done_callback(ended)
        timer = loop.call_later(seconds, self._end, loop, reading, done, over)
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

    def _ended(self, line: _Line, seconds: float) -> None:
        """Free the place; for a client that reads all the time, only after it has rested for as long as it read."""
        client, _ = line
        if seconds > _LONG_SECONDS:
            self._unspent.spend(client, seconds)
        if self._unspent.wait_seconds(client, 0) > 0:
            asyncio.get_running_loop().call_later(seconds, self._give_back, line)
        else:
            self._give_back(line)

    async def _place(self, line: _Line) -> None:
        if not self._waiting.waiting(line) and self._is_free(line):
            self._running[line] += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.put(line, place)
        try:
            await place
        except asyncio.CancelledError:
            self._waiting.remove(line, place)
            if not place.cancelled():
                self._give_back(line)
            raise

    def _give_back(self, line: _Line) -> None:
        one_less(self._running, line)
        while (taken := self._waiting.take(self._is_free)) is not None:
            line, place = taken
            if not place.done():
                place.set_result(None)
                self._running[line] += 1

    def _is_free(self, line: _Line) -> bool:
        client, lane = line
        most, sliced = self.limits.max_reads_per_client, self._running[client, _Lane.SLICED]
        if self._running.total() >= self.limits.max_reads or self._of(client) >= most:
            return False
        if lane is not _Lane.SLICED and self._unspent.wait_seconds(client, 0) and self._of(client) > sliced:
            return False
        if lane is _Lane.SMALL:
            return True
        all_of_lane = sum(count for (_, other), count in self._running.items() if other is lane)
        own = 1 if lane is _Lane.SLICED else max(1, most // 2)
        return all_of_lane < self._most[lane] and self._running[line] < own

    def _of(self, client: str) -> int:
        return sum(self._running[client, lane] for lane in _Lane)

    def _load(self, client: str) -> int:
        return self._of(client) + sum(self._waiting.waiting((client, lane)) for lane in _Lane)

    def _no_place(self, client: str, seconds: float) -> TurnoutError:
        return TurnoutError(
            "query_timeout",
            f"the read waited {seconds:g} s for a place and did not begin: "
            f"{self.running} reads are under way, {self._of(client)} of them of this client",
            "wait until your others have ended, or end them; or raise server.max_reads_per_client, server.max_reads",
        )


def _too_long(seconds: float) -> TurnoutError:
    return TurnoutError(
        "query_timeout",
        f"the read took longer than {seconds:g} s and was ended",
        "ask for less: fewer terms, a column that narrows the rows, no sort; or raise server.query_timeout_seconds",
    )


def cancelled() -> TurnoutError:
    return TurnoutError("query_timeout", "the read was ended: nobody waits for it any more")
