"""A summary of a table, sent whenever its groups change, and how they were in the last minutes.

Its groups are kept and brought up to date by what each batch changed; the table is read again only where that does not
tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from turnout.serve.formats import json_object, rows_json
from turnout.serve.live.outbox import Part, Subscription
from turnout.serve.live.shared import LEAST_PAUSE_SECONDS, Readers, SharedComputed, TableState, clients_of
from turnout.serve.live.summary_history import MAX_POINT_GROUPS, now_ms
from turnout.serve.live.turns import GroupChanges
from turnout.serve.reads import Reading
from turnout.store.feed import Wanted
from turnout.store.query import summary_read
from turnout.store.query.summary import Summary
from turnout.store.query.summary_read import KeptGroups, SummaryResult, read_groups, read_summary


@dataclass(frozen=True, slots=True)
class _SummaryState(TableState):
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

    def _send_to(self, subscription: Subscription, state: _SummaryState) -> None:
        if not subscription.history_seconds:
            subscription.replace("summary", state.body(self._summary.table))
            return

        async def body() -> bytes:
            return self._with_history(subscription)

        # Made when it is sent: only then is it known which points the client has.
        subscription.replace("summary", Part(body, self._size(state)))

    def _with_history(self, subscription: Subscription) -> bytes:
        assert self._state is not None
        since = self._sent.get(subscription)
        history, newest = self._history.body(subscription.history_seconds, now_ms(), since)
        if subscription in self._subscriptions:
            self._sent[subscription] = newest
        return self._state.body(self._summary.table, history=history)

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
    return _SummaryState(result.position, result.total, fixed, first, kept)
