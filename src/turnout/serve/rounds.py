"""Turns of clients at shared work: threads for one kind of work, and rounds in which clients take turns at it.

Merged windows, merged summaries, live SELECTs and reads of the store are the users of `Rounds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from turnout.serve.limits import one_less

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
A = TypeVar("A")

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


@dataclass(slots=True, eq=False)
class _Question(Generic[K, T, A]):
    client: K
    item: T
    answer: asyncio.Future[A] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def settle(self, answer: A | Exception) -> None:
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Rounds(Generic[K, T, A]):
    """Answers questions in rounds of at most `most`. Used on one event loop.

    Each client has a line, which is served in its order, and the clients take turns. `work` gets the items of a round
    and gives their answers; an exception among them is raised to the one who asked. It is cancelled when all who asked
    have gone. After a round its place stays taken for `rest_seconds` of the client that began it and the seconds that
    it took. `may_begin` says whether a client may begin a round now; by default there is one round at a time.
    """

    def __init__(
        self,
        work: Callable[[Sequence[T]], Coroutine[None, None, Sequence[A | Exception]]],
        *,
        most: int = 1,
        may_begin: Callable[[K], bool] | None = None,
        rest_seconds: Callable[[K, float], float] = lambda _, seconds: 0.0,
    ) -> None:
        self.running: Counter[K] = Counter()
        """Rounds under way or at rest, by the client that began them."""
        self._work = work
        self._most = most
        self._may_begin = may_begin or (lambda _: not self.running)
        self._rest_seconds = rest_seconds
        self._lines: OrderedDict[K, deque[_Question[K, T, A]]] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def waiting(self, client: K) -> int:
        return len(self._lines.get(client, ()))

    def is_free(self, client: K) -> bool:
        """Whether a question of the client would begin a round at once."""
        return not self.waiting(client) and self._may_begin(client)

    async def ask(self, client: K, item: T) -> A:
        """The answer, in the client's turn. A caller that is cancelled leaves its line."""
        question: _Question[K, T, A] = _Question(client, item)
        self._lines.setdefault(client, deque()).append(question)
        self._begin()
        try:
            return await question.answer
        finally:
            self._remove(question)

    def _begin(self) -> None:
        """Begin all rounds that may begin now."""
        while first := self._take(self._may_begin):
            self.running[first.client] += 1
            task = asyncio.ensure_future(self._run(first))
            self._tasks.add(task)  # the loop itself does not keep it alive
            task.add_done_callback(self._tasks.discard)

    async def _run(self, first: _Question[K, T, A]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            # Taken in a task, a moment after the round began: all who ask at one moment are in one round.
            more = [self._take() for _ in range(self._most - 1)]
            await self._answer([question for question in (first, *more) if question and not question.answer.done()])
            if rest := self._rest_seconds(first.client, loop.time() - began):
                await asyncio.sleep(rest)
        finally:
            one_less(self.running, first.client)
            self._begin()

    async def _answer(self, questions: Sequence[_Question[K, T, A]]) -> None:
        if not questions:
            return
        work = asyncio.ensure_future(self._work([question.item for question in questions]))

        def left(_: asyncio.Future[A]) -> None:
            if all(question.answer.done() for question in questions):
                work.cancel()

        for question in questions:
            question.answer.add_done_callback(left)
        await asyncio.wait([work])
        if work.cancelled():
            for question in questions:
                question.answer.cancel()
        else:
            answers = [error] * len(questions) if isinstance(error := work.exception(), Exception) else work.result()
            for question, answer in zip(questions, answers, strict=True):
                question.settle(answer)

    def _take(self, may: Callable[[K], bool] = lambda _: True) -> _Question[K, T, A] | None:
        """The next question of a client that may have a turn now."""
        client = next((known for known in self._lines if may(known)), None)
        if client is None:
            return None
        line = self._lines.pop(client)
        question = line.popleft()
        if line:
            self._lines[client] = line  # at the end: the others come first
        return question

    def _remove(self, question: _Question[K, T, A]) -> None:
        line = self._lines.get(question.client)
        if line is not None and question in line:
            line.remove(question)
            if not line:
                del self._lines[question.client]


Turns: TypeAlias = Rounds[K, Callable[[], Awaitable[A]], A]
"""Rounds of one question each, which is what has to be done for its answer: their work is `do`."""


async def do(asked: Sequence[Callable[[], Awaitable[A]]]) -> list[A]:
    return [await work() for work in asked]
