"""A plain client of `WS /api/live` for tests, which validates and applies every message."""

from __future__ import annotations

import json
import time
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

from http_server import HTTP, SECONDS
from turnout_client.messages import Changes, Current, Hello, ServerMessage, Snapshot, WindowRows, server_message


class Socket:
    """A live connection, which validates every received message."""

    def __init__(self, url: str, **options: Any) -> None:
        address = url.replace("http", "ws", 1) + "/api/live"
        # With an unlimited queue, messages are read at arrival, so that a socket with unread messages closes at once.
        options = {"max_queue": None, "open_timeout": SECONDS, "ping_interval": None, **options}
        self._opened = connect(address, max_size=None, compression=None, **options)
        self.raw: ClientConnection = self._opened.__enter__()
        hello = self.receive()
        assert isinstance(hello, Hello)
        self.hello = hello

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.raw.close()

    def send(self, **message: Any) -> None:
        self.raw.send(json.dumps(message))

    def receive(self, timeout: float = SECONDS) -> ServerMessage:
        return server_message.validate_json(self.raw.recv(timeout=timeout))

    def silent(self, seconds: float = 0.4) -> bool:
        """Whether no message arrives for some seconds."""
        try:
            self.receive(seconds)
        except TimeoutError:
            return True
        return False


class Follower:
    """The table of a changes subscriber, which applies every message."""

    def __init__(self, table: str, identity: str = "f") -> None:
        self.table = table
        self.identity = identity
        self.rows: dict[str, list[Any]] = {}
        self.place: tuple[int, int] | None = None
        self.messages: list[ServerMessage] = []
        self._parts: dict[str, list[Any]] = {}

    def subscribe(self, socket: Socket) -> None:
        """Subscribe on this connection, and resume at the last position."""
        self._parts = {}
        resume = {"generation": self.place[0], "version": self.place[1]} if self.place else None
        socket.send(type="changes", id=self.identity, table=self.table, resume=resume)

    def apply(self, message: ServerMessage) -> None:
        self.messages.append(message)
        if isinstance(message, Snapshot):
            self._parts |= dict(zip(message.ids, message.rows, strict=True))
            if message.last:
                self.rows, self._parts = self._parts, {}
                self.place = message.generation, message.version
        elif isinstance(message, Changes):
            assert self.place == (message.generation, message.since), "a change that does not follow the last one"
            for identity, row in zip(message.insert.ids, message.insert.rows, strict=True):
                assert identity not in self.rows, "an insert of a row that is there"
                self.rows[identity] = row
            for identity, row in zip(message.update.ids, message.update.rows, strict=True):
                assert self.rows[identity] != row, "an update that changes nothing"
                self.rows[identity] = row
            for identity in message.delete:
                del self.rows[identity]
            self.place = message.generation, message.version
        else:
            assert isinstance(message, Current), message
            assert self.place == (message.generation, message.version)

    def read_up_to(self, socket: Socket, place: tuple[int, int]) -> None:
        deadline = time.monotonic() + SECONDS
        while self.place != place or self._parts:
            self.apply(socket.receive(max(0.1, deadline - time.monotonic())))

    def sorted_rows(self) -> list[str]:
        return sorted(map(json.dumps, list(self.rows.values())))  # list() is atomic: another thread may change the rows


def place_of(url: str, table: str) -> tuple[int, int]:
    answer = HTTP.get(f"{url}/api/tables/{table}/rows", params={"limit": 0}).json()
    return answer["generation"], answer["version"]


def rows_of(url: str, table: str, **query: Any) -> list[list[Any]]:
    """Return the rows of a table, read over HTTP."""
    answer = HTTP.get(f"{url}/api/tables/{table}/rows", params={"limit": 100_000, **query}).json()
    return [list(row.values()) for row in answer["rows"]]


def sorted_rows_of(url: str, table: str) -> list[str]:
    return sorted(json.dumps(row) for row in rows_of(url, table))


def same(message: WindowRows, wanted: dict[str, Any]) -> bool:
    """Whether a window equals an answer over HTTP."""
    rows = [list(row.values()) for row in wanted["rows"]]
    return (message.generation, message.total, message.rows) == (wanted["generation"], wanted["total"], rows)
