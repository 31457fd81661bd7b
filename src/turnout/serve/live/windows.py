"""A window that is followed: read once for all who look at it, and again only when a change concerns it.

Near the top of a table, where most people look, the window's rows and some more are held, and changes are merged into
them; further down, a change is held against the filter and the order. So a large table is seldom read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.serve.held_bytes import Held as HeldBytes
from turnout.serve.live.encoding import current_body, joined, problem_body, window_head, window_rows
from turnout.serve.live.merging import Due, Merger
from turnout.serve.live.outbox import NewestSlot, Slot
from turnout.serve.live.retrying import retried
from turnout.serve.reads import Reading, Reads
from turnout.store.feed import Delta, Wanted
from turnout.store.identity import WITHOUT_ORDER
from turnout.store.query.delta_sql import Netting
from turnout.store.query.tracked_read import track_window
from turnout.store.query.where import MAX_SMALL_FILTER, weight
from turnout.store.query.window_rows import Held, Order, Sifted, hold
from turnout.store.query.windows import Column, Window, split_name

Place = tuple[int, int]
"""A generation and a version."""

SECONDS_BETWEEN = 0.1
"""A window is sent at most ten times a second."""

MAX_HELD_ROWS = 2_000
SPARE_ROWS = 100
"""Rows that are held beyond a window's end: as many may leave it before the table is read again."""

MAX_DELTAS = 200
"""Changes that wait for a window; with more than that the table is read again."""


def clients_of(slots: Iterable[Slot]) -> set[str]:
    """Whose work it is."""
    return {slot.client for slot in slots}


def of_generation(deltas: Mapping[Place, Delta | None], generation: int) -> dict[Place, Delta | None]:
    """Those of one generation: others are not looked at, and would only pile up."""
    return {place: delta for place, delta in deltas.items() if place[0] == generation}


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the viewers have: where the table was, the rows that are held of it, and the encoded ones of the window."""

    place: Place
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
        return (self.rows, self.total, self.place[0]) != (other.rows, other.total, other.place[0])

    def body(self, table: str) -> bytes:
        return joined(window_head(table, *self.place, self.total), self.rows)


@dataclass(frozen=True, slots=True)
class Readers:
    """What following works with."""

    reads: Reads
    held: HeldBytes
    netting: Netting
    merger: Merger[_Shown]


class SharedWindow:
    """One window and all who look at it. Lives on the event loop; its work runs on threads."""

    def __init__(self, window: Window, readers: Readers, ended: Callable[[], None]) -> None:
        self.window = window
        self._large = weight(window.where) > MAX_SMALL_FILTER
        self._readers = readers
        self._ended = ended
        self._viewers: dict[NewestSlot, Place | None] = {}
        self._shown: _Shown | None = None
        self._place: Place | None = None
        self._deltas: dict[Place, Delta | None] = {}
        self._stale = asyncio.Event()
        self._stale.set()
        self._task = asyncio.ensure_future(self._follow())

    @property
    def wanted(self) -> Wanted:
        """What has to be known of rows that go to tell whether they were in the window."""
        return Wanted(frozenset([*(key.column for key in self.window.sort), *(t.column for t in self.window.where)]))

    def join(self, slot: NewestSlot, seen: Place | None) -> None:
        """A viewer more; one that has seen the present state is only told so."""
        self._viewers[slot] = seen
        if self._shown is not None:
            self._send_to(slot, self._shown)
            self._count(self._shown)

    def leave(self, slot: NewestSlot) -> bool:
        """A viewer less; whether any is left."""
        self._viewers.pop(slot, None)
        return bool(self._viewers)

    def close(self) -> None:
        self._task.cancel()

    def told(self, place: Place, deltas: Mapping[Place, Delta | None]) -> None:
        """The table is at `place`. `deltas` tells what led to a place, or None where that was not collected."""
        # Also what leads beyond the place: it was committed after that was looked up.
        self._deltas |= of_generation(deltas, place[0])
        if len(self._deltas) > MAX_DELTAS:
            self._deltas.clear()
        self._place = place
        if not self._is_current():
            self._stale.set()

    def _is_current(self) -> bool:
        """Whether all that was told is shown: what is read can be newer than what was told."""
        if self._shown is None or self._place is None:
            return False
        generation, version = self._shown.place
        return self._place[0] == generation and self._place[1] <= version

    async def _follow(self) -> None:
        try:
            while True:
                await self._stale.wait()
                self._stale.clear()
                await retried(self._refresh, f"a window of {self.window.table} cannot be followed")
                await asyncio.sleep(SECONDS_BETWEEN)
        except TurnoutError as error:
            self._end(error)

    async def _refresh(self) -> None:
        if self._is_current():
            return
        shown = self._shown
        clients = clients_of(self._viewers)
        fresh = await self._readers.merger.merge(self._due, clients, large=self._large) if shown else None
        if fresh is None:
            fresh = await self._readers.reads.run(clients_of(self._viewers), self._read, large=self._large)
            self._count(fresh)
        self._shown = fresh
        self._forget(fresh.place)
        if shown is None or shown.differs(fresh):
            self._send(fresh)

    def _due(self) -> Due[_Shown] | None:
        """What happened since; None where a part of it is not known."""
        shown, place = self._shown, self._place
        assert shown is not None
        deltas = self._deltas_since(shown, place) if place else None
        if place is None or not deltas:
            return None
        return Due(shown.order, deltas, lambda sifted: self._advanced(shown, place, sifted))

    def _deltas_since(self, shown: _Shown, place: Place) -> list[Delta] | None:
        """Everything that happened since, in one generation; None where a part of it is not known."""
        seen, columns = shown.place, shown.order.columns
        if seen[0] != place[0] or not self._has_order:
            return None
        found = [self._deltas.get((place[0], version)) for version in range(seen[1] + 1, place[1] + 1)]
        known = [delta for delta in found if delta is not None and delta.tells(columns)]
        return known if len(known) == len(found) else None

    def _advanced(self, shown: _Shown, place: Place, changes: Sequence[Sifted]) -> _Shown | None:
        """The window after some changes, without reading the table; None where it has to be read."""
        if not self._holds_first:
            return self._beside(shown, place, changes)
        held = shown.held
        for sifted in changes:
            held = sifted.advance(held, shown.order, self._most)
        if held.bound is not None and held.rows.num_rows < self._visible_end:
            return None
        if self._visible(held).equals(self._visible(shown.held)):
            return replace(shown, place=place, held=held)
        rows = window_rows(self._visible(held), shown.columns, self.window.offset)
        return replace(shown, place=place, held=held, rows=rows)

    def _beside(self, shown: _Shown, place: Place, changes: Sequence[Sifted]) -> _Shown | None:
        """The same rows with another total, where no change lies before the window or in it."""
        held = shown.held
        for sifted in changes:
            if sifted.concerns(held, shown.order):
                return None
            held = replace(held, total=sifted.total(held, shown.order))
        return replace(shown, place=place, held=held)

    @property
    def _has_order(self) -> bool:
        """Where rows can share a place in the order, held rows have no clear end."""
        return split_name(self.window.table)[0] not in WITHOUT_ORDER

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
        tracked = track_window(store, wanted)
        result = tracked.result
        held = hold(tracked.rows, wanted.limit or 0, result.total)
        encoded = window_rows(self._visible(held), result.columns, self.window.offset)
        return _Shown((result.generation, result.version), result.columns, tracked.order, held, encoded)

    def _forget(self, place: Place) -> None:
        """Drop what has been taken into account. What was told meanwhile still has to be."""
        self._deltas = {
            later: delta for later, delta in self._deltas.items() if later[0] == place[0] and later[1] > place[1]
        }

    def _send(self, shown: _Shown) -> None:
        for slot in self._viewers:
            self._send_to(slot, shown)

    def _send_to(self, slot: NewestSlot, shown: _Shown) -> None:
        seen, self._viewers[slot] = self._viewers[slot], None
        if seen == shown.place:
            slot.put("current", current_body(self.window.table, *shown.place))
        else:
            slot.put("rows", shown.body(self.window.table))

    def _count(self, shown: _Shown) -> None:
        """Count the window for its clients; one that has too much by it loses it."""
        held = self._readers.held
        for client in clients_of(self._viewers):
            held.keep(client, self, shown.size)
            if not held.has_room(client):
                for slot in [slot for slot in self._viewers if slot.client == client]:
                    slot.put("error", problem_body(held.too_much()))
                    del self._viewers[slot]
                held.keep(client, self, 0)
        if not self._viewers:
            self._ended()

    def _end(self, error: TurnoutError) -> None:
        """The window cannot be read, or not any more: its generation was retired."""
        body = problem_body(error)
        for slot in self._viewers:
            slot.put("error", body)
        self._ended()
