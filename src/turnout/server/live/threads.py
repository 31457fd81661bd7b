"""Threads for the work of live subscriptions: few, so that it never crowds out the pipeline or the HTTP calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

T = TypeVar("T")


class Threads:
    """A bounded number of threads; who comes first is served first."""

    def __init__(self, count: int) -> None:
        self._limiter = CapacityLimiter(count)

    async def run(self, work: Callable[[], T]) -> T:
        # Abandoned on cancel: a stopping server does not wait for a query that nobody waits for.
        return await anyio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
