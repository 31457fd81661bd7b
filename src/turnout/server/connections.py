"""The open connections of a server: how many there may be, and how long one may keep its place without a request.

Uvicorn waits for a first request for ever, counts no socket before it has one, and answers what is no HTTP in plain
text; its protocol is extended here to do otherwise. What requests mean is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.server import ServerProtocol

from turnout.errors import TurnoutError
from turnout.messages import CloseCode
from turnout.server.api import SECURITY_HEADERS
from turnout.server.formats import to_json
from turnout.server.limits import check_size, headers_too_large

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
REQUEST_SECONDS = 10.0
"""How long a connection may be open before all of a request's head is there."""

SLOW_SECONDS = 15.0
"""How long a viewer may take nothing of what waits for it."""

_REFUSAL_SECONDS = 1.0
_LAST_WORD_SECONDS = 5.0
_REFUSED_AT_ONCE = 100
# A reader that takes nothing for so long is gone.
_STALLED_SECONDS = 60.0
# Spark, the store and Kafka have files of their own.
_OTHER_FILES = 1024


class Doorkeeper:
    """How many may be in, and who of them is idle: those make room for who comes."""

    def __init__(self, most: int = MAX_CONNECTIONS, request_seconds: float = REQUEST_SECONDS) -> None:
        self.most = most
        self.request_seconds = request_seconds
        # In the order in which they became idle.
        self.idle: dict[Connection, None] = {}

    def make_room(self) -> bool:
        """Close the connection that has been idle for longest, if there is one."""
        for connection in self.idle:
            connection.make_room()
            return True
        return False


class Connection(H11Protocol):
    """One connection, from its first byte to its last, or until it becomes a WebSocket."""

    def __init__(self, doorkeeper: Doorkeeper, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._doorkeeper = doorkeeper
        self._refused = self._answered = False
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so only for sockets that were made with a protocol number; without it, each answer on a
        # connection that is used again waits 40 ms for an acknowledgement.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        over = len(self.connections) - self._doorkeeper.most
        if over <= 0 or self._doorkeeper.make_room():
            self._begin_to_wait()
        elif over <= _REFUSED_AT_ONCE:
            # The answer waits for the request: browsers do not read one that comes before.
            self._refused = True
            self._deadline = self.loop.call_later(_REFUSAL_SECONDS, self._leave)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        self._stop_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        if self._refused:
            self._answer(_too_many_connections(self._doorkeeper.most))
            return
        super().data_received(data)
        if self._is_busy():
            self._end_waiting()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_busy() and not self.transport.is_closing():
            self._begin_to_wait()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._end_waiting()
        try:
            check_size(dict(self.scope))
        except TurnoutError as error:
            self._answer(error)
        else:
            super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request; called while h11's error is handled."""
        if getattr(sys.exception(), "error_status_hint", 400) == 431:
            error = headers_too_large()
        else:
            error = TurnoutError(
                code="bad_request", message="this is not an HTTP request", hint="this port speaks HTTP"
            )
        self._answer(error)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._begin_stall()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stall()

    def make_room(self) -> None:
        """Go at once, whatever has come so far."""
        self._end_waiting()
        self.transport.abort()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_to_wait(self) -> None:
        self._end_waiting()
        self._doorkeeper.idle[self] = None
        self._deadline = self.loop.call_later(self._doorkeeper.request_seconds, self._leave)

    def _end_waiting(self) -> None:
        self._doorkeeper.idle.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _leave(self) -> None:
        """Go, but let a slow reader have the end of its last answer."""
        self._end_waiting()
        self.transport.close()
        self._begin_stall()

    def _begin_stall(self) -> None:
        if self._stalled is None:
            self._stalled = self.loop.call_later(_STALLED_SECONDS, self.transport.abort)

    def _stop_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _answer(self, error: TurnoutError) -> None:
        """Answer instead of the application, and end.

        What else comes is thrown away for a moment: an end while data is on its way would reset the connection, and
        take the answer with it.
        """
        self._end_waiting()
        # Where the application is answering already, another answer would come into the middle of its own.
        if self._is_busy() or self.transport.is_closing():
            self.transport.close()
            return
        self._answered = True
        self.transport.write(_as_bytes(error))
        self.transport.write_eof()
        self._deadline = self.loop.call_later(_REFUSAL_SECONDS, self.transport.close)


class Socket(WebSocketsSansIOProtocol):
    """A connection that asked to become a WebSocket; what is no handshake is answered like every other error.

    One whose client takes nothing is told why and given up: uvicorn would wait for it for ever.
    """

    _watch: asyncio.TimerHandle | None = None
    _unread, _unread_since = 0, 0.0

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # A refusal is a whole answer; uvicorn would log each as a fault of the application.
            self.handshake_complete = True

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread, self._unread_since = self._waiting_bytes(), self.loop.time()
        self._watch = self.loop.call_later(SLOW_SECONDS / 5, self._watch_reader)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch_reader(self) -> None:
        """Slow is not stalled: as long as anything is taken, it goes on."""
        waiting, now = self._waiting_bytes(), self.loop.time()
        if waiting != self._unread:
            self._unread, self._unread_since = waiting, now
        if now - self._unread_since < SLOW_SECONDS:
            self._watch = self.loop.call_later(SLOW_SECONDS / 5, self._watch_reader)
            return
        self._give_up()

    def _give_up(self) -> None:
        """Say why, for a client that reads again in a moment, and end."""
        reason = f"nothing was read for {SLOW_SECONDS:g} s"
        self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.SLOW, "reason": reason})
        self.conn.send_close(CloseCode.SLOW, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
        self._watch = self.loop.call_later(_LAST_WORD_SECONDS, self.transport.abort)

    def _waiting_bytes(self) -> int:
        return int(self.transport.get_write_buffer_size())

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The library found no request in what h11 took for one, and uvicorn does not look.
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse()

    def handle_connect(self, event: Request) -> None:
        if ServerProtocol().accept(event).status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            super().handle_connect(event)
        else:
            self._refuse()

    def _refuse(self) -> None:
        error = TurnoutError(
            code="bad_handshake",
            message="this is not the handshake of a WebSocket",
            hint="GET, with Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key; a proxy in front must pass them on",
        )
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(_as_bytes(error))
        self.transport.close()


def allow_open_files(connections: int) -> None:
    """Raise the process's limit of open files so that so many connections fit, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        told = "the system allows %d open files, too few for server.max_connections: %d; raise it (ulimit -n)"
        log.warning(told, allowed, connections)


def _too_many_connections(most: int) -> TurnoutError:
    return TurnoutError(
        code="too_many_connections",
        message=f"all {most} connections are in use",
        hint="try again soon, or raise server.max_connections",
        status=503,
    )


def _as_bytes(error: TurnoutError) -> bytes:
    """A whole answer, for when there is no request to answer by the application."""
    body = to_json(error.as_json())
    headers = SECURITY_HEADERS | {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n{lines}\r\n".encode() + body
