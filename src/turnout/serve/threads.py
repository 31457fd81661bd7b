"""Threads for one kind of work, so that it never crowds out another; and turns for the clients of such work."""

import asyncio
import contextlib
import os
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_NICE = 10


class Threads(ThreadPoolExecutor):
    """A bounded number of threads, which do work in the order it came, even if its caller has given up."""

    def __init__(self, count: int, name: str, *, yielding: bool = False) -> None:
        """`yielding`: where the processor is short, all other threads come first."""
        super().__init__(count, thread_name_prefix=name, initializer=_yield_to_others if yielding else None)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self, work)


def _yield_to_others() -> None:
    # On Linux threads have priorities of their own; elsewhere this would be that of the process.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


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
        line = self._lines.get(client)
        if line is not None and item in line:
            line.remove(item)
            if not line:
                del self._lines[client]

    def take(self, may: Callable[[K], bool] = lambda _: True) -> tuple[K, T] | None:
        """The next item of a client that may have a turn now."""
        client = next((known for known in self._lines if may(known)), None)
        if client is None:
            return None
        line = self._lines.pop(client)
        item = line.popleft()
        if line:
            self._lines[client] = line  # at the end: the others come first
        return client, item
