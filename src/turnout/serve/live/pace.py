"""Turns at computing summaries and live SELECTs: together they never take more than a share of a core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LEAST_PAUSE_SECONDS = 0.1
"""So an answer is computed at most ten times a second."""

RESTS = 4
"""How many times as long as it took to compute an answer, nobody computes it again."""

# A computation that takes longer waits with its like, so that the quick ones go on.
_SLOW_SECONDS = 0.25
# How long nobody computes after each turn, as a part of what it took.
_IDLE_PART = 0.5


class Pace:
    """One at a time of the quick ones, and one of the slow ones. Used on one event loop."""

    def __init__(self) -> None:
        self._quick, self._slow = asyncio.Lock(), asyncio.Lock()

    @asynccontextmanager
    async def turn(self, last_seconds: float) -> AsyncIterator[None]:
        """A turn for what took so long the last time; the first time waits for nobody."""
        if not last_seconds:
            yield
            return
        async with self._quick if last_seconds < _SLOW_SECONDS else self._slow:
            yield
            await asyncio.sleep(last_seconds * _IDLE_PART)


def pause_seconds(took_seconds: float) -> float:
    """How long an answer is not computed again."""
    return max(LEAST_PAUSE_SECONDS, RESTS * took_seconds)
