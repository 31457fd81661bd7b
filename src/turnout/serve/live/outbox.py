"""What waits to be sent to one client. Only the newest of a window is kept, and never more changes than a bound.

It decides what is sent next and what is not sent at all. A message that goes to many is encoded once, as a body
without the `type` and `id` that differ; `message` completes it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.websockets import WebSocketDisconnect

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.formats import to_json
from turnout.serve.limits import HeldBytes

MAX_WAITING_CHANGES = 500
MAX_WAITING_BYTES = 8 * 1024 * 1024
ROOM_SECONDS = 0.2
"""How often a client without room is looked at."""


@dataclass(frozen=True, slots=True)
class Part:
    """A body that is made when it is about to be sent: a whole table is large. `size` is what it takes until then."""

    make: Callable[[], Awaitable[bytes]]
    size: int = 0


class BeingSent:
    """Counts the bytes of a part for its client, for as long as this lives."""


def message(kind: str, identity: str | None, body: bytes) -> str:
    """A whole message from a body, which is a JSON object with at least one field."""
    return f'{{"type":"{kind}","id":{to_json(identity).decode()},{body[1:].decode()}'


def current_body(table: str, position: Position) -> bytes:
    return to_json({"table": table, **position.as_json()})


def problem_body(error: TurnoutError) -> bytes:
    return to_json(error.as_json())


class Subscription:
    """One subscription of a client, with the messages that wait for it.

    Changes wait in order. When too many do they are dropped, and `fall_behind` asks for a snapshot instead.
    """

    def __init__(self, outbox: Outbox, identity: str) -> None:
        self._outbox = outbox
        self.client = outbox.client
        self.id = identity
        self.closed = False
        self.history_seconds = 0
        """The seconds of a summary's history that the client asked for."""
        self.fall_behind: Callable[[Subscription], None] | None = None
        self._waiting: deque[tuple[str, bytes | Part]] = deque()
        self._changes = self._bytes = 0
        self._behind = False

    def replace(self, kind: str, *bodies: bytes | Part) -> None:
        """Send these in place of all that waits: they are newer, or the end of the subscription."""
        self.clear()
        self._waiting.extend((kind, body) for body in bodies)
        self._ready()

    def add_changes(self, body: bytes) -> None:
        """Send these after what waits."""
        if self._behind:
            return
        self._waiting.append(("changes", body))
        self._changes += 1
        self._bytes += len(body)
        if self._changes > MAX_WAITING_CHANGES or self._bytes > MAX_WAITING_BYTES:
            self.drop_changes()
        self._ready()

    def drop_changes(self) -> None:
        """Drop changes that were not read; a client that reads again gets a snapshot."""
        if self._changes:
            self.clear()
            self._behind = True

    def take(self) -> str | Awaitable[str] | None:
        """The next message, or what makes it, or None."""
        if self._behind:
            # The client reads again: only now is a snapshot worth its work.
            self._behind = False
            if self.fall_behind is not None:
                self.fall_behind(self)
            return None
        if not self._waiting:
            return None
        kind, body = self._waiting.popleft()
        if not isinstance(body, bytes):
            return self._made(kind, body)
        if kind == "changes":
            self._changes -= 1
            self._bytes -= len(body)
        return message(kind, self.id, body)

    def clear(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self._changes = self._bytes = 0
        self._behind = False

    async def _made(self, kind: str, part: Part) -> str:
        try:
            await self._outbox.make_room(part.size)
            return message(kind, self.id, await part.make())
        except TurnoutError as error:
            self.clear()
            return message("error", self.id, problem_body(error))

    def _ready(self) -> None:
        if not self.closed:
            self._outbox.ready(self)


class Outbox:
    """Everything that waits for one client; its subscriptions take turns."""

    def __init__(self, client: str, held: HeldBytes) -> None:
        self.client = client
        self._held = held
        self._being_sent: BeingSent | None = None
        self._first: deque[str] = deque()
        self._ready: dict[Subscription, None] = {}
        self._woken = asyncio.Event()

    def put_first(self, text: str) -> None:
        """A message of its own, before those of subscriptions."""
        self._first.append(text)
        self._woken.set()

    def ready(self, subscription: Subscription) -> None:
        self._ready[subscription] = None
        self._woken.set()

    def remove(self, subscription: Subscription) -> None:
        subscription.closed = True
        subscription.clear()
        self._ready.pop(subscription, None)

    async def send(self, send_text: Callable[[str], Awaitable[None]]) -> None:
        """Send what waits, one message after the other, until the client has gone."""
        while True:
            text = await self._next()
            try:
                await send_text(text)
            except (WebSocketDisconnect, RuntimeError):
                return  # the client has gone, or was given up because it reads nothing
            self._being_sent = None

    async def _next(self) -> str:
        """The next message to send, when there is one."""
        while True:
            if self._first:
                return self._first.popleft()
            if not self._ready:
                self._woken.clear()
                await self._woken.wait()
            elif (text := await self._turn()) is not None:
                return text

    async def make_room(self, size: int) -> None:
        """Wait until a part has room beside all that is held for the client, or is the only one on its way."""
        sent = BeingSent()
        while size and not self._held.admit(self.client, sent, size):
            await asyncio.sleep(ROOM_SECONDS)
        self._being_sent = sent

    def close(self) -> None:
        """Count nothing any more: the connection has ended."""
        self._being_sent = None

    async def _turn(self) -> str | None:
        """A message of the subscription whose turn it is."""
        subscription = next(iter(self._ready))
        del self._ready[subscription]
        taken = subscription.take()
        if taken is None:
            return None
        self._ready[subscription] = None  # at the end of the turn: it may have more
        if isinstance(taken, str):
            return taken
        text = await taken
        return None if subscription.closed else text
