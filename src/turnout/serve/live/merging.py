"""Changes are merged into windows many at a time, on one thread: what a change means to all of them is one query.

Clients take turns, and one window that has waited takes all that came meanwhile at once. Windows with large filters
have a thread of their own, which rests as long as it works: what they cost, only they wait for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from turnout.serve.threads import Threads, Turns
from turnout.store.feed import Delta
from turnout.store.query.window_rows import DeltaQueries, Order, Sifted

log = logging.getLogger(__name__)

MOST_AT_ONCE = 64
MOST_LARGE_AT_ONCE = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Due(Generic[T]):
    """Deltas of one window, and the callback that applies them."""

    order: Order
    deltas: Sequence[Delta]
    take: Callable[[Sequence[Sifted]], T | None]


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    due: Callable[[], Due[T] | None]
    answer: asyncio.Future[T | None]


class Merger(Generic[T]):
    """Lives on the event loop; its work runs on threads of its own."""

    def __init__(self, queries: DeltaQueries) -> None:
        self._small = _Lane[T](queries, MOST_AT_ONCE, rests=False)
        self._large = _Lane[T](queries, MOST_LARGE_AT_ONCE, rests=True)

    async def merge(
        self, due: Callable[[], Due[T] | None], clients: Collection[str] = (), *, large: bool = False
    ) -> T | None:
        """What the window makes of its changes; None where the table has to be read. `due` is asked in its turn."""
        return await (self._large if large else self._small).merge(due, clients)


class _Lane(Generic[T]):
    """One thread, and the windows that wait for it."""

    def __init__(self, queries: DeltaQueries, most: int, *, rests: bool) -> None:
        self._queries = queries
        self._most = most
        self._rests = rests
        self._thread = Threads(1, "merge", yielding=rests)
        self._waiting: Turns[str, _Waiting[T]] = Turns()
        self._working: asyncio.Task[None] | None = None

    async def merge(self, due: Callable[[], Due[T] | None], clients: Collection[str]) -> T | None:
        waiting = _Waiting(due, asyncio.get_running_loop().create_future())
        self._waiting.put(min(clients, key=self._waiting.waiting, default=""), waiting)
        if self._working is None or self._working.done():
            self._working = asyncio.ensure_future(self._work())
        return await waiting.answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while turn := self._turn():
            began = loop.time()
            try:
                await self._take(turn)
            except Exception as error:
                for waiting in turn:
                    _settle(waiting.answer, error)
            if self._rests:
                await asyncio.sleep(loop.time() - began)

    def _turn(self) -> list[_Waiting[T]]:
        taken = (self._waiting.take() for _ in range(self._most))
        return [waiting for _, waiting in filter(None, taken)]

    async def _take(self, turn: Sequence[_Waiting[T]]) -> None:
        # Those that were cancelled meanwhile have left.
        taken = [(waiting, waiting.due()) for waiting in turn if not waiting.answer.done()]
        dues = [due for _, due in taken if due is not None]
        made = iter(await self._thread.run(partial(self._merged, dues)) if dues else ())
        for waiting, due in taken:
            _settle(waiting.answer, next(made) if due is not None else None)

    def _merged(self, dues: Sequence[Due[T]]) -> list[T | Exception | None]:
        """On the thread. An error of one window reaches that one only."""
        orders: dict[int, tuple[Delta, list[Order]]] = {}
        for due in dues:
            for delta in due.deltas:
                orders.setdefault(id(delta), (delta, []))[1].append(due.order)
        try:
            sifted = {number: self._queries.sift(delta, wanted) for number, (delta, wanted) in orders.items()}
        except Exception:
            log.exception("changes cannot be merged into %d windows; they are read again", len(dues))
            return [None] * len(dues)
        taken: list[T | Exception | None] = []
        for due in dues:
            try:
                taken.append(due.take([sifted[id(delta)] for delta in due.deltas]))
            except Exception as error:
                taken.append(error)
        return taken


def _settle(answer: asyncio.Future[T | None], made: T | Exception | None) -> None:
    if answer.done():
        return
    if isinstance(made, Exception):
        answer.set_exception(made)
    else:
        answer.set_result(made)
