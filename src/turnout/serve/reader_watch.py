"""Whether a client takes what waits for it. Slow is not stalled: as long as any byte moves, it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import termios
from array import array
from collections.abc import Callable

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class ReaderWatch:
    """Looks at one connection from time to time while something waits to be taken."""

    def __init__(self, protocol: H11Protocol | WebSocketsSansIOProtocol, give_up: Callable[[], None]) -> None:
        self._protocol = protocol
        self._give_up = give_up
        self._timer: asyncio.TimerHandle | None = None
        self._unread, self._since = 0, 0.0

    def start(self, seconds: float) -> None:
        """Give up when nothing was taken for so long."""
        if self._timer is None:
            self._unread, self._since = self._waiting_bytes(), self._protocol.loop.time()
            self._timer = self._protocol.loop.call_later(seconds / 5, self._look, seconds)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, seconds: float) -> None:
        waiting, now = self._waiting_bytes(), self._protocol.loop.time()
        if waiting < self._unread:
            self._since = now
        self._unread = waiting
        if now - self._since < seconds:
            self._timer = self._protocol.loop.call_later(seconds / 5, self._look, seconds)
        else:
            self._timer = None
            self._give_up()

    def _waiting_bytes(self) -> int:
        """Also those that the system holds: of a slow client's, these are megabytes."""
        unsent = array("i", [0])
        with contextlib.suppress(OSError):  # closed, or not known here
            fcntl.ioctl(self._protocol.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, unsent)
        return int(self._protocol.transport.get_write_buffer_size()) + unsent[0]
