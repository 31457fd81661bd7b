"""The open connections of a server: how many there may be, and how long one may keep its place without a request.

Uvicorn waits for a first request without a limit, counts no socket before it has one, and answers bad requests in
plain text. The protocols here change that. They extend what is not uvicorn's public interface: pyproject.toml has the
one version series that they were tested with.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import ipaddress
import logging
import resource
import socket
import sys
import termios
from array import array
from collections import Counter
from http import HTTPStatus
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request
from websockets.server import ServerProtocol

from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError
from turnout.serve.limits import Buckets, Rate, TooOften, check_size, headers_too_large, host_name, one_less
from turnout.serve.responses import SECURITY_HEADERS, error_response
from turnout_client.messages import CloseCode

log = logging.getLogger(__name__)

REQUEST_SECONDS = 10.0
"""How long a connection may be open before all of a request's head is there."""

SLOW_SECONDS = 15.0
"""How long a viewer may read nothing of what waits for it."""

_REFUSAL_SECONDS = 1.0
_LAST_WORD_SECONDS = 5.0
_REFUSED_AT_ONCE, _REFUSED_OF_ONE = 100, 10
# Of one client: to open a connection, and to refuse a WebSocket, costs more than most requests.
_ARRIVALS, _UPGRADES = Rate(per_second=200, burst=1000), Rate(per_second=20, burst=400)
# Answered also where all connections are in use: a failed probe would restart a server that is only busy.
_PROBES = tuple(f"GET {path} ".encode() for path in ("/healthz", "/readyz", "/metrics"))
# A client that reads nothing of an answer for so long has gone.
_STALLED_SECONDS = 60.0
# Spark, the store and Kafka have files of their own.
_OTHER_FILES = 1024


class OpenConnections:
    """Counts open connections, in all and of each client. Idle ones make room for new ones."""

    def __init__(self, limits: ServerSettings | None = None, request_seconds: float = REQUEST_SECONDS) -> None:
        self.limits = limits or ServerSettings()
        self.request_seconds = request_seconds
        self._proxies = tuple(ipaddress.ip_network(network) for network in self.limits.trusted_proxies)
        # In the order in which they became idle.
        self.idle: dict[Connection, None] = {}
        self._arriving, self._upgrading = Buckets(_ARRIVALS), Buckets(_UPGRADES)
        self._open: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def enter(self, host: str) -> None:
        self._open[host] += 1

    def leave(self, host: str, *, refused: bool = False) -> None:
        one_less(self._open, host)
        if refused:
            one_less(self._refused, host)

    def admits(self, comer: Connection) -> bool:
        """Whether a new connection has a place, among its client's and among all; an idle one makes room."""
        if self._open[comer.host] > self.limits.max_connections_per_client and not self._is_proxy(comer):
            return self._close_idle(comer.host)
        has_place = self._open.total() <= self.limits.max_connections
        return has_place or self._close_idle(comer.host) or self._close_idle()

    def is_hasty(self, comer: Connection) -> bool:
        """Whether its client opens connections faster than anybody needs them."""
        return bool(self._arriving.take(comer.host)) and not self._is_proxy(comer)

    def check_upgrade(self, comer: Connection) -> None:
        """Refuse a WebSocket of a client that opens them faster than anybody needs them."""
        if not self._is_proxy(comer) and (wait := self._upgrading.take(comer.host)):
            hint = "one WebSocket holds many subscriptions, so keep it open"
            raise TooOften("too many WebSockets were opened by this client", wait, hint)

    def refuse(self, comer: Connection) -> bool:
        """Whether a connection without a place may send its request, to be answered: some may, a few of each client."""
        if (
            self._arriving.take(comer.host)
            or self._refused.total() >= _REFUSED_AT_ONCE
            or self._refused[comer.host] >= _REFUSED_OF_ONE
        ):
            return False
        self._refused[comer.host] += 1
        return True

    def _is_proxy(self, comer: Connection) -> bool:
        address = ipaddress.ip_address(comer.client[0]) if self._proxies and comer.client else None
        return any(address in network for network in self._proxies if address is not None)

    def _close_idle(self, host: str | None = None) -> bool:
        """Close the connection that has been idle for longest, if there is one."""
        for connection in self.idle:
            if host is None or connection.host == host:
                connection.make_room()
                return True
        return False


class WatchedReader:
    """A part of a protocol of uvicorn: looks at its connection from time to time while something waits to be read.

    Slow is not stalled: as long as any byte moves, the connection stays.
    """

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


class StrictRequests(h11.Connection):
    """The server's side of one connection. Takes only requests that can be read in one way.

    Refused is what h11 accepts and a proxy in front may read in another way: a head whose lines end with a bare line
    feed, and a request with both Content-Length and Transfer-Encoding.
    """

    def __init__(self, max_incomplete_event_size: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size)
        self._receive_buffer = _StrictLines()

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("both Content-Length and Transfer-Encoding")
        return event


class _StrictLines(ReceiveBuffer):
    """Received bytes, whose lines end with CR and LF."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before = bytes(self)
        lines: list[bytearray] | None = super().maybe_extract_lines()
        if lines is not None:
            taken = before[: len(before) - len(self)]
            if taken.count(b"\n") != taken.count(b"\r\n"):
                raise h11.RemoteProtocolError("a line that ends with a bare line feed")
        return lines


class Connection(WatchedReader, H11Protocol):
    """One connection, from its first byte to its last, or until it becomes a WebSocket."""

    def __init__(self, open_connections: OpenConnections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = StrictRequests(self.conn._max_incomplete_event_size)
        self._open_connections = open_connections
        self.refused = self._answered = self._probing = False
        self.host = "unknown"
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so only for sockets that were made with a protocol number; without it, each answer on a
        # connection that is used again waits 40 ms for an acknowledgement.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host = peer(self)
        self._open_connections.enter(self.host)
        if self._open_connections.is_hasty(self):
            transport.abort()
        elif self._open_connections.admits(self):
            self._begin_to_wait()
        elif self._open_connections.refuse(self):
            # The answer waits for the request: browsers do not read one that comes before, and probes are let in.
            self.refused = True
            self._deadline = self.loop.call_later(_REFUSAL_SECONDS, self._leave)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        self._open_connections.leave(self.host, refused=self.refused)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        if self.refused and not self._probing:
            self._probing = data.startswith(_PROBES)
            if not self._probing:
                self._answer(_too_many_connections(self._open_connections.limits))
                return
        super().data_received(data)
        if self._is_busy():
            self._end_waiting()

    def on_response_complete(self) -> None:
        if self._probing:
            self.transport.close()  # one answer only, whatever else was sent along
        super().on_response_complete()
        if not self._is_busy() and not self.transport.is_closing():
            self._begin_to_wait()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._end_waiting()
        try:
            check_size(dict(self.scope))
            self._open_connections.check_upgrade(self)
        except TurnoutError as error:
            self._answer(error)
        else:
            # The other protocol counts itself; this one hears nothing of the connection any more.
            super().handle_websocket_upgrade(event)
            self._open_connections.leave(self.host)

    def send_400_response(self, msg: str) -> None:
        """Answer a bad HTTP request; called while h11's error is handled."""
        if getattr(sys.exception(), "error_status_hint", 400) == 431:
            error = headers_too_large()
        else:
            error = TurnoutError("bad_request", "this is not an HTTP request", "this port speaks HTTP")
        self._answer(error)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch_reader(_STALLED_SECONDS)

    def make_room(self) -> None:
        """Close at once, whatever has come so far."""
        self._end_waiting()
        self.transport.abort()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_to_wait(self) -> None:
        self._end_waiting()
        self._open_connections.idle[self] = None
        self._deadline = self.loop.call_later(self._open_connections.request_seconds, self._leave)

    def _end_waiting(self) -> None:
        self._open_connections.idle.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _leave(self) -> None:
        """Close, but let a slow reader have the end of its last answer."""
        self._end_waiting()
        self.transport.close()
        self.watch_reader(_STALLED_SECONDS)

    def _answer(self, error: TurnoutError) -> None:
        """Answer instead of the application, and close.

        Whatever else comes is dropped for a moment: to close while data is on its way would reset the connection, and
        the answer would be lost.
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


class Socket(WatchedReader, WebSocketsSansIOProtocol):
    """A connection that asked to become a WebSocket; a bad handshake is answered like every other error.

    It closes, with the reason, when its client reads nothing: uvicorn would wait without a limit.
    """

    def __init__(self, open_connections: OpenConnections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open_connections = open_connections
        self._last_word: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._open_connections.enter(peer(self))

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.send":
            # uvicorn would return now, and what the client has not read would be held beside the next message.
            await self.writable.wait()
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            # A refusal is a whole answer; uvicorn would log each as an error of the application.
            self.handshake_complete = True

    def pause_writing(self) -> None:
        super().pause_writing()
        self.watch_reader(SLOW_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.leave(peer(self))
        if self._last_word is not None:
            self._last_word.cancel()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Send the reason, for a client that reads again in a moment, and close."""
        reason = f"nothing was read for {SLOW_SECONDS:g} s"
        self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.SLOW, "reason": reason})
        self.conn.send_close(CloseCode.SLOW, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()
        self._last_word = self.loop.call_later(_LAST_WORD_SECONDS, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # The library found no request in what h11 accepted as one, and uvicorn does not check.
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse()

    def handle_connect(self, event: Request) -> None:
        if ServerProtocol().accept(event).status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            super().handle_connect(event)
        else:
            self._refuse()

    def _refuse(self) -> None:
        error = TurnoutError(
            "bad_handshake",
            "this is not the handshake of a WebSocket",
            "GET, with Sec-WebSocket-Version: 13 and a Sec-WebSocket-Key; a proxy in front must pass them on",
        )
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        self.transport.write(_as_bytes(error))
        self.transport.close()


def allow_open_files(connections: int) -> None:
    """Raise the limit of open files for that many connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        text = "the system allows %d open files, too few for server.max_connections: %d; raise it (ulimit -n)"
        log.warning(text, allowed, connections)


def peer(protocol: H11Protocol | WebSocketsSansIOProtocol) -> str:
    """The client at the other end."""
    return host_name(protocol.client[0]) if protocol.client else "unknown"


def _too_many_connections(limits: ServerSettings) -> TurnoutError:
    most, share = limits.max_connections, limits.max_connections_per_client
    return TurnoutError(
        "too_many_connections",
        f"all {most} connections are in use, or the {share} of this client",
        "try again soon, or raise server.max_connections or server.max_connections_per_client",
    )


def _as_bytes(error: TurnoutError) -> bytes:
    """A whole HTTP answer, for connections that never reach the application."""
    response = error_response(error)
    headers = {**SECURITY_HEADERS, **response.headers, "connection": "close"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n{lines}\r\n"
    return head.encode() + bytes(response.body)
