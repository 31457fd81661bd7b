"""Rounds of live subscriptions: changes are merged into windows and into summaries, and answers are computed again.

Many windows are merged at a time, on one thread: what a change means to all of them is one query. What a batch means to
fifty summaries is a query or two. `serve/rounds.py` has clients take turns at each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from turnout.serve.reads import Reading, Reads
from turnout.serve.rounds import Rounds, Threads
from turnout.store.feed import Delta
from turnout.store.query.summary_read import Advanced, KeptGroups, SummaryQueries
from turnout.store.query.window_rows import DeltaQueries, Order, Sifted

log = logging.getLogger(__name__)

MOST_WINDOWS = 64
MOST_LARGE_WINDOWS = 4
MOST_SUMMARIES = 100

# A computation that takes longer waits with its like, so that the quick ones go on.
_SLOW_SECONDS = 0.25
# How long nobody computes after each turn, as a part of what it took.
_IDLE_PART = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WindowChanges(Generic[T]):
    """Deltas of one window, and the callback that applies them."""

    order: Order
    deltas: Sequence[Delta]
    take: Callable[[Sequence[Sifted]], T | None]


class WindowMerger(Generic[T]):
    """Merges changes into windows, on a thread of its own. Used on the event loop.

    Windows with large filters have another merger, which rests as long as it works: what they cost, only they wait for.
    """

    def __init__(self, queries: DeltaQueries, *, large: bool = False) -> None:
        self._queries = queries
        self._thread = Threads(1, "merge", yielding=large)
        self._rounds: Rounds[str, Callable[[], WindowChanges[T] | None], T | None] = Rounds(
            self._merge,
            most=MOST_LARGE_WINDOWS if large else MOST_WINDOWS,
            rest_seconds=lambda _, seconds: seconds if large else 0.0,
        )

    async def merge(self, due: Callable[[], WindowChanges[T] | None], clients: Collection[str] = ()) -> T | None:
        """What the window makes of its changes; None where the table has to be read.

        `due` is asked in the window's turn, so a window that has waited takes all that came meanwhile at once.
        """
        return await self._rounds.ask(min(clients, key=self._rounds.waiting, default=""), due)

    async def _merge(self, asked: Sequence[Callable[[], WindowChanges[T] | None]]) -> list[T | Exception | None]:
        due = [changes() for changes in asked]
        known = [changes for changes in due if changes is not None]
        made = iter(await self._thread.run(partial(self._merged, known)) if known else ())
        return [None if changes is None else next(made) for changes in due]

    def _merged(self, windows: Sequence[WindowChanges[T]]) -> list[T | Exception | None]:
        """On the thread. An error of one window reaches that one only."""
        orders: dict[int, tuple[Delta, list[Order]]] = {}
        for window in windows:
            for delta in window.deltas:
                orders.setdefault(id(delta), (delta, []))[1].append(window.order)
        try:
            sifted = {number: self._queries.sift(delta, wanted) for number, (delta, wanted) in orders.items()}
        except Exception:
            log.exception("changes cannot be merged into %d windows; they are read again", len(windows))
            return [None] * len(windows)
        return [_attempt(window.take, [sifted[id(delta)] for delta in window.deltas]) for window in windows]


def _attempt(take: Callable[[Sequence[Sifted]], T | None], sifted: Sequence[Sifted]) -> T | Exception | None:
    try:
        return take(sifted)
    except Exception as error:
        return error


GroupChanges = tuple[KeptGroups, Sequence[Delta]]
"""Groups of a summary, and what changed since they were so."""


@dataclass(frozen=True, slots=True)
class _AskedGroups:
    due: Callable[[], GroupChanges | None]
    encode: Callable[[Advanced], Any]


class SummaryMerger:
    """Merges changes into kept summaries, all that wait at once, on one thread. Used on the event loop.

    After each round nobody works for as long as it took of a core, so together they never take more than half of one.
    On full cores a round lasts longer than that; who waited for the cores need not rest for it.
    """

    def __init__(self) -> None:
        self.queries = SummaryQueries()
        self._thread = Threads(1, "summaries")
        self._core_seconds = 0.0
        self._rounds: Rounds[str, _AskedGroups, Any] = Rounds(
            self._merge, most=MOST_SUMMARIES, rest_seconds=lambda *_: self._core_seconds
        )

    async def merge(
        self, client: str, due: Callable[[], GroupChanges | None], encode: Callable[[Advanced], T]
    ) -> T | None:
        """What `encode` makes of the groups, on the thread; None where the table has to be read."""
        made: T | None = await self._rounds.ask(client, _AskedGroups(due, encode))
        return made

    async def _merge(self, asked: Sequence[_AskedGroups]) -> list[Any]:
        # Asked in its turn: what came while it waited is taken, too.
        return await self._thread.run(partial(self._merged, asked, [summary.due() for summary in asked]))

    def _merged(self, asked: Sequence[_AskedGroups], due: Sequence[GroupChanges | None]) -> list[Any]:
        """On the thread: the answer of each, None for one whose table has to be read."""
        began = time.thread_time()
        made: list[Any] = [None] * len(asked)
        changes: dict[tuple[int, ...], list[tuple[int, GroupChanges]]] = {}
        for number, known in enumerate(due):
            if known is not None:
                changes.setdefault(tuple(map(id, known[1])), []).append((number, known))
        for same in changes.values():
            try:
                advanced = self.queries.advance([kept for _, (kept, _) in same], same[0][1][1])
                for (number, _), groups in zip(same, advanced, strict=True):
                    made[number] = asked[number].encode(groups) if groups else None
            except Exception:
                log.exception("changes cannot be merged into %d summaries; their tables are read again", len(same))
        self._core_seconds = time.thread_time() - began
        return made


@dataclass(frozen=True, slots=True)
class _Computation:
    work: Callable[[Reading], Any]
    large: bool


class Recomputation:
    """Turns at computing answers again: one quick and one slow computation at a time. Used on the event loop.

    Nobody computes for a while after each, so together they never take more than a share of a core.
    """

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._quick, self._slow = self._rounds("quick answers"), self._rounds("slow answers")

    async def run(self, client: str, work: Callable[[Reading], T], *, large: bool, last_seconds: float) -> T:
        """Do `work`, which took `last_seconds` before, in the client's turn."""
        rounds = self._quick if last_seconds < _SLOW_SECONDS else self._slow
        made: T = await rounds.ask(client, _Computation(work, large))
        return made

    def _rounds(self, name: str) -> Rounds[str, _Computation, Any]:
        async def compute(asked: Sequence[_Computation]) -> list[Any]:
            [one] = asked
            # A place of all computations: a client that has none left must not hold up all others.
            return [await self._reads.run([name], one.work, large=one.large)]

        return Rounds(compute, rest_seconds=lambda _, seconds: seconds * _IDLE_PART)
