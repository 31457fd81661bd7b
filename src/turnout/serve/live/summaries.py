"""A summary of a table, sent whenever its groups change, and how they were in the last minutes.

Its groups are kept and brought up to date by what each batch changed; the table is read again only where that does not
tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from turnout.serve.formats import json_object, rows_json
from turnout.serve.live.computed import SharedComputed
from turnout.serve.live.hub import Position, Readers, clients_of
from turnout.serve.live.outbox import Part, Subscription
from turnout.serve.live.pace import LEAST_PAUSE_SECONDS
from turnout.serve.live.parsing import AskedSummary
from turnout.serve.live.summary_history import MAX_POINT_GROUPS, SummaryHistory
from turnout.serve.live.summary_rounds import Due
from turnout.serve.reads import Reading
from turnout.store.feed import Wanted
from turnout.store.query import summary_read
from turnout.store.query.summary_read import KeptGroups, SummaryResult, read_groups, read_summary


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the clients have: where the table was, and the encoded groups; `first` are those of a history's point."""

    position: Position
    total: int
    groups: bytes
    first: bytes
    kept: KeptGroups | None

    @property
    def size(self) -> int:
        return len(self.groups) + (self.kept.groups.nbytes if self.kept else 0)

    def differs(self, other: _Shown) -> bool:
        """Whether a viewer would see a difference; a version alone is none."""
        return (self.groups, self.total, self.position[0]) != (other.groups, other.total, other.position[0])

    def body(self, table: str, **more: bytes) -> bytes:
        generation, version = self.position
        fields = {"table": table, "generation": generation, "version": version, "total": self.total}
        return json_object(fields, **more)[:-1] + b"," + self.groups[1:]


class SharedSummary(SharedComputed):
    """One summary and all its subscriptions."""

    def __init__(self, asked: AskedSummary, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(asked.summary.table, readers, ended)
        self._summary = asked.summary
        self._shown: _Shown | None = None
        self._keeps = summary_read.keepable(asked.summary)
        self._history = SummaryHistory(asked.history_seconds) if asked.history_seconds else None
        # Who loads the page again finds the line where it was.
        self.resume_seconds = min(60.0, float(asked.history_seconds))
        self._sent: dict[Subscription, int | None] = {}

    def leave(self, subscription: Subscription) -> bool:
        self._sent.pop(subscription, None)
        return super().leave(subscription)

    @property
    def wanted(self) -> Wanted | None:
        return Wanted(summary_read.columns_of(self._summary)) if self._keeps else None

    async def _renew(self) -> bool:
        before = self._shown
        shown = await self._merged()
        if shown is None:
            shown = await self._compute(self._read, large=self._summary.costly)
        self._shown, self.position = shown, shown.position
        # What was told meanwhile still has to be merged.
        self._deltas = {later: delta for later, delta in self._deltas.items() if later > shown.position}
        differs = before is None or shown.differs(before)
        if self._history is not None and differs:
            self._history.add(_now_ms(), shown.position[0], shown.first)
        return differs

    async def _merged(self) -> _Shown | None:
        """What is shown after all changes that were told; None where the table has to be read."""
        if self._shown is None or self._shown.kept is None:
            return None
        self.pause_seconds = LEAST_PAUSE_SECONDS
        client = min(clients_of(self._subscriptions), default="")
        return await self._readers.rounds.merge(client, self._due, lambda made: _shown(made[1], made[0]))

    def _due(self) -> Due | None:
        if self._shown is None or (kept := self._shown.kept) is None:
            return None
        deltas = self._known_deltas(kept.position, summary_read.columns_of(self._summary))
        return (kept, deltas) if deltas else None

    def _read(self, store: Reading) -> _Shown:
        if self._keeps:
            kept = read_groups(store, self._summary)
            if kept is not None:
                return _shown(self._readers.rounds.queries.show(kept), kept)
            self._keeps = False  # not to read it twice each time
        return _shown(read_summary(store, self._summary), None)

    def _send_to(self, subscription: Subscription) -> None:
        assert self._shown is not None
        if self._history is None:
            subscription.replace("summary", self._shown.body(self.window.table))
            return

        async def body() -> bytes:
            return self._with_history(subscription)

        # Made when it is sent: only then is it known which points the client has.
        subscription.replace("summary", Part(body))

    def _with_history(self, subscription: Subscription) -> bytes:
        assert self._shown is not None and self._history is not None
        since = self._sent.get(subscription)
        if subscription in self._subscriptions:
            self._sent[subscription] = self._history.newest
        return self._shown.body(self.window.table, history=self._history.body(since))

    @property
    def _size(self) -> int:
        shown, history = self._shown, self._history
        return (shown.size if shown else 0) + (history.size if history else 0)


def _shown(found: SummaryResult, kept: KeptGroups | None) -> _Shown:
    groups = rows_json(found.groups)
    first = groups if found.groups.num_rows <= MAX_POINT_GROUPS else rows_json(found.groups.slice(0, MAX_POINT_GROUPS))
    fixed = json_object({"by": found.by, "columns": found.columns}, groups=groups)
    return _Shown((found.generation, found.version), found.total, fixed, first, kept)


def _now_ms() -> int:
    return int(time.time() * 1000)
