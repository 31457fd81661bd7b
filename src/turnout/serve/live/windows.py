"""A window of a table, sent whenever it changes: read once for all its subscriptions, and again only when needed.

Near the top of a table, where most people look, the window's rows and some more are held, and changes are merged into
them; further down, a change is held against the filter and the order. So a large table is seldom read. Windows are
merged many at a time, on one thread: what a change means to all of them is one query.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

import pyarrow as pa

from turnout.serve.formats import json_object, rows_json, to_json
from turnout.serve.live.hub import Position, Readers, Shared, clients_of
from turnout.serve.live.outbox import Subscription, current_body
from turnout.serve.reads import Reading
from turnout.serve.threads import Threads, Turns
from turnout.store.feed import Delta, Wanted
from turnout.store.identity import ROW, WITHOUT_ORDER
from turnout.store.query.where import MAX_SMALL_FILTER, weight
from turnout.store.query.window_rows import (
    MAX_HELD_ROWS,
    SPARE_ROWS,
    DeltaQueries,
    Held,
    Order,
    Sifted,
    hold,
    track_window,
)
from turnout.store.query.windows import Column, Window, split_name

log = logging.getLogger(__name__)

MOST_AT_ONCE = 64
MOST_LARGE_AT_ONCE = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Due(Generic[T]):
    """Deltas of one window, and the callback that applies them."""

    order: Order
    deltas: Sequence[Delta]
    take: Callable[[Sequence[Sifted]], T | None]


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    due: Callable[[], Due[T] | None]
    answer: asyncio.Future[T | None]


class Merger(Generic[T]):
    """Merges changes into windows, on a thread of its own. Lives on the event loop.

    Clients take turns, and one window that has waited takes all that came meanwhile at once. Windows with large filters
    have another, which rests as long as it works: what they cost, only they wait for.
    """

    def __init__(self, queries: DeltaQueries, *, large: bool = False) -> None:
        self.queries = queries
        self._most = MOST_LARGE_AT_ONCE if large else MOST_AT_ONCE
        self._rests = large
        self._thread = Threads(1, "merge", yielding=large)
        self._waiting: Turns[str, _Waiting[T]] = Turns()
        self._working: asyncio.Task[None] | None = None

    async def merge(self, due: Callable[[], Due[T] | None], clients: Collection[str] = ()) -> T | None:
        """What the window makes of its changes; None where the table has to be read. `due` is asked in its turn."""
        waiting = _Waiting(due, asyncio.get_running_loop().create_future())
        self._waiting.put(min(clients, key=self._waiting.waiting, default=""), waiting)
        if self._working is None or self._working.done():
            self._working = asyncio.ensure_future(self._work())
        return await waiting.answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while turn := self._turn():
            began = loop.time()
            try:
                await self._take(turn)
            except Exception as error:
                for waiting in turn:
                    _settle(waiting.answer, error)
            if self._rests:
                await asyncio.sleep(loop.time() - began)

    def _turn(self) -> list[_Waiting[T]]:
        taken = (self._waiting.take() for _ in range(self._most))
        return [waiting for _, waiting in filter(None, taken)]

    async def _take(self, turn: Sequence[_Waiting[T]]) -> None:
        # Those that were cancelled meanwhile have left.
        taken = [(waiting, waiting.due()) for waiting in turn if not waiting.answer.done()]
        dues = [due for _, due in taken if due is not None]
        made = iter(await self._thread.run(partial(self._merged, dues)) if dues else ())
        for waiting, due in taken:
            _settle(waiting.answer, next(made) if due is not None else None)

    def _merged(self, dues: Sequence[Due[T]]) -> list[T | Exception | None]:
        """On the thread. An error of one window reaches that one only."""
        orders: dict[int, tuple[Delta, list[Order]]] = {}
        for due in dues:
            for delta in due.deltas:
                orders.setdefault(id(delta), (delta, []))[1].append(due.order)
        try:
            sifted = {number: self.queries.sift(delta, wanted) for number, (delta, wanted) in orders.items()}
        except Exception:
            log.exception("changes cannot be merged into %d windows; they are read again", len(dues))
            return [None] * len(dues)
        taken: list[T | Exception | None] = []
        for due in dues:
            try:
                taken.append(due.take([sifted[id(delta)] for delta in due.deltas]))
            except Exception as error:
                taken.append(error)
        return taken


def _settle(answer: asyncio.Future[T | None], made: T | Exception | None) -> None:
    if answer.done():
        return
    if isinstance(made, Exception):
        answer.set_exception(made)
    else:
        answer.set_result(made)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the clients have: where the table was, the rows that are held of it, and the encoded ones of the window."""

    position: Position
    columns: tuple[Column, ...]
    order: Order
    held: Held
    rows: bytes

    @property
    def size(self) -> int:
        return len(self.rows) + int(self.held.rows.nbytes)

    def differs(self, other: _Shown) -> bool:
        """Whether a viewer would see a difference; a version alone is none."""
        mine, others = (self.rows, self.held.total), (other.rows, other.held.total)
        return mine != others or self.position[0] != other.position[0]

    def body(self, table: str) -> bytes:
        generation, version = self.position
        head = to_json({"table": table, "generation": generation, "version": version, "total": self.held.total})
        return head[:-1] + b"," + self.rows[1:]


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
            merger = self._readers.large_merger if self._large else self._readers.merger
            fresh = await merger.merge(self._due, clients)
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
        rows = _rows_body(self._visible(held), shown.columns, self.window.offset)
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
        encoded = _rows_body(self._visible(held), result.columns, self.window.offset)
        return _Shown((result.generation, result.version), result.columns, tracked.order, held, encoded)

    def _send_to(self, subscription: Subscription, shown: _Shown) -> None:
        seen, self._subscriptions[subscription] = self._subscriptions[subscription], None
        if seen == shown.position:
            subscription.replace("current", current_body(self.window.table, *shown.position))
        else:
            subscription.replace("rows", shown.body(self.window.table))


def _rows_body(rows: pa.RecordBatch, columns: Sequence[Column], offset: int) -> bytes:
    """The part of a window that stays while only its total changes."""
    shown = rows.select([column.name for column in columns])
    ids = to_json(rows.column(ROW).to_pylist())
    return json_object({"offset": offset, "columns": columns}, ids=ids, rows=rows_json(shown))
