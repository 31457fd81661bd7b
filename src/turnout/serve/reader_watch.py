"""Whether a client reads what waits for it. Slow is not stalled: as long as any byte moves, the connection stays."""

import asyncio
import contextlib
import fcntl
import termios
from array import array
from typing import Any


class WatchedReader:
    """A part of a protocol of uvicorn: looks at its connection from time to time while something waits to be read."""

    loop: asyncio.AbstractEventLoop
    transport: Any
    _timer: asyncio.TimerHandle | None = None
    _unread, _since = 0, 0.0

    def watch_reader(self, seconds: float) -> None:
        """Call `give_up` when nothing was read for so long."""
        if self._timer is None:
            self._unread, self._since = self._waiting_bytes(), self.loop.time()
            self._timer = self.loop.call_later(seconds / 5, self._look, seconds)

    def give_up(self) -> None:
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()  # type: ignore[misc]
        self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)  # type: ignore[misc]

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, seconds: float) -> None:
        waiting, now = self._waiting_bytes(), self.loop.time()
        if waiting < self._unread:
            self._since = now
        self._unread, self._timer = waiting, None
        if now - self._since < seconds:
            self._timer = self.loop.call_later(seconds / 5, self._look, seconds)
        else:
            self.give_up()

    def _waiting_bytes(self) -> int:
        """Also those that the system holds: of a slow client's, these are megabytes."""
        unsent = array("i", [0])
        with contextlib.suppress(OSError):  # closed, or not known here
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, unsent)
        return int(self.transport.get_write_buffer_size()) + unsent[0]
