"""Points of histories while nobody looks: row counts of all tables, and summaries that somebody looked at.

A table that has not changed is not read. Nobody waits for what is read here, so it is bounded: row counts take a
fiftieth of a core at most, and all summaries together a tenth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import duckdb

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.live.summaries import first_groups
from turnout.serve.live.summary_history import Histories, KeptHistory, now_ms
from turnout.serve.reads import Reading, Reads
from turnout.store.query.summary_read import read_summary
from turnout.store.query.windows import Positions, count_rows, read_positions, split_name

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 5.0
# How many times as long as a read took, none follows.
_COUNT_RESTS, _SUMMARY_RESTS = 49, 9
_CLIENT = "history"

T = TypeVar("T")


class HistorySamples:
    """Fills the histories that nobody looks at, on the event loop, while its block runs."""

    def __init__(self, reads: Reads, histories: Histories) -> None:
        self._reads = reads
        self._histories = histories
        self._counts: dict[str, Position] = {}
        self._seen: Positions | None = None

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(self._repeat(work)) for work in (self._count, self._summarise)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def _repeat(self, sample: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await sample()
            except (TurnoutError, duckdb.Error) as error:
                log.debug("histories cannot be sampled: %s", error)  # the store is in trouble, which others tell
            except Exception:
                log.exception("histories cannot be sampled")
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _count(self) -> None:
        rest = _Rest(_COUNT_RESTS)
        positions = await self._read(read_positions, rest)
        if positions != self._seen:
            counts = await self._read(lambda store: count_rows(store, self._counts), rest)
            for kept in self._histories.row_counts(counts):
                table = kept.summary.table
                position, rows = counts[table].position, counts[table].rows
                if rows is not None and add_sample(kept, rest.began, position, b"[[%d]]" % rows):
                    self._counts[table] = position
            self._seen = positions
        await asyncio.sleep(rest.seconds)

    async def _summarise(self) -> None:
        self._histories.forget_some(time.monotonic())
        left = self._histories.left()
        if not left:
            return
        rest = _Rest(_SUMMARY_RESTS)
        named = {number for kept in left if (number := split_name(kept.summary.table)[1]) is not None}
        positions = await self._read(lambda store: read_positions(store, named), rest)
        await asyncio.sleep(rest.seconds)
        for kept in left:
            if kept.position != positions.of(kept.summary.table) and not kept.viewers:
                await self._sample(kept)

    async def _sample(self, kept: KeptHistory) -> None:
        summary, rest = kept.summary, _Rest(_SUMMARY_RESTS)
        try:
            found = await self._read(lambda store: read_summary(store, summary), rest, summary.costly)
            add_sample(kept, rest.began, found.position, first_groups(found.groups))
        except TurnoutError as error:
            if error.code == "store_unavailable":
                raise
            # Its table or a column is gone, or it takes too long.
            if not kept.viewers:
                self._histories.forget(kept)
        await asyncio.sleep(rest.seconds)

    async def _read(self, work: Callable[[Reading], T], rest: _Rest, large: bool = False) -> T:
        return await self._reads.run([_CLIENT], lambda store: rest.timed(work, store), large=large)


class _Rest:
    """Measures reads, and tells how long to rest after them."""

    def __init__(self, times: int) -> None:
        self._times = times
        self.began = time.monotonic()
        self.seconds = 0.0

    def timed(self, work: Callable[[Reading], T], store: Reading) -> T:
        began = time.perf_counter()
        try:
            return work(store)
        finally:
            self.seconds += self._times * (time.perf_counter() - began)


def add_sample(kept: KeptHistory, read_began: float, position: Position, groups: bytes) -> bool:
    """Add a point that was read; not where somebody looked meanwhile, and may have seen a newer one."""
    if kept.viewers or kept.left_at >= read_began:
        return False
    kept.position = position
    kept.history.add(now_ms(), position.generation, groups)
    return True
