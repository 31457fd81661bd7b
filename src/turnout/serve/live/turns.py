"""Rounds of live subscriptions: changes are merged into windows and into summaries, and answers are computed again.

Many windows are merged at a time, on one thread: what a change means to all of them is one query. What a batch means to
fifty summaries is a query or two. `serve/rounds.py` has clients take turns at each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from turnout.serve.rounds import Rounds, Threads
from turnout.store.feed import Delta
from turnout.store.query.summary_read import Advanced, KeptGroups, SummaryQueries
from turnout.store.query.window_rows import DeltaQueries, Order, Sifted

log = logging.getLogger(__name__)

MOST_WINDOWS = 64
MOST_LARGE_WINDOWS = 4
MOST_SUMMARIES = 100

# How long nobody computes after each turn, as a part of what it took.
_IDLE_PART = 0.5

T = TypeVar("T")
C = TypeVar("C")


class _Merger(Generic[C, T]):
    """Merges changes, many at a time, on a thread of its own. Used on the event loop."""

    def __init__(
        self, name: str, most: int, rest_seconds: Callable[[str, float], float], *, yielding: bool = False
    ) -> None:
        self._thread = Threads(1, name, yielding=yielding)
        self._rounds: Rounds[str, Callable[[], C | None], T | None] = Rounds(
            self._merge, most=most, rest_seconds=rest_seconds
        )

    async def merge(self, due: Callable[[], C | None], clients: Collection[str] = ()) -> T | None:
        """What is made of changes; None where the table has to be read.

        `due` is asked in its turn, so who has waited takes all that came meanwhile at once.
        """
        return await self._rounds.ask(min(clients, key=self._rounds.waiting, default=""), due)

    async def _merge(self, asked: Sequence[Callable[[], C | None]]) -> list[T | Exception | None]:
        due = [changes() for changes in asked]
        known = [changes for changes in due if changes is not None]
        made = iter(await self._thread.run(partial(self._merged, known)))
        return [None if changes is None else next(made) for changes in due]

    def _merged(self, known: Sequence[C]) -> list[T | Exception | None]:
        """On the thread: the answer of each, None for one whose table has to be read."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class WindowChanges(Generic[T]):
    """Deltas of one window, and the callback that applies them."""

    order: Order
    deltas: Sequence[Delta]
    take: Callable[[Sequence[Sifted]], T | None]


class WindowMerger(_Merger[WindowChanges[T], T]):
    """Merges changes into windows.

    Windows with large filters have another merger, which rests as long as it works: what they cost, only they wait for.
    """

    def __init__(self, queries: DeltaQueries, *, large: bool = False) -> None:
        most = MOST_LARGE_WINDOWS if large else MOST_WINDOWS
        super().__init__("merge", most, lambda _, seconds: seconds if large else 0.0, yielding=large)
        self._queries = queries

    def _merged(self, known: Sequence[WindowChanges[T]]) -> list[T | Exception | None]:
        """On the thread. An error of one window reaches that one only."""
        orders: dict[int, tuple[Delta, list[Order]]] = {}
        for window in known:
            for delta in window.deltas:
                orders.setdefault(id(delta), (delta, []))[1].append(window.order)
        try:
            sifted = {number: self._queries.sift(delta, wanted) for number, (delta, wanted) in orders.items()}
        except Exception:
            log.exception("changes cannot be merged into %d windows; they are read again", len(known))
            return [None] * len(known)
        return [_attempt(window.take, [sifted[id(delta)] for delta in window.deltas]) for window in known]


def _attempt(take: Callable[[Sequence[Sifted]], T | None], sifted: Sequence[Sifted]) -> T | Exception | None:
    try:
        return take(sifted)
    except Exception as error:
        return error


@dataclass(frozen=True, slots=True)
class GroupChanges(Generic[T]):
    """Groups of a summary, what changed since they were so, and the callback that encodes what comes of it."""

    kept: KeptGroups
    deltas: Sequence[Delta]
    encode: Callable[[Advanced], T]


class SummaryMerger(_Merger[GroupChanges[Any], Any]):
    """Merges changes into kept summaries, all that wait at once.

    After each round nobody works for as long as it took of a core, so together they never take more than half of one.
    On full cores a round lasts longer than that; who waited for the cores need not rest for it.
    """

    def __init__(self) -> None:
        super().__init__("summaries", MOST_SUMMARIES, lambda *_: self._core_seconds)
        self.queries = SummaryQueries()
        self._core_seconds = 0.0

    def _merged(self, known: Sequence[GroupChanges[Any]]) -> list[Any]:
        began = time.thread_time()
        made: list[Any] = [None] * len(known)
        changes: dict[tuple[int, ...], list[int]] = {}
        for number, summary in enumerate(known):
            changes.setdefault(tuple(map(id, summary.deltas)), []).append(number)
        for same in changes.values():
            try:
                advanced = self.queries.advance([known[number].kept for number in same], known[same[0]].deltas)
                for number, groups in zip(same, advanced, strict=True):
                    made[number] = known[number].encode(groups) if groups else None
            except Exception:
                log.exception("changes cannot be merged into %d summaries; their tables are read again", len(same))
        self._core_seconds = time.thread_time() - began
        return made


class Recomputation(Rounds[str, Callable[[], Awaitable[Any]], Any]):
    """Turns at computing answers again, one at a time. Nobody computes for half as long as each took."""

    def __init__(self) -> None:
        super().__init__(self._compute, rest_seconds=lambda _, seconds: seconds * _IDLE_PART)

    async def _compute(self, asked: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        return [await work() for work in asked]
