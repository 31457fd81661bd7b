"""All rows of a table as messages, each encoded only when a client is about to be sent it.

A client that reads nothing costs nothing but the rows; those that read at one pace share what is encoded.
"""

from __future__ import annotations

import asyncio
from functools import partial

from turnout.serve.live.encoding import snapshot_part, snapshot_starts
from turnout.serve.live.outbox import Part
from turnout.serve.live.retrying import retried
from turnout.serve.reads import Reading, Reads
from turnout.store.query.tracked_read import TrackedWindow

KEPT_PARTS = 2
"""Encoded parts that are kept for other clients; one that lags behind has its own encoded again."""


class Snapshot:
    """Rows that were read, and why they are sent. Used on the event loop; encoding runs on threads."""

    def __init__(self, tracked: TrackedWindow, reason: str, reads: Reads) -> None:
        self.tracked = tracked
        self._reason = reason
        self._reads = reads
        self._encoded: dict[int, asyncio.Future[bytes]] = {}

    def parts(self, client: str) -> list[Part]:
        """What to call for the body of each message; who calls first pays for it."""
        return [partial(self._body, client, start) for start in snapshot_starts(self.tracked)]

    async def _body(self, client: str, start: int) -> bytes:
        if start not in self._encoded:
            self._encoded[start] = asyncio.ensure_future(self._encode(client, start))
            for oldest in list(self._encoded)[:-KEPT_PARTS]:
                del self._encoded[oldest]
        # Shielded: who leaves takes it from nobody else.
        return await asyncio.shield(self._encoded[start])

    async def _encode(self, client: str, start: int) -> bytes:
        def encode(_: Reading) -> bytes:
            return snapshot_part(self.tracked, self._reason, start)

        return await retried(lambda: self._reads.run([client], encode), "a snapshot cannot be encoded")
