"""Bytes that the server holds for clients until they are read or let go: so many for each client, and no more.

A client that asks and does not read would otherwise fill the memory, or the disk, of everybody.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, defaultdict

from turnout.errors import TurnoutError


class Held:
    """What each client has, counted. Used from any thread."""

    def __init__(self, most: int, setting: str) -> None:
        self._most = most
        self._setting = setting
        self._lock = threading.Lock()
        self._bytes: Counter[str] = Counter()
        self._objects: defaultdict[str, weakref.WeakKeyDictionary[object, int]] = defaultdict(weakref.WeakKeyDictionary)

    def of(self, client: str) -> int:
        with self._lock:
            return self._of(client)

    def has_room(self, client: str) -> bool:
        return self.of(client) < self._most

    def begin(self, client: str) -> Hold:
        return Hold(self, client)

    def keep(self, client: str, what: object, size: int) -> None:
        """Count an object for as long as it lives; for the same client once, however often it is named."""
        with self._lock:
            for known in [known for known, objects in self._objects.items() if not objects]:
                del self._objects[known]
            self._objects[client][what] = size

    def add(self, client: str, size: int) -> None:
        with self._lock:
            if size > 0 and self._of(client) + size > self._most:
                raise self.too_much()
            self._bytes[client] += size
            if not self._bytes[client]:
                del self._bytes[client]

    def _of(self, client: str) -> int:
        # Copied: what is not needed any more may go while it is counted.
        objects = list(self._objects[client].values()) if client in self._objects else []
        return self._bytes[client] + sum(objects)

    def too_much(self) -> TurnoutError:
        return TurnoutError(
            code="too_much_unread",
            message=f"more than {self._most // 1_000_000} MB are held for this client already",
            hint=f"read, or close, what was asked for before; ask for less, or raise {self._setting}",
            status=429,
        )


class Hold:
    """The bytes of one answer."""

    def __init__(self, held: Held, client: str) -> None:
        self._held = held
        self._client = client
        self._lock = threading.Lock()
        self._size: int | None = 0

    def grow_to(self, size: int) -> None:
        """TurnoutError where that is too much for the client. Nothing after `release`: nobody waits any more."""
        with self._lock:
            if self._size is not None:
                self._held.add(self._client, size - self._size)
                self._size = size

    def release(self) -> None:
        with self._lock:
            self._held.add(self._client, -(self._size or 0))
            self._size = None
