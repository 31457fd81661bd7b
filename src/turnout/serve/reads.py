"""Reads of the store for clients: limits how many run at once, how many of each client, and how long each takes.

HTTP answers, files, windows and snapshots all come through here. A client is a token, or an address where there are no
tokens; one that has read for long gets one place of each kind, and rests between its reads. A short SELECT does not
wait behind long reads: where those have all places of its client, it gets a few seconds of another. Probes and the
server itself have other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, TypeVar

import duckdb

from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError
from turnout.plan.offsets import Offsets
from turnout.serve.limits import Buckets, Rate
from turnout.serve.rounds import Rounds, Threads, Turns, do
from turnout.store.database import Database, Interruptible
from turnout.store.outgoing import SinkPositions
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


class _Kind(Enum):
    """A kind of places."""

    SMALL = auto()
    LARGE = auto()
    SLICED = auto()


_Line = tuple[str, _Kind]
"""A client, and the kind of places that its reads wait for."""


@dataclass(slots=True, eq=False)
class StoreRead:
    """One read under way: the store, for its thread. Other threads can end it."""

    _database: Database
    max_bytes: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _cursors: list[Interruptible] = field(default_factory=list)
    _ended: TurnoutError | None = None

    @property
    def sinks(self) -> SinkPositions:
        return self._database.sinks

    @property
    def ends(self) -> Offsets:
        return self._database.ends

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

    def run(self, work: Callable[[StoreRead], T]) -> T:
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
        self._most = {_Kind.LARGE: large, _Kind.SLICED: max(1, large // _SLICED_PART)}
        self._large_threads = Threads(sum(self._most.values()), "large-read", yielding=True)
        self._unspent = Buckets(_SPENDING)
        self._rounds: Turns[_Line, Any] = Rounds(do, may_begin=self._may_begin, rest_seconds=self._rest_seconds)

    @property
    def running(self) -> int:
        return self._rounds.running.total()

    async def run(
        self,
        clients: Collection[str],
        work: Callable[[StoreRead], T],
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
        line = client, _Kind.LARGE if large else _Kind.SMALL
        if sliced and not self._rounds.is_free(line):
            over = _too_long(_SLICE_SECONDS)
            try:
                return await self._in_turn((client, _Kind.SLICED), work, _SLICE_SECONDS, over, longest)
            except TurnoutError as error:
                if error is not over:
                    raise
        return await self._in_turn(line, work, limit, _too_long(limit), longest)

    async def _in_turn(
        self, line: _Line, work: Callable[[StoreRead], T], seconds: float, over: TurnoutError, longest: float | None
    ) -> T:
        """Do `work` when the line has a place; `longest` is how long it may wait for one."""

        async def in_place() -> T:
            waiting.reschedule(None)
            return await self._run(work, line[1], seconds, over)

        try:
            async with asyncio.timeout(longest) as waiting:
                made: T = await self._rounds.ask(line, in_place)
                return made
        except TimeoutError:
            if not waiting.expired():
                raise
            raise self._no_place(line[0], longest or 0) from None

    async def _run(self, work: Callable[[StoreRead], T], kind: _Kind, seconds: float, over: TurnoutError) -> T:
        """Do a read on its thread, to its end, also where its caller has gone; `over` ends it after `seconds`."""
        loop = asyncio.get_running_loop()
        reading = StoreRead(self._database, self.limits.max_answer_megabytes * 1_000_000)
        threads = self._threads if kind is _Kind.SMALL else self._large_threads
        done = loop.run_in_executor(threads, reading.run, work)
        timer = loop.call_later(seconds, self._end, loop, reading, done, over)
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            self._end(loop, reading, done, cancelled())
            await asyncio.wait([done])
        finally:
            timer.cancel()
        return done.result()

    def _end(
        self, loop: asyncio.AbstractEventLoop, reading: StoreRead, done: asyncio.Future[T], reason: TurnoutError
    ) -> None:
        if not done.done():
            reading.end(reason)
            loop.call_later(_AGAIN_SECONDS, self._end, loop, reading, done, reason)

    def _rest_seconds(self, line: _Line, seconds: float) -> float:
        """How long the place of a read stays taken: that of a client which reads all the time, as long as it read."""
        client, _ = line
        if seconds > _LONG_SECONDS:
            self._unspent.spend(client, seconds)
        return seconds if self._is_in_debt(client) else 0.0

    def _may_begin(self, line: _Line) -> bool:
        client, kind = line
        running, most = self._rounds.running, self.limits.max_reads_per_client
        if running.total() >= self.limits.max_reads or self._of(client) >= most:
            return False
        # A client in debt has one place of each kind: its small reads do not wait behind its long ones.
        if self._is_in_debt(client) and running[line]:
            return False
        if kind is _Kind.SMALL:
            return True
        all_of_kind = sum(count for (_, other), count in running.items() if other is kind)
        own = 1 if kind is _Kind.SLICED else max(1, most // 2)
        return all_of_kind < self._most[kind] and running[line] < own

    def _is_in_debt(self, client: str) -> bool:
        return self._unspent.wait_seconds(client, 0) > 0

    def _of(self, client: str) -> int:
        return sum(self._rounds.running[client, kind] for kind in _Kind)

    def _load(self, client: str) -> int:
        return self._of(client) + sum(self._rounds.waiting((client, kind)) for kind in _Kind)

    def _no_place(self, client: str, seconds: float) -> TurnoutError:
        return TurnoutError(
            "query_timeout",
            f"the read waited {seconds:g} s for a place and did not begin: "
            f"{self.running} reads are under way, {self._of(client)} of them of this client",
            "wait until your others have ended, or end them; or raise server.max_reads_per_client, server.max_reads",
        )


def timed(work: Callable[[StoreRead], T], note: Callable[[float], None]) -> Callable[[StoreRead], T]:
    """The work of a read, which notes how many seconds it took."""

    def run(store: StoreRead) -> T:
        began = time.perf_counter()
        try:
            return work(store)
        finally:
            note(time.perf_counter() - began)

    return run


def _too_long(seconds: float) -> TurnoutError:
    return TurnoutError(
        "query_timeout",
        f"the read took longer than {seconds:g} s and was ended",
        "ask for less: fewer terms, a column that narrows the rows, no sort; or raise server.query_timeout_seconds",
    )


def cancelled() -> TurnoutError:
    return TurnoutError("query_timeout", "the read was ended: nobody waits for it")
