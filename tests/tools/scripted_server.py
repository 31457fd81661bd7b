"""A fake live server that sends the messages of a test over a real WebSocket.

All sent and received messages are validated by `turnout_client.messages`.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from turnout.errors import TurnoutError
from turnout.testing import patience
from turnout_client.messages import ChangesRequest, ClientMessage, WindowRequest, client_message, server_message

COLUMNS = [{"name": "userId", "type": "string"}, {"name": "age", "type": "int64"}]
WAIT_SECONDS = patience()

Given = Mapping[str, Sequence[Any]]


class Scripted:
    """A fake server; `connections` is the number of sockets opened so far."""

    def __init__(self) -> None:
        self.connections = 0
        self.headers: dict[str, str] = {}
        self.store = "store-1"
        self.first: dict[str, Any] | None = None
        self.refusal: tuple[int, bytes] | None = None
        self.location: str | None = None
        self._heard: queue.Queue[ClientMessage] = queue.Queue()
        self._socket: ServerConnection | None = None
        self._open = threading.Event()

    # -- called by a test

    def hear(self) -> Any:
        """Return the next message of the client."""
        return self._heard.get(timeout=WAIT_SECONDS)

    def heard(self) -> list[ClientMessage]:
        """Return all received messages that were not read yet."""
        return [self._heard.get_nowait() for _ in range(self._heard.qsize())]

    def asked(self) -> WindowRequest | ChangesRequest:
        """Return the next request for data; other messages, such as `unsubscribe`, are skipped."""
        while True:
            message = self.hear()
            if isinstance(message, (WindowRequest, ChangesRequest)):
                return message

    def say(self, message: dict[str, Any], *, checked: bool = True) -> None:
        if checked:
            server_message.validate_python(message)
        assert self._open.wait(WAIT_SECONDS) and self._socket
        self._socket.send(json.dumps(message))

    def rows(self, to: Any, rows: Given, *, generation: int = 1, version: int = 1) -> None:
        said = _said("rows", to, generation, version)
        self.say(said | {"total": len(rows), "offset": to.offset, "columns": COLUMNS} | _listed(rows))

    def snapshot(self, to: Any, rows: Given, *, generation: int = 1, version: int = 1, last: bool = True) -> None:
        said = _said("snapshot", to, generation, version)
        reason = "swap" if generation > 1 else "subscribed"
        self.say(said | {"reason": reason, "last": last, "columns": COLUMNS} | _listed(rows))

    def changes(
        self,
        to: Any,
        since: int,
        *,
        insert: Given | None = None,
        update: Given | None = None,
        delete: Sequence[str] = (),
        generation: int = 1,
    ) -> None:
        said = _said("changes", to, generation, since + 1)
        parts = {"insert": _listed(insert or {}), "update": _listed(update or {}), "delete": list(delete)}
        self.say(said | {"since": since} | parts)

    def current(self, to: Any, *, generation: int = 1, version: int = 1) -> None:
        self.say(_said("current", to, generation, version))

    def error(self, to: Any, error: TurnoutError) -> None:
        self.say({"type": "error", "id": to.id if to else None} | error.as_json())

    def hang_up(self, code: int = 1012, reason: str = "the server restarts") -> None:
        assert self._open.wait(WAIT_SECONDS) and self._socket
        self._open.clear()
        self._socket.close(code, reason)

    # -- called by the socket

    def admit(self, _: ServerConnection, request: Request) -> Response | None:
        self.headers = {name.lower(): value for name, value in request.headers.raw_items()}
        if self.refusal is None:
            return None
        status, body = self.refusal
        headers = Headers({"Content-Length": str(len(body)), "Content-Type": "application/json"})
        if self.location is not None:
            headers["Location"] = self.location
        return Response(status, HTTPStatus(status).phrase, headers, body)

    def talk(self, socket: ServerConnection) -> None:
        self.connections += 1
        self._socket = socket
        hello = {"type": "hello", "server": "turnout 0", "store": self.store, "role": "viewer"}
        try:
            socket.send(json.dumps(self.first or hello))
            self._open.set()
            for text in socket:
                self._heard.put(client_message.validate_json(text))
        except ConnectionClosed:
            pass


@contextmanager
def listening(scripted: Scripted, port: int = 0) -> Iterator[str]:
    """Run the server during a `with` block, and yield its address."""
    with serve(
        scripted.talk, "127.0.0.1", port, process_request=scripted.admit, close_timeout=1, ping_interval=None
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join(WAIT_SECONDS)


def refused(status: int, code: str, message: str) -> tuple[int, bytes]:
    """Return an HTTP answer that refuses a WebSocket."""
    return status, json.dumps(TurnoutError(code=code, message=message, hint="try again").as_json()).encode()


def _said(kind: str, to: Any, generation: int, version: int) -> dict[str, Any]:
    return {"type": kind, "id": to.id, "table": to.table, "generation": generation, "version": version}


def _listed(rows: Given) -> dict[str, Any]:
    return {"ids": list(rows), "rows": [list(row) for row in rows.values()]}
