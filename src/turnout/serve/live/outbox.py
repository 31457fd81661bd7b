"""What waits to be sent to one client. Only the newest of a window is kept, and never more changes than a bound.

It decides what is sent next and what is not sent at all; sending is `endpoint.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from turnout.errors import TurnoutError
from turnout.serve.live.encoding import message, problem_body

MAX_WAITING_CHANGES = 500
MAX_WAITING_BYTES = 8 * 1024 * 1024

Part = Callable[[], Awaitable[bytes]]
"""Makes a body when it is about to be sent: a whole table is large."""


class Slot:
    """One subscription's place in an outbox."""

    def __init__(self, outbox: Outbox, identity: str) -> None:
        self._outbox = outbox
        self.client = outbox.client
        self.id = identity
        self.closed = False

    def clear(self) -> None:
        """Drop what waits."""
        raise NotImplementedError

    def take(self) -> str | Awaitable[str] | None:
        """The next message, or what makes it, or None."""
        raise NotImplementedError

    def _ready(self) -> None:
        if not self.closed:
            self._outbox.ready(self)


class NewestSlot(Slot):
    """Keeps one message: what is newer replaces what was not sent yet."""

    def __init__(self, outbox: Outbox, identity: str) -> None:
        super().__init__(outbox, identity)
        self._waiting: tuple[str, bytes] | None = None

    def put(self, kind: str, body: bytes) -> None:
        self._waiting = (kind, body)
        self._ready()

    def clear(self) -> None:
        self._waiting = None

    def take(self) -> str | None:
        waiting, self._waiting = self._waiting, None
        return message(waiting[0], self.id, waiting[1]) if waiting else None


class ChangesSlot(Slot):
    """Keeps changes in order. When too many wait they are dropped, and `fall_behind` asks for a snapshot instead."""

    def __init__(self, outbox: Outbox, identity: str, fall_behind: Callable[[ChangesSlot], None]) -> None:
        super().__init__(outbox, identity)
        self._waiting: deque[tuple[str, bytes | Part]] = deque()
        self._changes = self._bytes = 0
        self._behind = False
        self._fall_behind = fall_behind

    def put_snapshot(self, parts: Iterable[Part]) -> None:
        """All rows anew: what waits and was not sent says nothing any more."""
        self.clear()
        self._waiting.extend(("snapshot", part) for part in parts)
        self._ready()

    def put_current(self, body: bytes) -> None:
        self._waiting.append(("current", body))
        self._ready()

    def put_problem(self, body: bytes) -> None:
        """The end of the subscription."""
        self.clear()
        self._waiting.append(("error", body))
        self._ready()

    def put(self, body: bytes) -> None:
        if self._behind:
            return
        self._waiting.append(("changes", body))
        self._changes += 1
        self._bytes += len(body)
        if self._changes > MAX_WAITING_CHANGES or self._bytes > MAX_WAITING_BYTES:
            self.clear()
            self._behind = True
        self._ready()

    def take(self) -> str | Awaitable[str] | None:
        if self._behind:
            # The client reads again: only now is a snapshot worth its work.
            self._behind = False
            self._fall_behind(self)
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

    async def _made(self, kind: str, part: Part) -> str:
        try:
            return message(kind, self.id, await part())
        except TurnoutError as error:
            self.clear()
            return message("error", self.id, problem_body(error))

    def clear(self) -> None:
        self._waiting.clear()
        self._changes = self._bytes = 0
        self._behind = False


class Outbox:
    """Everything that waits for one client; subscriptions take turns."""

    def __init__(self, client: str) -> None:
        self.client = client
        self._first: deque[str] = deque()
        self._slots: dict[Slot, None] = {}
        self._woken = asyncio.Event()

    def put_first(self, text: str) -> None:
        """A message of its own, before what subscriptions have."""
        self._first.append(text)
        self._woken.set()

    def ready(self, slot: Slot) -> None:
        self._slots[slot] = None
        self._woken.set()

    def remove(self, slot: Slot) -> None:
        slot.closed = True
        slot.clear()
        self._slots.pop(slot, None)

    async def next(self) -> str:
        """The next message to send, when there is one."""
        while True:
            if self._first:
                return self._first.popleft()
            if not self._slots:
                self._woken.clear()
                await self._woken.wait()
            elif (text := await self._turn()) is not None:
                return text

    async def _turn(self) -> str | None:
        """What the subscription whose turn it is has to say."""
        slot = next(iter(self._slots))
        del self._slots[slot]
        taken = slot.take()
        if taken is None:
            return None
        self._slots[slot] = None  # at the end of the turn: it may have more
        if isinstance(taken, str):
            return taken
        text = await taken
        return None if slot.closed else text
