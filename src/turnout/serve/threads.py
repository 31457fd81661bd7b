"""A few threads for one kind of work, so that it never crowds out another."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_NICE = 10


class Threads:
    """A bounded number of threads; who comes first is served first. Work that nobody waits for keeps its thread."""

    def __init__(self, count: int, name: str, *, yielding: bool = False) -> None:
        """`yielding`: where the processor is short, all other threads come first."""
        begin = _yield_to_others if yielding else None
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name, initializer=begin)

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self._executor.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.start(work))


def _yield_to_others() -> None:
    # On Linux threads have priorities of their own; elsewhere this would be that of the process.
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
