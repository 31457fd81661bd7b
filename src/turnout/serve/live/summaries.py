"""A summary of a table, sent whenever its groups change, and how they were in the last minutes.

Its groups are kept and brought up to date by what each batch changed; the table is read again only where that does not
tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from turnout.plan.position import Position
from turnout.serve.formats import json_object, rows_json
from turnout.serve.live.outbox import Part, Subscription
from turnout.serve.live.shared import LEAST_PAUSE_SECONDS, Readers, SharedComputed, clients_of
from turnout.serve.live.summary_history import MAX_POINT_GROUPS, now_ms
from turnout.serve.live.turns import GroupChanges
from turnout.serve.reads import Reading
from turnout.store.feed import Wanted
from turnout.store.query import summary_read
from turnout.store.query.summary import Summary
from turnout.store.query.summary_read import KeptGroups, SummaryResult, read_groups, read_summary


@dataclass(frozen=True, slots=True)
class _SummaryState:
    """What the clients have: where the table was, and the encoded groups; `first` are those of a history's point."""

    position: Position
    total: int
    groups: bytes
    first: bytes
    kept: KeptGroups | None

    @property
    def size(self) -> int:
        return len(self.groups) + (self.kept.groups.nbytes if self.kept else 0)

    def differs(self, other: _SummaryState) -> bool:
        """Whether a viewer would see a difference; a version alone is none."""
        mine, others = (self.groups, self.total), (other.groups, other.total)
        return mine != others or self.position.generation != other.position.generation

    def body(self, table: str, **more: bytes) -> bytes:
        fields = {"table": table, **self.position.as_json(), "total": self.total}
        return json_object(fields, **more)[:-1] + b"," + self.groups[1:]


class SharedSummary(SharedComputed):
    """One summary and all its subscriptions."""

    def __init__(self, summary: Summary, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(summary.table, readers, ended)
        self._summary = summary
        self._state: _SummaryState | None = None
        self._keeps = summary_read.keepable(summary)
        self._history = readers.histories.enter(summary)
        self._last_client = ""
        self._sent: dict[Subscription, int | None] = {}

    def leave(self, subscription: Subscription) -> bool:
        self._sent.pop(subscription, None)
        self._last_client = subscription.client
        return super().leave(subscription)

    def close(self) -> None:
        super().close()
        self._readers.histories.leave(self._summary, self._last_client, time.monotonic())

    @property
    def wanted(self) -> Wanted | None:
        return summary_read.wanted(self._summary) if self._keeps else None

    async def _renew(self) -> bool:
        before = self._state
        fresh = await self._merged()
        if fresh is None:
            fresh = await self._compute(self._read, large=self._summary.costly)
        self._state, self.position = fresh, fresh.position
        self._drop_deltas(fresh.position)
        differs = before is None or fresh.differs(before)
        if differs:
            self._history.add(now_ms(), fresh.position.generation, fresh.first)
        return differs

    async def _merged(self) -> _SummaryState | None:
        """The state after all known changes; None where the table has to be read."""
        if self._state is None or self._state.kept is None:
            return None
        self.pause_seconds = LEAST_PAUSE_SECONDS
        client = min(clients_of(self._subscriptions), default="")
        return await self._readers.summaries.merge(client, self._due, lambda made: _state(made[1], made[0]))

    def _due(self) -> GroupChanges | None:
        if self._state is None or (kept := self._state.kept) is None:
            return None
        deltas = self._known_deltas(kept.position, kept.columns)
        return (kept, deltas) if deltas else None

    def _read(self, store: Reading) -> _SummaryState:
        if self._keeps:
            kept = read_groups(store, self._summary)
            if kept is not None:
                return _state(self._readers.summaries.queries.show(kept), kept)
            self._keeps = False  # not to read it twice each time
        return _state(read_summary(store, self._summary), None)

    def _send_to(self, subscription: Subscription) -> None:
        assert self._state is not None
        if not subscription.history_seconds:
            subscription.replace("summary", self._state.body(self._summary.table))
            return

        async def body() -> bytes:
            return self._with_history(subscription)

        # Made when it is sent: only then is it known which points the client has.
        subscription.replace("summary", Part(body, self._size))

    def _with_history(self, subscription: Subscription) -> bytes:
        assert self._state is not None
        since = self._sent.get(subscription)
        history, newest = self._history.body(subscription.history_seconds, now_ms(), since)
        if subscription in self._subscriptions:
            self._sent[subscription] = newest
        return self._state.body(self._summary.table, history=history)

    @property
    def _size(self) -> int:
        state, history = self._state, self._history
        return (state.size if state else 0) + (history.size if history else 0)


def first_groups(groups: pa.Table) -> bytes:
    """The groups of a history's point, as JSON."""
    return rows_json(groups.slice(0, MAX_POINT_GROUPS))


def _state(result: SummaryResult, kept: KeptGroups | None) -> _SummaryState:
    groups = first = rows_json(result.groups)
    if result.groups.num_rows > MAX_POINT_GROUPS:
        first = first_groups(result.groups)
    fixed = json_object({"by": result.by, "columns": result.columns}, groups=groups)
    return _SummaryState(result.position, result.total, fixed, first, kept)
