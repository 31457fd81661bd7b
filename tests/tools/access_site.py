"""Real servers with a given `access` section, and the requests of tests to them: tokens, bytes and WebSockets."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_socket

from fake_orchestrator import FakeOrchestrator, FakeQueue
from http_server import SECONDS, serving, small_store
from turnout.config import Settings, load
from turnout.serve.access import Access, Gate, identity_of, subprotocol_of
from turnout.serve.app import Services, create_app
from turnout.serve.connections import OpenConnections
from turnout.serve.limits import Rate, Rates
from turnout.store.database import Database
from turnout_client.messages import PROTOCOL, TOKEN_PROTOCOL

OPS, WALL = "operator-token-0123456789", "viewer-token-0123456789"
ACCESS = f"""
access:
  tokens:
    - {{name: ops, role: operator, token: {OPS}}}
    - {{name: wall, role: viewer, token: {WALL}}}
"""
APP = "https://app.example"
TABLE = "/api/tables/users_ui/rows"
# Rates for servers that many tests share; other tests cover rate limits.
UNLIMITED = Rates(Rate(1e6, 10**6), Rate(1e6, 10**6), Rate(1e6, 10**6))


class Site:
    """A running server with its database and queue."""

    def __init__(self, url: str, database: Database, queue: FakeQueue) -> None:
        self.url, self.database, self.queue = url, database, queue
        self.port = urlsplit(url).port or 0
        self.http = httpx.Client(base_url=url, timeout=SECONDS, verify=False)

    def get(self, path: str = "/api/status", token: str = "", **headers: str) -> httpx.Response:
        return self.http.get(path, headers=bearer(token) | headers)

    def post(self, token: str = "", path: str = "/api/control", **headers: str) -> httpx.Response:
        return self.http.post(path, json={}, headers=bearer(token) | headers)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def settings(folder: Path, text: str) -> Settings:
    (folder / "turnout.yaml").write_text(text)
    return load(folder / "turnout.yaml", {})


@contextmanager
def site(
    folder: Path, text: str = "", *, rates: Rates | None = None, open_connections: OpenConnections | None = None
) -> Iterator[Site]:
    """Run a server with a configuration during a `with` block."""
    queue = FakeQueue()
    with small_store(folder / "store") as database:
        app = create_app(Services(database, FakeOrchestrator(queue)), Access.of(settings(folder, text), rates))
        with serving(app, open_connections=open_connections) as url:
            found = Site(url, database, queue)
            try:
                yield found
            finally:
                found.http.close()


def error_of(answer: httpx.Response, status: int, code: str) -> dict[str, str]:
    assert answer.status_code == status, answer.text
    return error_in(answer.content, code)


def error_in(body: bytes | bytearray | None, code: str) -> dict[str, str]:
    content = json.loads(bytes(body or b""))
    assert set(content) == {"error"}
    error: dict[str, str] = content["error"]
    assert set(error) == {"code", "message", "hint"}
    assert error["code"] == code
    assert error["message"]
    return error


def raw_exchange(port: int, data: bytes) -> tuple[int, bytes]:
    """Send bytes until the server stops reading, and read the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        received = b""
        # The answer can arrive before everything was sent.
        with suppress(OSError):
            connection.sendall(data)
        with suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                received += piece
                if whole(received):
                    break
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def whole(received: bytes) -> bool:
    head, end, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return bool(end) and len(body) >= int(line.split(b":")[1])
    return False


def encoded(token: str) -> str:
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def handshake(**headers: str) -> bytes:
    given = {
        "Host": "localhost",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": base64.b64encode(b"0" * 16).decode(),
        "Sec-WebSocket-Version": "13",
    } | headers
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"GET /api/live HTTP/1.1\r\n{lines}\r\n".encode("latin-1")


async def echo(websocket: WebSocket) -> None:
    await websocket.accept(subprotocol=subprotocol_of(websocket.scope))
    who = identity_of(websocket.scope)
    shown = [str(websocket.scope["headers"]), str(websocket.scope["subprotocols"])]
    await websocket.send_json({"name": who.name, "role": who.role, "scope": shown})
    await websocket.close()


@contextmanager
def echoing(folder: Path, text: str, rates: Rates | None = None) -> Iterator[str]:
    app = Starlette(routes=[WebSocketRoute("/api/live", echo)])
    with serving(Gate(app, Access.of(settings(folder, text), rates))) as url:
        yield url


def opened(url: str, token: str = "", *, origin: str | None = None, path: str = "/api/live") -> ClientConnection:
    """Open a WebSocket as a browser does, with the token as a subprotocol."""
    offered: list[Any] = [PROTOCOL, *([TOKEN_PROTOCOL + encoded(token)] if token else [])]
    return connect_socket(url.replace("http", "ws") + path, origin=origin, subprotocols=offered, proxy=None)  # type: ignore[arg-type]


def refusal(url: str, **how: Any) -> tuple[int, bytes]:
    with pytest.raises(InvalidStatus) as caught, opened(url, **how):
        pass
    response = caught.value.response
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, bytes(response.body or b"")
