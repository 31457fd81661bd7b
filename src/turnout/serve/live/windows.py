"""A window of a table, sent whenever it changes: read once for all its subscriptions, and again only when needed.

Near the top of a table, where most people look, the window's rows and some more are held, and changes are merged into
them; further down, a change is held against the filter and the order. So a large table is seldom read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from turnout.serve.live.encoding import current_body, window_body, window_rows
from turnout.serve.live.merging import Due
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.shared import Position, Readers, Shared, clients_of
from turnout.serve.reads import Reading
from turnout.store.feed import Wanted
from turnout.store.identity import WITHOUT_ORDER
from turnout.store.query.tracked_read import track_window
from turnout.store.query.where import MAX_SMALL_FILTER, weight
from turnout.store.query.window_rows import MAX_HELD_ROWS, SPARE_ROWS, Held, Order, Sifted, hold
from turnout.store.query.windows import Column, Window, split_name


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the clients have: where the table was, the rows that are held of it, and the encoded ones of the window."""

    position: Position
    columns: tuple[Column, ...]
    order: Order
    held: Held
    rows: bytes

    @property
    def total(self) -> int:
        return self.held.total

    @property
    def size(self) -> int:
        return len(self.rows) + int(self.held.rows.nbytes)

    def differs(self, other: _Shown) -> bool:
        """Whether a viewer would see a difference; a version alone is none."""
        return (self.rows, self.total, self.position[0]) != (other.rows, other.total, other.position[0])

    def body(self, table: str) -> bytes:
        return window_body(table, *self.position, self.total, self.rows)


class SharedWindow(Shared):
    """One window and all its subscriptions; each gets only the newest state."""

    pause_seconds = 0.1  # so it is sent at most ten times a second

    def __init__(self, window: Window, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(window, readers, ended)
        self._large = weight(window.where) > MAX_SMALL_FILTER
        self._shown: _Shown | None = None

    @property
    def wanted(self) -> Wanted:
        """What has to be known of rows that go to tell whether they were in the window."""
        return Wanted(frozenset([*(key.column for key in self.window.sort), *(t.column for t in self.window.where)]))

    def join(self, subscription: Subscription, seen: Position | None) -> None:
        """Add a subscription; one that has the present state gets only `current`."""
        self._subscriptions[subscription] = seen
        if self._shown is not None:
            self._send_to(subscription, self._shown)
            self._count(self._shown.size)

    async def _advance(self) -> None:
        if self._is_current():
            return
        shown = self._shown
        clients = clients_of(self._subscriptions)
        fresh: _Shown | None = None
        if shown is not None:
            fresh = await self._readers.merger.merge(self._due, clients, large=self._large)
        if fresh is None:
            fresh = await self._readers.reads.run(clients_of(self._subscriptions), self._read, large=self._large)
            self._count(fresh.size)
        self._shown, self.position = fresh, fresh.position
        # What was told meanwhile still has to be merged.
        self._deltas = {later: delta for later, delta in self._deltas.items() if later > fresh.position}
        if shown is None or shown.differs(fresh):
            for subscription in self._subscriptions:
                self._send_to(subscription, fresh)

    def _due(self) -> Due[_Shown] | None:
        """All changes since what is shown; None where the generation is another, or one of them is not known."""
        shown, told = self._shown, self._told
        # Where rows can share a place in the order, held rows have no clear end.
        if shown is None or told is None or split_name(self.window.table)[0] in WITHOUT_ORDER:
            return None
        deltas = self._known_deltas(shown.position, shown.order.columns)
        return Due(shown.order, deltas, lambda sifted: self._advanced(shown, told, sifted)) if deltas else None

    def _advanced(self, shown: _Shown, position: Position, changes: Sequence[Sifted]) -> _Shown | None:
        """The window after some changes, without reading the table; None where it has to be read."""
        if not self._holds_first:
            return self._beside(shown, position, changes)
        held = shown.held
        for sifted in changes:
            held = sifted.advance(held, shown.order, self._most)
        if held.bound is not None and held.rows.num_rows < self._visible_end:
            return None
        if self._visible(held).equals(self._visible(shown.held)):
            return replace(shown, position=position, held=held)
        rows = window_rows(self._visible(held), shown.columns, self.window.offset)
        return replace(shown, position=position, held=held, rows=rows)

    def _beside(self, shown: _Shown, position: Position, changes: Sequence[Sifted]) -> _Shown | None:
        """The same rows with another total, where no change lies before the window or in it."""
        held = shown.held
        for sifted in changes:
            if sifted.concerns(held, shown.order):
                return None
            held = replace(held, total=sifted.total(held, shown.order))
        return replace(shown, position=position, held=held)

    @property
    def _visible_end(self) -> int:
        assert self.window.limit is not None
        return self.window.offset + self.window.limit

    @property
    def _holds_first(self) -> bool:
        """Near the top, the rows before the window and some after it are held too."""
        return self._visible_end <= MAX_HELD_ROWS

    @property
    def _most(self) -> int:
        return self._visible_end + SPARE_ROWS

    def _visible(self, held: Held) -> pa.RecordBatch:
        return held.rows.slice(self.window.offset, self.window.limit) if self._holds_first else held.rows

    def _read(self, store: Reading) -> _Shown:
        wanted = replace(self.window, offset=0, limit=self._most) if self._holds_first else self.window
        tracked = self._readers.reads.kept.find(store, wanted) or track_window(store, wanted)
        result = tracked.result
        held = hold(tracked.rows, wanted.limit or 0, result.total)
        encoded = window_rows(self._visible(held), result.columns, self.window.offset)
        return _Shown((result.generation, result.version), result.columns, tracked.order, held, encoded)

    def _send_to(self, subscription: Subscription, shown: _Shown) -> None:
        seen, self._subscriptions[subscription] = self._subscriptions[subscription], None
        if seen == shown.position:
            subscription.replace("current", current_body(self.window.table, *shown.position))
        else:
            subscription.replace("rows", shown.body(self.window.table))
