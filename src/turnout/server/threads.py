"""A few threads for one kind of work, so that it never crowds out another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A bounded number of threads; who comes first is served first. Work that nobody waits for keeps its thread."""

    def __init__(self, count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(count, thread_name_prefix=name)

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self._executor.submit(work)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.start(work))
