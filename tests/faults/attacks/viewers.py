"""Fifty ordinary viewers: each follows a window of its own, and notes when it is sent something."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from websockets.asyncio.client import ClientConnection, connect

from http_server import SECONDS

VIEWERS = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen for a while: seconds between messages, the slowest probe, the most memory of the server."""

    gaps: Sequence[float]
    slowest_probe: float
    memory_bytes: int

    @property
    def median(self) -> float:
        return statistics.median(self.gaps)


class Viewers:
    """Their sockets, on the event loop of who made them."""

    def __init__(self, url: str) -> None:
        self._address = url.replace("http", "ws", 1) + "/api/live"
        self._arrivals: list[list[float]] = [[] for _ in range(VIEWERS)]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect all; done when each has its first rows."""
        self._tasks = [asyncio.ensure_future(self._view(number)) for number in range(VIEWERS)]
        deadline = time.monotonic() + SECONDS
        while not all(self._arrivals):
            self._check()
            assert time.monotonic() < deadline, "not every viewer was sent its window"
            await asyncio.sleep(0.1)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def gaps(self, since: float, until: float) -> list[float]:
        """Between the messages of each viewer; one that was sent nothing waited all the time."""
        self._check()
        return [gap for arrivals in self._arrivals for gap in _gaps(arrivals, since, until)]

    def _check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()
                raise AssertionError("a viewer was closed")

    async def _view(self, number: int) -> None:
        async with connect(self._address, max_size=None, compression=None, open_timeout=SECONDS) as socket:
            await _subscribe(socket, number)
            async for message in socket:
                if '"type":"rows"' in str(message)[:40]:
                    self._arrivals[number].append(time.monotonic())


async def _subscribe(socket: ClientConnection, number: int) -> None:
    """Each its own filter and order; every batch changes its total, so every batch is sent."""
    sort = ("-age", "name", "-userId", "email")[number % 4]
    window = {"type": "window", "id": "w", "table": "users_ui", "where": f"age>={number % 20}", "sort": sort}
    await socket.send(json.dumps(window | {"limit": 50 + number}))


def _gaps(arrivals: Sequence[float], since: float, until: float) -> Iterator[float]:
    found = [later - earlier for earlier, later in pairwise(arrivals) if since <= later <= until]
    yield from found or [until - since]
