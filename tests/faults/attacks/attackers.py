"""`python -m faults.attacks.attackers NAME URL NICENESS`: one attack from an address of its own, until it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

ADDRESS = "127.0.0.66"
"""Not the viewers': without tokens, an address is a client."""

VALUES = 5_000
AGAIN_SECONDS = 1.0
_COLUMNS = list(itertools.permutations(["userId", "name", "email", "age"]))
EXPENSIVE = ",".join(f'{column} icontains ""' for column in ("name", "email", "userId") * 10)

Attack = Callable[[str], Awaitable[None]]


async def large_filters(url: str) -> None:
    """Eight windows of filters with as many values as are taken."""
    async with _live(url) as live:
        for number in range(8):
            values = list(range(1000 + number, 1000 + number + VALUES))
            where = [{"column": "age", "op": "not in", "value": values}]
            await _send(live, type="window", id=str(number), table="users_ui", where=where, sort="-name")
        async for _ in live:
            pass


async def expensive_reads(url: str) -> None:
    """32 reads at once, again and again, of filters that look at every text of the table."""
    await asyncio.gather(*(_get(url, f"/api/tables/users_ui/rows?where={quote(EXPENSIVE)}") for _ in range(32)))


async def scrolling(url: str) -> None:
    """Twenty connections that scroll through such a filter faster than it is read."""

    async def scroll() -> None:
        async with _live(url) as live:
            for offset in itertools.count(5000, 100):
                await _send(live, type="window", id="s", table="users_ui", where=EXPENSIVE, offset=offset)
                await asyncio.sleep(0.1)

    await asyncio.gather(*(_again(scroll) for _ in range(20)))


async def unread_changes(url: str) -> None:
    """Twenty sockets with 32 whole tables each that read nothing, and another such socket when one is closed."""

    async def subscribe() -> None:
        reader, writer = await _raw(url)
        writer.write(_handshake(url))
        await reader.readuntil(b"\r\n\r\n")
        for number in range(32):
            columns = _COLUMNS[number % len(_COLUMNS)]
            text = json.dumps({"type": "changes", "id": str(number), "table": "users_ui", "columns": columns})
            writer.write(_frame(text.encode()))
        await writer.drain()
        await asyncio.sleep(20)
        writer.close()

    await asyncio.gather(*(_again(subscribe) for _ in range(20)))


async def unread_downloads(url: str) -> None:
    """Sixty downloads of the whole table, of which nothing is read."""

    async def download() -> None:
        _, writer = await _raw(url, receive_bytes=4096)
        writer.write(_request(url, "/api/tables/users_ui/rows?format=csv"))
        await asyncio.sleep(30)
        writer.close()

    await asyncio.gather(*(_again(download) for _ in range(60)))


async def connections(url: str) -> None:
    """As many connections as there are, each kept busy by requests for the page that nobody reads."""

    async def hold() -> None:
        _, writer = await _raw(url, receive_bytes=4096)
        writer.write(_request(url, "/") * 200)
        await asyncio.sleep(30)
        writer.close()

    await asyncio.gather(*(_again(hold) for _ in range(1200)))


async def all_places(url: str) -> None:
    """All places for viewers, each with a window of its own."""

    async def view(number: int) -> None:
        async with _live(url) as live:
            await _send(live, type="window", id="w", table="users_ui", where=f"age<={number}", sort="-userId", limit=10)
            async for _ in live:
                pass

    await asyncio.gather(*(_again(lambda number=number: view(number)) for number in range(500)))  # type: ignore[misc]


async def large_messages(url: str) -> None:
    """Bursts of 190 messages of 60 kB, over and over."""
    text = json.dumps({"type": "window", "id": "m", "table": "users_ui", "where": "age in (" + "1,  " * 2400 + "1)"})
    large = json.dumps({"type": "window", "id": "m", "table": "users_ui", "where": [text[:9000]] * 6})

    async def burst() -> None:
        async with _live(url) as live:
            for _ in range(190):
                await live.send(large)
            async for _ in live:
                pass

    await asyncio.gather(*(_again(burst) for _ in range(4)))


ATTACKS: dict[str, Attack] = {
    "large-filters": large_filters,
    "expensive-reads": expensive_reads,
    "scrolling": scrolling,
    "unread-changes": unread_changes,
    "unread-downloads": unread_downloads,
    "connections": connections,
    "all-places": all_places,
    "large-messages": large_messages,
}


async def _again(attack: Callable[[], Awaitable[None]]) -> None:
    """Whatever the server answers: refused, it tries again soon."""
    while True:
        with contextlib.suppress(OSError, EOFError, WebSocketException, TimeoutError):
            await attack()
        await asyncio.sleep(AGAIN_SECONDS)


async def _get(url: str, path: str) -> None:
    async def ask() -> None:
        reader, writer = await _raw(url)
        writer.write(_request(url, path, close=True))
        await reader.read()
        writer.close()

    await _again(ask)


def _live(url: str) -> Any:
    address = url.replace("http", "ws", 1) + "/api/live"
    return connect(address, max_size=None, compression=None, local_addr=(ADDRESS, 0), open_timeout=60)


async def _send(live: ClientConnection, **message: Any) -> None:
    await live.send(json.dumps(message))


async def _raw(url: str, receive_bytes: int | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    made = socket.socket()
    if receive_bytes is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.setblocking(False)
    made.bind((ADDRESS, 0))
    await asyncio.get_running_loop().sock_connect(made, (parts.hostname, parts.port))
    # With so small a limit the transport stops reading at once.
    limit = 2**16 if receive_bytes is None else 1
    return await asyncio.open_connection(sock=made, limit=limit)


def _request(url: str, path: str, *, close: bool = False) -> bytes:
    end = "Connection: close\r\n" if close else ""
    return f"GET {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n{end}\r\n".encode()


def _handshake(url: str) -> bytes:
    lines = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    head = "\r\n".join(["GET /api/live HTTP/1.1", f"Host: {urlsplit(url).netloc}", *lines, key])
    return f"{head}\r\n\r\n".encode()


def _frame(text: bytes) -> bytes:
    """A masked text frame; the mask of zeros changes nothing."""
    size = bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + len(text).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + text


async def main(name: str, url: str, niceness: str) -> None:
    os.nice(int(niceness))
    await ATTACKS[name](url)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
