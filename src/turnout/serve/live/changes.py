"""The changes of a table: a snapshot, then inserts, updates and deletes in order, encoded once for all subscriptions.

Changes are kept for a while after they were sent, so that a client that lost its connection goes on where it was. Of
the tables that every generation shares no changes are collected: they are small, and compared with what they were.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import pyarrow as pa

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.plan.tables import SHOWN_OF_STORE
from turnout.serve.live.outbox import ROOM_SECONDS, Part, Subscription, current_body, problem_body
from turnout.serve.live.shared import Deltas, Readers, Shared, clients_of, retried
from turnout.serve.reads import Reads, StoreRead
from turnout.serve.responses import json_object, rows_json, to_json
from turnout.store.database import give_back
from turnout.store.feed import Delta, Wanted
from turnout.store.identity import ROW
from turnout.store.query.window_rows import TrackedWindow, track_window
from turnout.store.query.windows import Positions, Window
from turnout_client.messages import SNAPSHOT_PART_ROWS

KEPT_CHANGES = 2_000
KEPT_BYTES = 32 * 1024 * 1024
CHANGES_PART = 4
"""Changes that are kept for a client have so small a part of what else may be held for it, besides."""
COUNTED_BYTES = 64 * 1024
"""Changes are counted when they have grown by so much."""
MAX_LATER = 100
"""A snapshot that others read now is sent with so many changes at most; else the table is read again."""

COMPARED = frozenset({*SHOWN_OF_STORE, "join_quality"})
_LATE_SECONDS = 1.0
_AGAIN_SECONDS = 0.02
# Rows while they are read: they are sorted, too.
_READ_COPIES = 2

Reason = Literal["subscribed", "swap", "behind"]


class ChangeHistory:
    """The newest changes of one generation of a table, without a gap between them."""

    def __init__(self) -> None:
        self.generation = -1
        self._changes: deque[tuple[int, int, bytes]] = deque()
        """Each from a version to a version."""
        self.bytes = 0

    def begin(self, generation: int) -> None:
        self.generation = generation
        self._changes.clear()
        self.bytes = 0

    def add(self, since: int, version: int, body: bytes) -> None:
        if self._changes and self._changes[-1][1] != since:
            self.begin(self.generation)
        self._changes.append((since, version, body))
        self.bytes += len(body)
        while len(self._changes) > KEPT_CHANGES or self.bytes > KEPT_BYTES:
            self.bytes -= len(self._changes.popleft()[2])

    def since(self, position: Position, now: int) -> list[bytes] | None:
        """What leads from `position` to version `now`; None where it is not known."""
        version = position.version
        if position.generation != self.generation or version > now:
            return None
        if version == now:
            return []
        later = [change for change in self._changes if change[0] >= version]
        if not later or later[0][0] != version or later[-1][1] != now:
            return None
        return [body for _, _, body in later]


class TableSnapshot:
    """All rows of a table, and why they are sent. Used on the event loop; reading and encoding run on threads.

    `tracked` are the rows, once they were read.

    A part is encoded only when a client is about to be sent it: one that reads nothing costs nothing but the rows.
    Those that read at one pace share what is encoded; it is dropped when the last of them was sent it.
    """

    tracked: TrackedWindow

    def __init__(self, reason: Reason, reads: Reads) -> None:
        self.reason = reason
        self._reads = reads
        self._encoded: weakref.WeakValueDictionary[int, asyncio.Future[bytes]] = weakref.WeakValueDictionary()

    @property
    def position(self) -> Position:
        return self.tracked.result.position

    @property
    def size(self) -> int:
        return int(self.tracked.rows.nbytes)

    def parts(self, client: str) -> list[Part]:
        """The bodies of the messages; who asks first for one pays for it."""
        size = self.size * SNAPSHOT_PART_ROWS // max(SNAPSHOT_PART_ROWS, self.tracked.rows.num_rows)
        return [Part(partial(self._body, client, start), size) for start in snapshot_starts(self.tracked)]

    def _body(self, client: str, start: int) -> asyncio.Future[bytes]:
        body = self._encoded.get(start)
        if body is None:
            encode = partial(snapshot_part, self.tracked, self.reason, start)
            work = retried(lambda: self._reads.run([client], lambda _: encode()), "a snapshot cannot be encoded")
            body = self._encoded[start] = asyncio.ensure_future(work)
        return body


class SharedChanges(Shared):
    """One table and all subscriptions to its changes.

    Each subscription is at `position`, or ahead of it by a newer snapshot; None while its snapshot is being read.
    """

    resume_seconds = 60.0

    def __init__(self, window: Window, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(window.table, readers, ended)
        self._window = window
        self._compares = self.table in COMPARED
        self._joining: dict[Subscription, asyncio.Task[None]] = {}
        self._history = ChangeHistory()
        self._known: TrackedWindow | None = None
        """Where tables are compared: the rows that were sent last."""
        self._columns: tuple[str, ...] = ()
        self._reading = asyncio.Lock()
        self._newest: Callable[[], TableSnapshot | None] = lambda: None
        """The snapshot that was read last, while a client has yet to read it."""
        self._counted = 0

    @property
    def wanted(self) -> Wanted:
        """All columns: an update that changes nothing is not sent."""
        return Wanted(every=True)

    def join(self, subscription: Subscription) -> None:
        """Add a subscription: it gets what its client has not seen, or else a snapshot."""
        subscription.fall_behind = self._fall_behind
        seen = subscription.seen
        missed = self._history.since(seen, self.position.version) if seen and self.position else None
        if missed is None:
            self._bring(subscription, "subscribed")
            return
        self._subscriptions[subscription], subscription.seen = self.position, None
        if not missed and seen:
            subscription.replace("current", current_body(self._window.table, seen))
        for body in missed:
            subscription.add_changes(body)

    def leave(self, subscription: Subscription) -> bool:
        if (joining := self._joining.pop(subscription, None)) is not None:
            joining.cancel()
        return super().leave(subscription)

    def close(self) -> None:
        super().close()
        for task in self._joining.values():
            task.cancel()

    def notify(self, positions: Positions, deltas: Mapping[str, Deltas]) -> None:
        super().notify(positions, {} if self._compares else deltas)

    # -- one subscription, until it is with the others

    def _fall_behind(self, subscription: Subscription) -> None:
        """Send a snapshot in place of changes that a slow client has missed."""
        if subscription in self._subscriptions:
            self._bring(subscription, "behind")

    def _bring(self, subscription: Subscription, reason: Reason) -> None:
        """Bring a subscription to the position of the others, by a snapshot."""
        self._subscriptions[subscription] = None
        if (earlier := self._joining.pop(subscription, None)) is not None:
            earlier.cancel()
        task = self._joining[subscription] = asyncio.ensure_future(self._bring_in(subscription, reason))
        task.add_done_callback(
            lambda done: self._joining.pop(subscription) if self._joining.get(subscription) is done else None
        )

    async def _bring_in(self, subscription: Subscription, reason: Reason) -> None:
        fault = f"a snapshot of {self._window.table} cannot be read"
        try:
            async with self._readers.snapshot_turn(subscription.client):
                while subscription in self._subscriptions:
                    snapshot = await retried(lambda: self._snapshot(reason, subscription.client), fault)
                    if snapshot is None:
                        await asyncio.sleep(ROOM_SECONDS)
                    elif subscription in self._subscriptions and self._admit(subscription, snapshot):
                        return
                    else:
                        await asyncio.sleep(_AGAIN_SECONDS)
        except TurnoutError as error:
            subscription.replace("error", problem_body(self._explained(error)))
            self._subscriptions.pop(subscription, None)
            if not self._subscriptions:
                self._ended()

    def _admit(self, subscription: Subscription, snapshot: TableSnapshot) -> bool:
        """Send a snapshot; False where it does not meet what the others were sent: then it has to be read again."""
        if self.position is None:
            self._begin_at(snapshot)
        assert self.position is not None
        at = snapshot.position
        later = [] if at.reaches(self.position) else self._history.since(at, self.position.version)
        if later is None:
            return False
        if at == subscription.seen:
            subscription.replace("current", current_body(self._window.table, at))
        else:
            subscription.replace("snapshot", *snapshot.parts(subscription.client))
        for body in later:
            subscription.add_changes(body)
        self._subscriptions[subscription], subscription.seen = max(at, self.position), None
        return True

    async def _snapshot(self, reason: Reason, client: str) -> TableSnapshot | None:
        """One that others read now, or another; None while the client has no room: first it has to read what it has.

        It counts from its first rows on until the last part was sent: parts that wait keep it alive.
        """
        held = self._readers.held
        async with self._reading:
            known = self._newest()
            if known is not None and known.reason == reason and self._meets(known.position):
                return known if held.admit(client, known, known.size) else None
            fresh = TableSnapshot(reason, self._readers.reads)

            def expected(size: int) -> None:
                if not held.admit(client, fresh, size):
                    raise held.too_much()

            try:
                # Where tables are compared: the rows that the next comparison starts from.
                fresh.tracked = self._known or await self._read([client], lambda size: expected(_READ_COPIES * size))
                expected(fresh.size)
            except BaseException as error:
                held.forget(client, fresh)
                if not isinstance(error, TurnoutError) or error.code != "too_much_unread":
                    raise
                error.__traceback__ = None  # it holds rows that were read, in a cycle with the future that had it
                return None
            self._newest = weakref.ref(fresh)
            return fresh

    def _meets(self, at: Position) -> bool:
        """Whether a snapshot and few changes lead to where the table is."""
        if self.position is None:
            return self._table_position is not None and at.reaches(self._table_position)
        later = [] if at.reaches(self.position) else self._history.since(at, self.position.version)
        return later is not None and len(later) <= MAX_LATER

    async def _read(self, clients: Collection[str], expected: Callable[[int], None] | None = None) -> TrackedWindow:
        return await self._readers.reads.run(clients, lambda store: self._read_now(store, expected))

    def _read_now(self, store: StoreRead, expected: Callable[[int], None] | None) -> TrackedWindow:
        if expected is not None:
            # What earlier snapshots left lies in the heaps of other threads: 1.3 GB after two attacks by unread tables.
            give_back()
        return track_window(store, self._window, expected)

    # -- all subscriptions

    async def _advance(self) -> None:
        while self.position is not None and self._table_position is not None and not self._is_current():
            following = replace(self.position, version=self.position.version + 1)
            if self._table_position.generation != self.position.generation:
                self._start_over("swap")
            elif self._known is not None:
                await self._compare(self._known)
            elif (delta := await self._delta(following)) is not None:
                await self._send(delta, following)
            else:
                self._start_over("behind")

    async def _delta(self, position: Position) -> Delta | None:
        """What led to a position. A version can be seen in the store a moment before its change is heard of."""
        deadline = asyncio.get_running_loop().time() + _LATE_SECONDS
        while position not in self._deltas and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_AGAIN_SECONDS)
        delta = self._deltas.get(position)
        if delta is not None and not delta.tells(self._columns):
            delta = None  # collected before anybody subscribed to the changes
        self._drop_deltas(position)
        return delta

    async def _compare(self, known: TrackedWindow) -> None:
        """Send one change from what the table was to what it is, however many versions lie between."""
        fresh = await self._read(clients_of(self._subscriptions))
        if fresh.result.position.generation != known.result.position.generation:
            self._start_over("swap")
            return
        # The rows of a whole table have their ids in the last column.
        await self._send(Delta(known.rows, fresh.rows), fresh.result.position)
        self._known = fresh

    async def _send(self, delta: Delta, position: Position) -> None:
        """Send a change to every subscription that is where it begins."""
        assert self.position is not None
        begins = self.position

        def encode(_: StoreRead) -> bytes:
            insert, update, delete = self._readers.queries.change_set(delta, self._columns)
            fields = {"table": self._window.table, **position.as_json(), "since": begins.version}
            return json_object(fields, insert=_row_set(insert), update=_row_set(update), delete=to_json(delete))

        body = await self._readers.reads.run(clients_of(self._subscriptions), encode)
        self._history.add(begins.version, position.version, body)
        self.position = position
        for subscription, sent in self._subscriptions.items():
            if sent == begins:
                subscription.add_changes(body)
                self._subscriptions[subscription] = self.position
        self._charge_changes()

    def _charge_changes(self) -> None:
        """Charge the kept changes to each client; drop them, also unread ones, where no client has room for them."""
        if abs(self._history.bytes - self._counted) < COUNTED_BYTES:
            return
        held, clients = self._readers.changes, clients_of(self._subscriptions)
        self._counted = self._history.bytes
        for client in clients:
            held.keep(client, self, self._counted)
        if self._subscriptions and not any(map(held.has_room, clients)):
            self._history.begin(self._history.generation)
            for subscription in self._subscriptions:
                subscription.drop_changes()
            self._charge_changes()

    def _start_over(self, reason: Reason) -> None:
        """Send a snapshot to all: another generation, or changes that are not known."""
        self._known = self.position = None
        for subscription, position in list(self._subscriptions.items()):
            if position is not None:
                subscription.clear()  # what is sent instead needs its room
                self._bring(subscription, reason)

    def _was_read(self) -> bool:
        return bool(self._columns)

    def _begin_at(self, snapshot: TableSnapshot) -> None:
        self.position = snapshot.position
        self._columns = tuple(column.name for column in snapshot.tracked.result.columns)
        self._known = snapshot.tracked if self._compares else None
        self._history.begin(self.position.generation)
        # Commits that were heard while the snapshot was read may lie beyond it.
        self._woken.set()


def snapshot_starts(tracked: TrackedWindow) -> range:
    """Where the bodies of a whole table begin, each of a bounded size; an empty one is one body."""
    return range(0, max(1, tracked.result.rows.num_rows), SNAPSHOT_PART_ROWS)


def snapshot_part(tracked: TrackedWindow, reason: str, start: int) -> bytes:
    result = tracked.result
    fields = {
        "table": result.table,
        **result.position.as_json(),
        "reason": reason,
        "last": start == snapshot_starts(tracked)[-1],
        "columns": result.columns,
    }
    rows = result.rows.slice(start, SNAPSHOT_PART_ROWS)
    ids = tracked.rows[ROW].slice(start, SNAPSHOT_PART_ROWS)
    return json_object(fields, ids=to_json(ids.to_pylist()), rows=rows_json(rows))


def _row_set(rows: pa.Table) -> bytes:
    """Rows that have their ids in the last column."""
    ids, values = rows.columns[-1], rows.select(rows.column_names[:-1])
    return json_object({}, ids=to_json(ids.to_pylist()), rows=rows_json(values))
