"""What waits to be sent to one client. Only the newest of a window is kept, and never more changes than a bound.

It decides what is sent next and what is not sent at all. A message that goes to many is encoded once, as a body
without the `type` and `id` that differ; `message` completes it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.websockets import WebSocketDisconnect

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.limits import HeldBytes
from turnout.serve.responses import to_json

MAX_WAITING_CHANGES = 500
MAX_WAITING_BYTES = 8 * 1024 * 1024
ROOM_SECONDS = 0.2
"""How often a client without room is looked at."""
SMALL_BYTES = 64 * 1024
"""A message of fewer bytes is not counted while it is sent."""
# A message while it is sent: its body, the text made of it, and what the connection holds until it was read.
_COPIES = 3


@dataclass(frozen=True, slots=True)
class Part:
    """A body that is made when it is about to be sent: a whole table is large. `size` is how large it may be.

    Who else is about to send it shares what was made, for as long as somebody holds that.
    """

    make: Callable[[], Awaitable[bytes]]
    size: int


@dataclass(eq=False)
class BeingSent:
    """Counts the bytes of a message for its client, and holds what was made for it, for as long as this lives."""

    made: asyncio.Future[bytes] | None = None


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
        self.seen: Position | None = None
        """The position that its client has already, until it was sent something."""
        self.history_seconds = 0
        """The seconds of a summary's history that the client asked for."""
        self.history_sent: int | None = None
        """The time of the newest point of the history that it was sent."""
        self.fall_behind: Callable[[Subscription], None] | None = None
        self._waiting: deque[tuple[str, bytes | Part]] = deque()
        self._changes = self._bytes = 0
        self._behind = False

    def replace(self, kind: str, *bodies: bytes | Part) -> None:
        """Send these in place of all that waits: they are newer, or the end of the subscription."""
        self.clear()
        self._waiting.extend((kind, body) for body in bodies)
        self._outbox.ready(self)

    def add_changes(self, body: bytes) -> None:
        """Send these after what waits."""
        if self._behind:
            return
        self._waiting.append(("changes", body))
        self._changes += 1
        self._bytes += len(body)
        if self._changes > MAX_WAITING_CHANGES or self._bytes > MAX_WAITING_BYTES:
            self.drop_changes()
        self._outbox.ready(self)

    def drop_changes(self) -> None:
        """Drop changes that were not read; a client that reads again gets a snapshot."""
        if self._changes:
            self.clear()
            self._behind = True

    def take(self) -> tuple[str, bytes | Part] | None:
        """The kind and the body of the next message, or None."""
        if self._behind:
            # The client reads again: only now is a snapshot worth its work.
            self._behind = False
            if self.fall_behind is not None:
                self.fall_behind(self)
            return None
        if not self._waiting:
            return None
        kind, body = self._waiting.popleft()
        if kind == "changes" and isinstance(body, bytes):
            self._changes -= 1
            self._bytes -= len(body)
        return kind, body

    def clear(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self._changes = self._bytes = 0
        self._behind = False


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
        if not subscription.closed:
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

    async def _make(self, kind: str, identity: str, body: bytes | Part) -> str:
        """A message, once it has room beside all that is held for the client, or is the only one on its way."""
        sent, expected = BeingSent(), body.size if isinstance(body, Part) else len(body)
        while expected >= SMALL_BYTES and not self._held.admit(self.client, sent, _COPIES * expected):
            await asyncio.sleep(ROOM_SECONDS)
        self._being_sent = sent
        if isinstance(body, Part):
            sent.made = asyncio.ensure_future(body.make())
            # Shielded: a client that leaves must not cancel it for the others.
            body = await asyncio.shield(sent.made)
        text = message(kind, identity, body)
        if len(body) >= SMALL_BYTES:
            # A text with characters of many bytes is larger than its JSON, and JSON may be larger than its rows.
            self._held.keep(self.client, sent, (_COPIES - 1) * len(body) + sys.getsizeof(text))
        return text

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
        kind, body = taken
        try:
            text = await self._make(kind, subscription.id, body)
        except TurnoutError as error:
            subscription.clear()
            text = message("error", subscription.id, problem_body(error))
        return None if subscription.closed else text
