"""A network between Turnout and Kafka that can be cut, made to swallow everything, or slowed down."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

from turnout.local.broker import HOST, free_port
from turnout.testing import patience

_CHUNK = 64 * 1024


class Proxy:
    """Forwards connections of its `port` to a port of this machine, as the faults that are set allow.

    It runs on a thread of its own; every method returns when what it asks for is so.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.target = target
        self._delay_seconds = 0.0
        self._bytes_per_second: float | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.heal()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Refuse new connections and drop the others."""
        self._do(self._cut())

    def black_hole(self) -> None:
        """Take connections and bytes, and forward nothing. As on a network, bytes that wait arrive after it."""
        self._do(self._set_flowing(False))

    def slow(self, delay_seconds: float, bytes_per_second: float | None = None) -> None:
        """Hold every piece back for so long, and let no more than so many bytes through on each connection."""
        self._delay_seconds, self._bytes_per_second = delay_seconds, bytes_per_second

    def heal(self) -> None:
        """Forward everything at once."""
        self.slow(0.0)
        self._do(self._heal())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(patience())

    async def _set_flowing(self, flowing: bool) -> None:
        self._flowing.set() if flowing else self._flowing.clear()

    async def _heal(self) -> None:
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def _cut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        self._flowing.set()  # what waits finds its connection gone
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            await self._flowing.wait()
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(HOST, self.target)
                self._writers.add(far_writer)
                try:
                    await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
                finally:
                    self._end(far_writer)
        finally:
            self._end(writer)

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(_CHUNK):
                await self._flowing.wait()
                if wait := self._wait_seconds(len(piece)):
                    await asyncio.sleep(wait)
                writer.write(piece)
                await writer.drain()
        finally:
            writer.transport.abort()  # the other direction ends with this one

    def _wait_seconds(self, size: int) -> float:
        return self._delay_seconds + (size / self._bytes_per_second if self._bytes_per_second else 0.0)
