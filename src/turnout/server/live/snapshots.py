"""All rows of a table as messages, each encoded only when a client is about to be sent it.

A client that reads nothing costs nothing but the rows; those that read at one pace share what is encoded.
"""

from __future__ import annotations

import asyncio
from functools import partial

from turnout.server.live.encoding import snapshot_part, snapshot_starts
from turnout.server.live.outbox import Part
from turnout.server.live.retrying import retried
from turnout.server.live.threads import Threads
from turnout.store.tracking import TrackedWindow

KEPT_PARTS = 2
"""Encoded parts that are kept for other clients; one that lags behind has its own encoded again."""


class Snapshot:
    """Rows that were read, and why they are sent. Used on the event loop; encoding runs on threads."""

    def __init__(self, tracked: TrackedWindow, reason: str, threads: Threads) -> None:
        self.tracked = tracked
        self._reason = reason
        self._threads = threads
        self._encoded: dict[int, asyncio.Future[bytes]] = {}

    def parts(self) -> list[Part]:
        """What to call for the body of each message."""
        return [partial(self._body, start) for start in snapshot_starts(self.tracked)]

    async def _body(self, start: int) -> bytes:
        if start not in self._encoded:
            self._encoded[start] = asyncio.ensure_future(self._encode(start))
            for oldest in list(self._encoded)[:-KEPT_PARTS]:
                del self._encoded[oldest]
        # Shielded: who leaves takes it from nobody else.
        return await asyncio.shield(self._encoded[start])

    async def _encode(self, start: int) -> bytes:
        work = partial(snapshot_part, self.tracked, self._reason, start)
        return await retried(lambda: self._threads.run(work), "a snapshot cannot be encoded")
