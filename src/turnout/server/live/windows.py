"""A window that is followed: read once for all who look at it, and again only when a change concerns it.

A change of the table is first held against the window's filter, order and last row; most changes of a large table
then need no reading at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from turnout.errors import TurnoutError
from turnout.server.live.encoding import current_body, joined, problem_body, window_head, window_rows
from turnout.server.live.outbox import NewestSlot
from turnout.server.live.threads import Threads
from turnout.store.database import Database
from turnout.store.feed import Delta
from turnout.store.netting import Netting
from turnout.store.tracking import TrackedWindow, track_window
from turnout.store.windows import Window

Place = tuple[int, int]
"""A generation and a version."""

SECONDS_BETWEEN = 0.1
"""A window is sent at most ten times a second."""

_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Readers:
    """What following works with."""

    database: Database
    netting: Netting
    threads: Threads


@dataclass(slots=True)
class _Shown:
    """What the viewers have: the window as it was read, and its encoded rows."""

    tracked: TrackedWindow
    total: int
    place: Place
    rows: bytes

    def differs(self, other: _Shown) -> bool:
        """Whether a viewer would see a difference; a version alone is none."""
        return (self.rows, self.total, self.place[0]) != (other.rows, other.total, other.place[0])

    def body(self, table: str) -> bytes:
        return joined(window_head(table, *self.place, self.total), self.rows)


class SharedWindow:
    """One window and all who look at it. Lives on the event loop; its work runs on threads."""

    def __init__(self, window: Window, readers: Readers, ended: Callable[[], None]) -> None:
        self.window = window
        self._readers = readers
        self._ended = ended
        self._viewers: dict[NewestSlot, Place | None] = {}
        self._shown: _Shown | None = None
        self._place: Place | None = None
        self._deltas: dict[Place, Delta | None] = {}
        self._stale = asyncio.Event()
        self._stale.set()
        self._task = asyncio.ensure_future(self._follow())

    def join(self, slot: NewestSlot, seen: Place | None) -> None:
        """A viewer more; one that has seen the present state is only told so."""
        self._viewers[slot] = seen
        if self._shown is not None:
            self._send_to(slot, self._shown)

    def leave(self, slot: NewestSlot) -> bool:
        """A viewer less; whether any is left."""
        self._viewers.pop(slot, None)
        return bool(self._viewers)

    def close(self) -> None:
        self._task.cancel()

    def told(self, place: Place, deltas: Mapping[Place, Delta | None]) -> None:
        """The table is at `place`. `deltas` tells what led to a place, or None where that was not collected."""
        shown = self._shown.place if self._shown else None
        if shown is not None and place[0] == shown[0] and place[1] <= shown[1]:
            return
        self._place = place
        self._deltas |= deltas
        self._stale.set()

    async def _follow(self) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self._refresh()
            except TurnoutError as error:
                if error.code != "store_unavailable":
                    self._end(error)
                    return
                self._stale.set()
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(SECONDS_BETWEEN)

    async def _refresh(self) -> None:
        shown, place = self._shown, self._place
        deltas = self._deltas_since(shown.place, place) if shown and place else None
        if shown and place and deltas is not None:
            total, concerned = await self._readers.threads.run(lambda: self._effect(shown, deltas))
            if not concerned:
                self._move(shown, place, total)
                return
        fresh = await self._readers.threads.run(self._read)
        self._forget(fresh.place)
        self._shown = fresh
        if shown is None or shown.differs(fresh):
            self._send(fresh)

    def _deltas_since(self, seen: Place, place: Place) -> list[Delta] | None:
        """Everything that happened between two versions of one generation; None where a part of it is not known."""
        if seen[0] != place[0] or place[1] <= seen[1]:
            return None
        found = [self._deltas.get((place[0], version)) for version in range(seen[1] + 1, place[1] + 1)]
        return [delta for delta in found if delta is not None] if None not in found else None

    def _effect(self, shown: _Shown, deltas: Sequence[Delta]) -> tuple[int, bool]:
        full = shown.tracked.result.rows.num_rows == self.window.limit
        last = shown.tracked.last if full and self.window.limit else None
        effect = self._readers.netting.effect(deltas, self.window, shown.tracked.types, shown.tracked.ties, last)
        return shown.total + effect.total, effect.rows

    def _move(self, shown: _Shown, place: Place, total: int) -> None:
        """The rows are the same; only the total may have changed."""
        changed = total != shown.total
        shown.place, shown.total = place, total
        self._forget(place)
        if changed:
            self._send(shown)

    def _read(self) -> _Shown:
        tracked = track_window(self._readers.database, self.window)
        result = tracked.result
        rows = window_rows(tracked, self.window.offset)
        return _Shown(tracked, result.total, (result.generation, result.version), rows)

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

    def _end(self, error: TurnoutError) -> None:
        """The window cannot be read, or not any more: its generation was retired."""
        body = problem_body(error)
        for slot in self._viewers:
            slot.put("error", body)
        self._ended()
