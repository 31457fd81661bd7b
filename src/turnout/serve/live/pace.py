"""Turns at computing summaries and live SELECTs: together they never take more than a share of a core.

The clients take turns, so that one with a hundred summaries does not hold up another with one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnout.serve.threads import Turns

LEAST_PAUSE_SECONDS = 0.1
"""So an answer is computed at most ten times a second."""

RESTS = 4
"""How many times as long as it took to compute an answer, nobody computes it again."""

# A computation that takes longer waits with its like, so that the quick ones go on.
_SLOW_SECONDS = 0.25
# How long nobody computes after each turn, as a part of what it took.
_IDLE_PART = 0.5


class Lane:
    """One at a time. Used on one event loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._taken = False
        self._waiting: Turns[str, asyncio.Future[None]] = Turns()

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        await self._take(client)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            loop.call_later((loop.time() - began) * _IDLE_PART, self._give_back)

    async def _take(self, client: str) -> None:
        if not self._taken:
            self._taken = True
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.put(client, place)
        try:
            await place
        except asyncio.CancelledError:
            self._waiting.remove(client, place)
            if place.done() and not place.cancelled():
                self._give_back()
            raise

    def _give_back(self) -> None:
        while (following := self._waiting.take()) is not None:
            _, place = following
            if not place.done():
                place.set_result(None)
                return
        self._taken = False


class Pace:
    """A lane for quick computations, and one for slow ones."""

    def __init__(self) -> None:
        self._quick, self._slow = Lane("quick"), Lane("slow")

    def lane(self, last_seconds: float) -> Lane:
        """For what took so long the last time."""
        return self._quick if last_seconds < _SLOW_SECONDS else self._slow


def pause_seconds(took_seconds: float) -> float:
    """How long an answer is not computed again."""
    return max(LEAST_PAUSE_SECONDS, RESTS * took_seconds)
