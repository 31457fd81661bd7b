"""An answer that is computed of whole tables, once for all who ask the same, and again when these tables changed.

`summaries.py` and `selects.py` are the two kinds. `pace.py` says how often.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from turnout.serve.live.hub import Position, Readers, Shared, clients_of
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.pace import LEAST_PAUSE_SECONDS, pause_seconds
from turnout.serve.reads import Reading
from turnout.store.query.windows import Window

T = TypeVar("T")


class SharedComputed(Shared):
    """One answer and all its subscriptions; each gets only the newest."""

    pause_seconds = LEAST_PAUSE_SECONDS

    def __init__(self, table: str, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(Window(table), readers, ended)
        self._took_seconds = 0.0
        self._answered = False

    def join(self, subscription: Subscription, seen: Position | None) -> None:
        self._subscriptions[subscription] = seen
        if self._answered:
            self._send_to(subscription)
            self._count(self._size)

    async def _advance(self) -> None:
        if self._answered and self._is_current():
            return
        if await self._renew():
            self._answered = True
            for subscription in self._subscriptions:
                self._send_to(subscription)
            # Without a subscription it is kept for a client that may come back.
            if self._subscriptions:
                self._count(self._size)

    async def _compute(self, work: Callable[[Reading], T], *, large: bool, sliced: bool = False) -> T:
        def timed(store: Reading) -> T:
            began = time.perf_counter()
            try:
                return work(store)
            finally:
                self._took_seconds = time.perf_counter() - began
                self.pause_seconds = pause_seconds(self._took_seconds)

        clients = clients_of(self._subscriptions)
        if not self._answered:
            # The first answer has the place of a client, as any other read of it.
            return await self._readers.reads.run(clients, timed, large=large, sliced=sliced)
        lane = self._readers.pace.lane(self._took_seconds)
        # A place of the lane: a client that has none left must not hold up all others.
        async with lane.turn(min(clients, default="")):
            return await self._readers.reads.run([f"{lane.name} answers"], timed, large=large)

    async def _renew(self) -> bool:
        """Compute it again; whether a client would see a difference."""
        raise NotImplementedError

    def _send_to(self, subscription: Subscription) -> None:
        raise NotImplementedError

    @property
    def _size(self) -> int:
        """The bytes that are held."""
        raise NotImplementedError
