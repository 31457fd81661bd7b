"""A table whose every change is followed: a snapshot, then inserts, updates and deletes in order, encoded once for all.

Changes are kept for a while after they were sent, so that a client that lost its connection goes on where it was. Of
the tables that every generation shares no changes are collected: they are small, and compared with what they were.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.plan.own_tables import SHOWN_OF_STORE
from turnout.serve.live.encoding import changes_body, current_body, problem_body
from turnout.serve.live.outbox import ChangesSlot
from turnout.serve.live.retrying import retried
from turnout.serve.live.snapshots import Snapshot
from turnout.serve.live.windows import MAX_DELTAS, Place, Readers, clients_of, of_generation
from turnout.serve.reads import Reading
from turnout.store.feed import Delta, Wanted
from turnout.store.identity import ROW
from turnout.store.query.delta_sql import ChangeSet
from turnout.store.query.tracked_read import TrackedWindow, track_window
from turnout.store.query.windows import Window, split_name

KEPT_CHANGES = 2_000
KEPT_BYTES = 32 * 1024 * 1024
COMPARED = frozenset({*SHOWN_OF_STORE, "join_quality"})
_LATE_SECONDS = 1.0
_AGAIN_SECONDS = 0.02
_ROOM_SECONDS = 0.2

Reason = Literal["subscribed", "swap", "behind"]


@dataclass(frozen=True, slots=True)
class _Change:
    since: int
    version: int
    body: bytes


class History:
    """The newest changes of one generation of a table, without a gap between them."""

    def __init__(self) -> None:
        self.generation = -1
        self._changes: deque[_Change] = deque()
        self._bytes = 0

    def begin(self, generation: int) -> None:
        self.generation = generation
        self._changes.clear()
        self._bytes = 0

    def add(self, change: _Change) -> None:
        if self._changes and self._changes[-1].version != change.since:
            self.begin(self.generation)
        self._changes.append(change)
        self._bytes += len(change.body)
        while len(self._changes) > KEPT_CHANGES or self._bytes > KEPT_BYTES:
            self._bytes -= len(self._changes.popleft().body)

    def since(self, place: Place, now: int) -> list[bytes] | None:
        """What leads from `place` to version `now`; None where it is not known."""
        generation, version = place
        if generation != self.generation or version > now:
            return None
        if version == now:
            return []
        later = [change for change in self._changes if change.since >= version]
        if not later or later[0].since != version or later[-1].version != now:
            return None
        return [change.body for change in later]


class SharedChanges:
    """One table and all who follow its changes. Lives on the event loop; its work runs on threads.

    `_place` is how far it has told. A follower is at that place, or ahead of it by a newer snapshot; None while its
    snapshot is being read.
    """

    def __init__(self, window: Window, readers: Readers, ended: Callable[[], None]) -> None:
        self.window = window
        self._readers = readers
        self._ended = ended
        self._compares = split_name(window.table)[0] in COMPARED
        self._followers: dict[ChangesSlot, Place | None] = {}
        self._joining: dict[ChangesSlot, asyncio.Task[None]] = {}
        self._history = History()
        self._place: Place | None = None
        self._known: TrackedWindow | None = None
        self._columns: tuple[str, ...] = ()
        self._told: Place | None = None
        self._deltas: dict[Place, Delta | None] = {}
        self._woken = asyncio.Event()
        self._task = asyncio.ensure_future(self._follow())

    @property
    def wanted(self) -> Wanted:
        """All columns: an update that changes nothing is not told."""
        return Wanted(every=True)

    def join(self, slot: ChangesSlot, seen: Place | None) -> None:
        """A follower more: it gets what it has not seen, or else a snapshot."""
        self._followers[slot] = None
        if seen is None or not self._resume(slot, seen):
            self._bring(slot, "subscribed", seen)

    def fall_behind(self, slot: ChangesSlot) -> None:
        """A follower that was too slow gets a snapshot in place of what it missed."""
        if slot in self._followers:
            self._followers[slot] = None
            self._bring(slot, "behind")

    def leave(self, slot: ChangesSlot) -> bool:
        """A follower less; whether any is left."""
        self._followers.pop(slot, None)
        if (joining := self._joining.pop(slot, None)) is not None:
            joining.cancel()
        return bool(self._followers)

    def close(self) -> None:
        self._task.cancel()
        for task in self._joining.values():
            task.cancel()

    def told(self, place: Place, deltas: Mapping[Place, Delta | None]) -> None:
        """The table is at `place`. `deltas` tells what led to a place, or None where that was not collected."""
        self._told = place
        if not self._compares:
            self._deltas = of_generation(self._deltas | dict(deltas), place[0])
            if len(self._deltas) > MAX_DELTAS:
                self._deltas.clear()  # what is missed is told by a snapshot
        self._woken.set()

    # -- one follower, until it is with the others

    def _resume(self, slot: ChangesSlot, seen: Place) -> bool:
        missed = self._history.since(seen, self._place[1]) if self._place else None
        if missed is None or self._place is None:
            return False
        self._followers[slot] = self._place
        if not missed:
            slot.put_current(current_body(self.window.table, *self._place))
        for body in missed:
            slot.put(body)
        return True

    def _bring(self, slot: ChangesSlot, reason: Reason, seen: Place | None = None) -> None:
        if (earlier := self._joining.pop(slot, None)) is not None:
            earlier.cancel()
        task = self._joining[slot] = asyncio.ensure_future(self._bring_in(slot, reason, seen))
        task.add_done_callback(lambda done: self._joining.pop(slot) if self._joining.get(slot) is done else None)

    async def _bring_in(self, slot: ChangesSlot, reason: Reason, seen: Place | None) -> None:
        fault = f"a snapshot of {self.window.table} cannot be read"
        try:
            while slot in self._followers:
                await self._room(slot.client)
                snapshot = await retried(lambda: self._snapshot(reason, [slot]), fault)
                if slot in self._followers and self._admit(slot, snapshot, seen):
                    return
                await asyncio.sleep(_AGAIN_SECONDS)
        except TurnoutError as error:
            self._refuse(slot, error)

    async def _room(self, client: str) -> None:
        """Until the client has read enough of what it asked for before: a whole table is large."""
        while not self._readers.held.has_room(client):
            await asyncio.sleep(_ROOM_SECONDS)

    def _admit(self, slot: ChangesSlot, snapshot: Snapshot, seen: Place | None) -> bool:
        """Let a follower in; False where its snapshot and what all were told do not meet: it is read again."""
        place = _place(snapshot.tracked)
        if self._place is None:
            self._stand_at(snapshot.tracked)
        assert self._place is not None
        if place[0] != self._place[0]:
            return False
        later = self._history.since(place, self._place[1]) if place[1] < self._place[1] else []
        if later is None:
            return False
        if place == seen:
            slot.put_current(current_body(self.window.table, *place))
        else:
            self._put_snapshot(slot, snapshot)
        for body in later:
            slot.put(body)
        self._followers[slot] = max(place, self._place)
        return True

    def _refuse(self, slot: ChangesSlot, error: TurnoutError) -> None:
        slot.put_problem(problem_body(error))
        self._followers.pop(slot, None)
        if not self._followers:
            self._ended()

    async def _snapshot(self, reason: Reason, slots: Iterable[ChangesSlot]) -> Snapshot:
        """All rows. Where tables are compared, those that the next comparison starts from."""
        tracked, reads = self._known, self._readers.reads
        if tracked is None:
            tracked = await reads.run(clients_of(slots), lambda store: track_window(store, self.window))
        return Snapshot(tracked, reason, reads)

    def _put_snapshot(self, slot: ChangesSlot, snapshot: Snapshot) -> None:
        """Counted until the last part was sent: parts that wait keep it alive."""
        self._readers.held.keep(slot.client, snapshot, int(snapshot.tracked.rows.nbytes))
        slot.put_snapshot(snapshot.parts(slot.client))

    # -- all followers

    async def _follow(self) -> None:
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await retried(self._advance, f"the changes of {self.window.table} cannot be followed")
        except TurnoutError as error:
            self._end(error)

    async def _advance(self) -> None:
        """Tell everything up to what the table was told to be at."""
        while self._place is not None and self._told is not None and self._told != self._place:
            generation, version = self._place
            if self._told[0] != generation:
                await self._start_over("swap")
            elif self._told[1] < version:
                return
            elif self._compares:
                await self._compare()
            elif (delta := await self._delta((generation, version + 1))) is not None:
                await self._tell(delta, version + 1)
            else:
                await self._start_over("behind")

    async def _delta(self, place: Place) -> Delta | None:
        """What led to a place. A version can be seen in the store a moment before its change is heard of."""
        deadline = asyncio.get_running_loop().time() + _LATE_SECONDS
        while place not in self._deltas and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_AGAIN_SECONDS)
        delta = self._deltas.get(place)
        if delta is not None and not delta.tells(self._columns):
            delta = None  # collected before anybody followed the changes
        self._deltas = {later: known for later, known in self._deltas.items() if later > place}
        return delta

    async def _tell(self, delta: Delta, version: int) -> None:
        assert self._place is not None
        generation, since = self._place

        def encode(_: Reading) -> bytes:
            changes = self._readers.netting.change_set(delta, self._columns)
            return self._body(changes, generation, since, version)

        self._emit(_Change(since, version, await self._readers.reads.run(clients_of(self._followers), encode)))

    async def _compare(self) -> None:
        """One change from what the table was to what it is, however many versions lie between."""
        known = self._known
        assert known is not None

        def read(store: Reading) -> tuple[TrackedWindow, bytes | None]:
            fresh = track_window(store, self.window)
            if fresh.result.generation != known.result.generation:
                return fresh, None
            delta = Delta(_with_ids(known), _with_ids(fresh))
            changes = self._readers.netting.change_set(delta, self._columns)
            return fresh, self._body(changes, fresh.result.generation, known.result.version, fresh.result.version)

        fresh, body = await self._readers.reads.run(clients_of(self._followers), read)
        if body is None:
            await self._start_over("swap")
            return
        self._known = fresh
        self._emit(_Change(known.result.version, fresh.result.version, body))

    async def _start_over(self, reason: Reason) -> None:
        """A snapshot for all: another generation, or changes that are not known."""
        self._known = None
        snapshot = await self._snapshot(reason, self._followers)
        self._stand_at(snapshot.tracked)
        for slot, place in self._followers.items():
            if place is not None and not (place[0] == self._place_now[0] and place[1] >= self._place_now[1]):
                self._put_snapshot(slot, snapshot)
                self._followers[slot] = self._place_now

    def _stand_at(self, tracked: TrackedWindow) -> None:
        self._place = _place(tracked)
        self._columns = tuple(column.name for column in tracked.result.columns)
        self._known = tracked if self._compares else None
        self._history.begin(tracked.result.generation)

    def _emit(self, change: _Change) -> None:
        generation = self._place_now[0]
        self._history.add(change)
        self._place = (generation, change.version)
        for slot, place in self._followers.items():
            if place == (generation, change.since):
                slot.put(change.body)
                self._followers[slot] = self._place

    @property
    def _place_now(self) -> Place:
        assert self._place is not None
        return self._place

    def _body(self, changes: ChangeSet, generation: int, since: int, version: int) -> bytes:
        insert, update = changes.insert, changes.update
        return changes_body(
            self.window.table, generation, since, version, insert=insert, update=update, delete=changes.delete
        )

    def _end(self, error: TurnoutError) -> None:
        """The table cannot be read any more: its generation was retired."""
        body = problem_body(error)
        for slot in self._followers:
            slot.put_problem(body)
        self._ended()


def _place(tracked: TrackedWindow) -> Place:
    return tracked.result.generation, tracked.result.version


def _with_ids(tracked: TrackedWindow) -> pa.Table:
    return tracked.result.rows.append_column(ROW, tracked.ids)
