"""A window of a table, sent whenever it changes: read once for all its subscriptions, and again only when needed.

Of a window close to the top of a table, where most people look, the rows and some more are held, and changes are merged
into them; further down, a change is compared with the filter and the order. So a large table is seldom read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from turnout.plan.position import Position
from turnout.plan.where import MAX_SMALL_FILTER, weight
from turnout.serve.live.outbox import Subscription, current_body
from turnout.serve.live.shared import LEAST_PAUSE_SECONDS, Readers, SentState, SharedState, WindowChanges, clients_of
from turnout.serve.reads import StoreRead
from turnout.serve.responses import json_object, rows_json, to_json
from turnout.store.feed import Wanted
from turnout.store.identity import ROW, WITHOUT_ORDER
from turnout.store.query.window_rows import (
    MAX_HELD_ROWS,
    SPARE_ROWS,
    Held,
    Order,
    Sifted,
    hold,
    track_window,
    wanted_columns,
)
from turnout.store.query.windows import Column, Window


@dataclass(frozen=True, slots=True)
class _WindowState(SentState):
    """What the clients have of a window, and the rows of the table that are held."""

    columns: tuple[Column, ...]
    order: Order
    held: Held

    @property
    def size(self) -> int:
        return len(self.encoded) + int(self.held.rows.nbytes)

    def moved(self, position: Position, held: Held) -> _WindowState:
        """The state at another position, with other rows that are held."""
        return replace(self, positions=(position,), held=held, total=held.total)


class SharedWindow(SharedState[_WindowState]):
    """One window and all its subscriptions."""

    pause_seconds = LEAST_PAUSE_SECONDS

    def __init__(self, window: Window, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(window.table, readers, ended)
        self._window = window
        self._large = weight(window.where) > MAX_SMALL_FILTER

    @property
    def wanted(self) -> Wanted:
        """What has to be known of removed rows to tell whether they were in the window."""
        return wanted_columns((key.column for key in self._window.sort), self._window.where)

    async def _renew(self, before: _WindowState | None) -> _WindowState:
        if before is not None:
            merger = self._readers.large_windows if self._large else self._readers.windows
            merged: _WindowState | None = await merger.merge(self._due, clients_of(self._subscriptions))
            if merged is not None:
                return merged
        return await self._readers.reads.run(clients_of(self._subscriptions), self._read, large=self._large)

    def _due(self) -> WindowChanges[_WindowState] | None:
        """All changes since the present state; None where the generation is another, or one of them is not known."""
        state, now = self._state, self._table_position
        # Where rows can be equal in the order, held rows have no clear end.
        if state is None or now is None or self.table in WITHOUT_ORDER:
            return None
        deltas = self._known_deltas(state.position, state.order.columns)
        if not deltas:
            return None
        return WindowChanges(state.order, deltas, lambda changes: self._advanced(state, now, changes))

    def _advanced(self, state: _WindowState, position: Position, changes: Sequence[Sifted]) -> _WindowState | None:
        """The window after some changes, without reading the table; None where it has to be read."""
        if not self._holds_first:
            return self._with_total(state, position, changes)
        held = state.held
        for change in changes:
            held = change.advance(held, state.order, self._most)
        if held.bound is not None and held.rows.num_rows < self._visible_end:
            return None
        if self._visible(held).equals(self._visible(state.held)):
            return state.moved(position, held)
        rows = _rows_body(self._visible(held), state.columns, self._window.offset)
        return replace(state.moved(position, held), encoded=rows)

    def _with_total(self, state: _WindowState, position: Position, changes: Sequence[Sifted]) -> _WindowState | None:
        """The window with another total, where no change lies before it or in it; None where one does."""
        held = state.held
        for change in changes:
            if change.concerns(held, state.order):
                return None
            held = replace(held, total=change.total(held, state.order))
        return state.moved(position, held)

    @property
    def _visible_end(self) -> int:
        assert self._window.limit is not None
        return self._window.offset + self._window.limit

    @property
    def _holds_first(self) -> bool:
        """Whether the rows before the window and some after it are held too: close to the top of the table."""
        return self._visible_end <= MAX_HELD_ROWS

    @property
    def _most(self) -> int:
        return self._visible_end + SPARE_ROWS

    def _visible(self, held: Held) -> pa.RecordBatch:
        return held.rows.slice(self._window.offset, self._window.limit) if self._holds_first else held.rows

    def _read(self, store: StoreRead) -> _WindowState:
        wanted = replace(self._window, offset=0, limit=self._most) if self._holds_first else self._window
        tracked = self._readers.reads.kept.find(store, wanted) or track_window(store, wanted)
        result = tracked.result
        held = hold(tracked.rows, wanted.limit or 0, result.total)
        encoded = _rows_body(self._visible(held), result.columns, self._window.offset)
        return _WindowState((result.position,), held.total, encoded, result.columns, tracked.order, held)

    def _send_to(self, subscription: Subscription, state: _WindowState) -> None:
        """Send the state; a client that has it already gets only `current`."""
        seen, subscription.seen = subscription.seen, None
        if seen == state.position:
            subscription.replace("current", current_body(self._window.table, seen))
        else:
            subscription.replace("rows", state.body(self._window.table))


def _rows_body(rows: pa.RecordBatch, columns: Sequence[Column], offset: int) -> bytes:
    """The part of a window that stays while only its total changes."""
    visible = rows.select([column.name for column in columns])
    ids = to_json(rows.column(ROW).to_pylist())
    return json_object({"offset": offset, "columns": columns}, ids=ids, rows=rows_json(visible))
