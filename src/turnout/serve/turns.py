"""Clients take turns: one that has much to do never makes another wait for all of it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Turns(Generic[K, T]):
    """A line for each client; each is served in its order, and the clients one after the other."""

    def __init__(self) -> None:
        self._lines: OrderedDict[K, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def waiting(self, client: K) -> int:
        return len(self._lines.get(client, ()))

    def put(self, client: K, item: T) -> None:
        self._lines.setdefault(client, deque()).append(item)

    def remove(self, client: K, item: T) -> None:
        """Leave the line; nothing where it is not in it."""
        line = self._lines.get(client)
        if line is not None and item in line:
            line.remove(item)
            if not line:
                del self._lines[client]

    def take(self, may: Callable[[K], bool] = lambda _: True) -> tuple[K, T] | None:
        """The next of a client that may have a turn now."""
        client = next((known for known in self._lines if may(known)), None)
        if client is None:
            return None
        line = self._lines.pop(client)
        item = line.popleft()
        if line:
            self._lines[client] = line  # at the end: the others come first
        return client, item
