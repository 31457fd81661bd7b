"""Rounds in which kept summaries are brought up to date: all that wait at once, on one thread.

What a batch means to fifty summaries is a query or two. After each round nobody works for as long as it took of a
core, so together they never take more than half of one. On full cores a round lasts longer than that; who waited for
the cores need not rest for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from turnout.serve.threads import Threads, Turns
from turnout.store.feed import Delta
from turnout.store.query.summary_read import Advanced, KeptGroups, SummaryQueries

log = logging.getLogger(__name__)

MOST_AT_ONCE = 100

T = TypeVar("T")

Due = tuple[KeptGroups, Sequence[Delta]]
"""Groups, and what changed since they were so."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    due: Callable[[], Due | None]
    encode: Callable[[Advanced], Any]
    answer: asyncio.Future[Any]


@dataclass(slots=True)
class SummaryRounds:
    """Lives on the event loop. Clients take turns where more wait than one round has."""

    queries: SummaryQueries = field(default_factory=SummaryQueries)
    _thread: Threads = field(default_factory=lambda: Threads(1, "summaries"))
    _waiting: Turns[str, _Waiting] = field(default_factory=Turns)
    _working: asyncio.Task[None] | None = None

    async def merge(self, client: str, due: Callable[[], Due | None], encode: Callable[[Advanced], T]) -> T | None:
        """What `encode` makes of the groups, on the thread; None where the table has to be read."""
        waiting = _Waiting(due, encode, asyncio.get_running_loop().create_future())
        self._waiting.put(client, waiting)
        if self._working is None or self._working.done():
            self._working = asyncio.ensure_future(self._work())
        try:
            made: T | None = await waiting.answer
            return made
        finally:
            self._waiting.remove(client, waiting)

    async def _work(self) -> None:
        while taken := [turn[1] for _ in range(MOST_AT_ONCE) if (turn := self._waiting.take())]:
            # Asked in its turn: what came while it waited is taken, too.
            dues = [(waiting, due) for waiting in taken if (due := waiting.due())]
            found, core_seconds = await self._thread.run(partial(self._round, dues))
            for waiting in taken:
                if not waiting.answer.done():
                    waiting.answer.set_result(found.get(id(waiting)))
            await asyncio.sleep(core_seconds)

    def _round(self, dues: Sequence[tuple[_Waiting, Due]]) -> tuple[dict[int, Any], float]:
        """On the thread: the answer of each that has one, and the time of a core that it took."""
        began = time.thread_time()
        changes: dict[tuple[int, ...], list[tuple[_Waiting, Due]]] = {}
        for waiting, due in dues:
            changes.setdefault(tuple(map(id, due[1])), []).append((waiting, due))
        found: dict[int, Any] = {}
        for same in changes.values():
            try:
                advanced = self.queries.advance([kept for _, (kept, _) in same], same[0][1][1])
                made = [(waiting, one) for (waiting, _), one in zip(same, advanced, strict=True) if one]
                found |= {id(waiting): waiting.encode(one) for waiting, one in made}
            except Exception:
                log.exception("changes cannot be merged into %d summaries; their tables are read again", len(same))
        return found, time.thread_time() - began
