"""A summary of a table, sent whenever its groups change, and how they were in the last minutes.

Its groups are kept and brought up to date by what each batch changed; the table is read again only where that does not
tell. Points of histories are added also while nobody looks: row counts of all tables, and summaries that somebody
looked at. A table that has not changed is not read for them, and they are bounded: row counts take a fiftieth of a core
at most, and all summaries together a tenth.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import duckdb
import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.live.outbox import Part, Subscription
from turnout.serve.live.shared import LEAST_PAUSE_SECONDS, GroupChanges, Readers, SentState, SharedComputed, clients_of
from turnout.serve.live.summary_history import MAX_POINT_GROUPS, Histories, KeptHistory, now_ms
from turnout.serve.reads import Reads, StoreRead, timed
from turnout.serve.responses import json_object, rows_json
from turnout.store.feed import Wanted
from turnout.store.query import summary_read
from turnout.store.query.summary import Summary
from turnout.store.query.summary_read import KeptGroups, SummaryResult, read_groups, read_summary
from turnout.store.query.windows import Positions, list_tables, read_positions, split_name

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 5.0
# How many times as long as a read took, none follows.
_COUNT_RESTS, _SUMMARY_RESTS = 49, 9
_CLIENT = "history"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _SummaryState(SentState):
    """What the clients have of a summary; `first` are the groups of a history's point."""

    first: bytes
    kept: KeptGroups | None

    @property
    def size(self) -> int:
        return len(self.encoded) + (self.kept.groups.nbytes if self.kept else 0)


class SharedSummary(SharedComputed[_SummaryState]):
    """One summary and all its subscriptions."""

    def __init__(self, summary: Summary, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(summary.table, readers, ended)
        self._summary = summary
        self._keeps = summary_read.keepable(summary)
        self._history = readers.histories.enter(summary)

    def close(self) -> None:
        super().close()
        self._readers.histories.leave(self._summary, self.last_client, time.monotonic())

    @property
    def wanted(self) -> Wanted | None:
        return summary_read.wanted(self._summary) if self._keeps else None

    async def _renew(self, before: _SummaryState | None) -> _SummaryState:
        merged = await self._merged()
        return merged if merged is not None else await self._compute(self._read, large=self._summary.costly)

    def _changed(self, fresh: _SummaryState) -> None:
        self._history.add(now_ms(), fresh.position.generation, fresh.first)

    async def _merged(self) -> _SummaryState | None:
        """The state after all known changes; None where the table has to be read."""
        if self._state is None or self._state.kept is None:
            return None
        self.pause_seconds = LEAST_PAUSE_SECONDS
        # One client for all who share it: the first by name.
        return await self._readers.summaries.merge(self._due, sorted(clients_of(self._subscriptions))[:1])

    def _due(self) -> GroupChanges[_SummaryState] | None:
        if self._state is None or (kept := self._state.kept) is None:
            return None
        deltas = self._known_deltas(kept.position, kept.columns)
        return GroupChanges(kept, deltas, lambda made: _state(made[1], made[0])) if deltas else None

    def _read(self, store: StoreRead) -> _SummaryState:
        if self._keeps:
            kept = read_groups(store, self._summary)
            if kept is not None:
                return _state(self._readers.summaries.queries.show(kept), kept)
            self._keeps = False  # not to read it twice each time
        return _state(read_summary(store, self._summary), None)

    def _send_to(self, subscription: Subscription, state: _SummaryState) -> None:
        if not subscription.history_seconds:
            subscription.replace("summary", state.body(self._summary.table))
            return

        async def body() -> bytes:
            assert self._state is not None
            since = subscription.history_sent
            history, subscription.history_sent = self._history.body(subscription.history_seconds, now_ms(), since)
            return self._state.body(self._summary.table, history=history)

        # Made when it is sent: only then is it known which points the client has.
        subscription.replace("summary", Part(body, self._size(state)))

    def _size(self, state: _SummaryState) -> int:
        return state.size + self._history.size


def first_groups(groups: pa.Table) -> bytes:
    """The groups of a history's point, as JSON."""
    return rows_json(groups.slice(0, MAX_POINT_GROUPS))


def _state(result: SummaryResult, kept: KeptGroups | None) -> _SummaryState:
    groups = first = rows_json(result.groups)
    if result.groups.num_rows > MAX_POINT_GROUPS:
        first = first_groups(result.groups)
    fixed = json_object({"by": result.by, "columns": result.columns}, groups=groups)
    return _SummaryState((result.position,), result.total, fixed, first, kept)


class HistorySamples:
    """Fills the histories that nobody looks at, on the event loop, while its block runs."""

    def __init__(self, reads: Reads, histories: Histories) -> None:
        self._reads = reads
        self._histories = histories
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
            tables = await self._read(lambda store: list_tables(store, own=False), rest)
            histories = self._histories.row_counts([table.name for table in tables])
            for table, kept in zip(tables, histories, strict=True):
                add_sample(kept, rest.began, Position(table.generation, table.version), b"[[%d]]" % table.rows)
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

    async def _read(self, work: Callable[[StoreRead], T], rest: _Rest, large: bool = False) -> T:
        return await self._reads.run([_CLIENT], timed(work, rest.add), large=large)


@dataclass(slots=True)
class _Rest:
    """How long to rest after reads: so many times as long as they took."""

    times: int
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.seconds += self.times * seconds


def add_sample(kept: KeptHistory, read_began: float, position: Position, groups: bytes) -> None:
    """Add a point that was read; not where somebody looked meanwhile, and may have seen a newer one."""
    if not kept.viewers and kept.left_at < read_began:
        kept.position = position
        kept.history.add(now_ms(), position.generation, groups)
