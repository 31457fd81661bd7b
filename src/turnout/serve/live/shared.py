"""What subscriptions share: each window, each table's changes and each answer is kept once, however many subscribe.

`Shared` is the base of its kinds, which are in `windows.py`, `changes.py`, `summaries.py` and `computed.py`. `hub.py`
notifies each of them of how far its table is. `Readers` is what they read and compute with, in turns of clients
(`serve/rounds.py`): many windows are merged at a time, on one thread, because what a change means to all of them is one
query; what a batch means to fifty summaries is a query or two.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.limits import HeldBytes
from turnout.serve.live.outbox import Subscription, problem_body
from turnout.serve.live.summary_history import Histories
from turnout.serve.reads import Reads, StoreRead, timed
from turnout.serve.responses import json_object
from turnout.serve.rounds import Rounds, Threads, Turns, do
from turnout.store.feed import Delta, Wanted
from turnout.store.query.summary_read import Advanced, KeptGroups, SummaryQueries
from turnout.store.query.window_rows import DeltaQueries, Order, Sifted
from turnout.store.query.windows import Positions, split_name

log = logging.getLogger(__name__)

Deltas = Mapping[Position, Delta | None]
"""What led to each position of a table; None where that was not collected."""

MAX_DELTAS = 200
"""Changes that wait to be applied; with more than that the table is read again."""

LEAST_PAUSE_SECONDS = 0.1
"""Between two states of a subject: they are sent at most ten times a second."""

RESTS = 4
"""How many times as long as it took to compute an answer, it is not computed again."""

# A computation that takes longer waits with its like, so that the quick ones go on.
_SLOW_SECONDS = 0.25
_STORE_AWAY_SECONDS = 1.0
# In one round.
MOST_WINDOWS, MOST_LARGE_WINDOWS, MOST_SUMMARIES = 64, 4, 100
# How long nobody computes after each turn, as a part of what it took.
_IDLE_PART = 0.5

T = TypeVar("T")
C = TypeVar("C")


class _Merger(Generic[C, T]):
    """Merges changes, many at a time, on a thread of its own. Used on the event loop."""

    def __init__(
        self, name: str, most: int, rest_seconds: Callable[[str, float], float], *, yielding: bool = False
    ) -> None:
        self._thread = Threads(1, name, yielding=yielding)
        self._rounds: Rounds[str, Callable[[], C | None], T | None] = Rounds(
            self._merge, most=most, rest_seconds=rest_seconds
        )

    async def merge(self, due: Callable[[], C | None], clients: Collection[str] = ()) -> T | None:
        """What is made of changes; None where the table has to be read.

        `due` is asked in its turn, so who has waited takes all that came meanwhile at once.
        """
        return await self._rounds.ask(min(clients, key=self._rounds.waiting, default=""), due)

    async def _merge(self, asked: Sequence[Callable[[], C | None]]) -> list[T | Exception | None]:
        due = [changes() for changes in asked]
        known = [changes for changes in due if changes is not None]
        made = iter(await self._thread.run(partial(self._merged, known)))
        return [None if changes is None else next(made) for changes in due]

    def _merged(self, known: Sequence[C]) -> list[T | Exception | None]:
        """On the thread: the answer of each, None for one whose table has to be read."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class WindowChanges(Generic[T]):
    """Deltas of one window, and the callback that applies them."""

    order: Order
    deltas: Sequence[Delta]
    take: Callable[[Sequence[Sifted]], T | None]


class WindowMerger(_Merger[WindowChanges[T], T]):
    """Merges changes into windows.

    Windows with large filters have another merger, which rests as long as it works: what they cost, only they wait for.
    """

    def __init__(self, queries: DeltaQueries, *, large: bool = False) -> None:
        most = MOST_LARGE_WINDOWS if large else MOST_WINDOWS
        super().__init__("merge", most, lambda _, seconds: seconds if large else 0.0, yielding=large)
        self._queries = queries

    def _merged(self, known: Sequence[WindowChanges[T]]) -> list[T | Exception | None]:
        """On the thread. An error of one window reaches that one only."""
        orders: dict[int, tuple[Delta, list[Order]]] = {}
        for window in known:
            for delta in window.deltas:
                orders.setdefault(id(delta), (delta, []))[1].append(window.order)
        try:
            sifted = {number: self._queries.sift(delta, wanted) for number, (delta, wanted) in orders.items()}
        except Exception:
            log.exception("changes cannot be merged into %d windows; they are read again", len(known))
            return [None] * len(known)
        return [_attempt(window.take, [sifted[id(delta)] for delta in window.deltas]) for window in known]


def _attempt(take: Callable[[Sequence[Sifted]], T | None], sifted: Sequence[Sifted]) -> T | Exception | None:
    try:
        return take(sifted)
    except Exception as error:
        return error


@dataclass(frozen=True, slots=True)
class GroupChanges(Generic[T]):
    """Groups of a summary, what changed since they were so, and the callback that encodes what comes of it."""

    kept: KeptGroups
    deltas: Sequence[Delta]
    encode: Callable[[Advanced], T]


class SummaryMerger(_Merger[GroupChanges[Any], Any]):
    """Merges changes into kept summaries, all that wait at once.

    After each round nobody works for as long as it took of a core, so together they never take more than half of one.
    On full cores a round lasts longer than that; who waited for the cores need not rest for it.
    """

    def __init__(self) -> None:
        super().__init__("summaries", MOST_SUMMARIES, lambda *_: self._core_seconds)
        self.queries = SummaryQueries()
        self._core_seconds = 0.0

    def _merged(self, known: Sequence[GroupChanges[Any]]) -> list[Any]:
        began = time.thread_time()
        made: list[Any] = [None] * len(known)
        changes: dict[tuple[int, ...], list[int]] = {}
        for number, summary in enumerate(known):
            changes.setdefault(tuple(map(id, summary.deltas)), []).append(number)
        for same in changes.values():
            try:
                advanced = self.queries.advance([known[number].kept for number in same], known[same[0]].deltas)
                for number, groups in zip(same, advanced, strict=True):
                    made[number] = known[number].encode(groups) if groups else None
            except Exception:
                log.exception("changes cannot be merged into %d summaries; their tables are read again", len(same))
        self._core_seconds = time.thread_time() - began
        return made


class Readers:
    """Reads of the store, the bytes held for clients, and turns at merging changes and computing answers.

    `changes` counts the changes that are kept for clients, apart: rows that wait must not push them out.
    """

    def __init__(self, reads: Reads, held: HeldBytes, changes: HeldBytes) -> None:
        self.reads = reads
        self.held = held
        self.changes = changes
        self.queries = DeltaQueries()
        self.windows: WindowMerger[Any] = WindowMerger(self.queries)
        self.large_windows: WindowMerger[Any] = WindowMerger(self.queries, large=True)
        self.summaries = SummaryMerger()
        self.histories = Histories()
        # Turns at computing answers again, one at a time. Nobody computes for half as long as each took.
        rest_seconds = lambda _, seconds: seconds * _IDLE_PART  # noqa: E731
        self.quick: Turns[str, Any] = Rounds(do, rest_seconds=rest_seconds)
        self.slow: Turns[str, Any] = Rounds(do, rest_seconds=rest_seconds)
        self._snapshot_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def snapshot_turn(self, client: str) -> asyncio.Lock:
        """The turn of a client at whole tables: it has one read of them at a time."""
        return self._snapshot_turns.setdefault(client, asyncio.Lock())


class Shared:
    """One subject with its subscriptions, each with the position that it was sent. Used on the event loop.

    The subject is a table, as clients name it (`users_ui`, `users_ui@7`); a SELECT has None.
    """

    resume_seconds = 0.0
    """How long it goes on after the last subscription ended: that client may come back."""

    pause_seconds = 0.0
    """How long it rests after each step."""

    def __init__(self, subject: str | None, readers: Readers, ended: Callable[[], None]) -> None:
        self.subject = subject
        self.table: str | None = None
        """The name of the table, without a generation."""
        self.generation: int | None = None
        """The generation that the subject names."""
        if subject is not None:
            self.table, self.generation = split_name(subject)
        self.position: Position | None = None
        """How far its subscriptions have been sent; None before the first read."""
        self.last_client = ""
        """The client that left last."""
        self._readers = readers
        self._ended = ended
        self._subscriptions: dict[Subscription, Position | None] = {}
        self._table_position: Position | None = None
        self._deltas: dict[Position, Delta | None] = {}
        self._woken = asyncio.Event()
        self._woken.set()
        self._task = asyncio.ensure_future(self._follow())

    @property
    def generations(self) -> Collection[int]:
        """The generations that it follows, published or not."""
        return () if self.generation is None else (self.generation,)

    @property
    def wanted(self) -> Wanted | None:
        """The columns that its deltas must have; None where it needs no deltas."""
        raise NotImplementedError

    def join(self, subscription: Subscription) -> None:
        """Add a subscription."""
        raise NotImplementedError

    async def _advance(self) -> None:
        """Bring the subscriptions to where the table is."""
        raise NotImplementedError

    def leave(self, subscription: Subscription) -> bool:
        """Remove a subscription; whether others remain."""
        self._subscriptions.pop(subscription, None)
        self.last_client = subscription.client
        return bool(self._subscriptions)

    def close(self) -> None:
        self._task.cancel()

    def notify(self, positions: Positions, deltas: Mapping[str, Deltas]) -> None:
        """Take the positions of all tables, and what led there, by table."""
        if self.subject is None or self.table is None:
            return
        position = positions.of(self.subject)
        # Also what leads beyond the position: it was committed after that was read. Not the deltas of other
        # generations, which would only pile up.
        known = {**self._deltas, **deltas.get(self.table, {})}
        self._deltas = {at: delta for at, delta in known.items() if at.generation == position.generation}
        if len(self._deltas) > MAX_DELTAS:
            self._deltas.clear()
        self._table_position = position
        if not self._is_current():
            self._woken.set()

    def _known_deltas(self, since: Position, columns: Collection[str]) -> list[Delta]:
        """What led from `since` to where the table is; empty where a step, or a column of it, is not known."""
        now, generation = self._table_position, since.generation
        if now is None or now.generation != generation:
            return []
        steps = [Position(generation, version) for version in range(since.version + 1, now.version + 1)]
        known = [delta for step in steps if (delta := self._deltas.get(step)) is not None and delta.tells(columns)]
        return known if len(known) == len(steps) else []

    def _drop_deltas(self, upto: Position) -> None:
        """Drop the changes that lead no further than a position; later ones still have to be merged."""
        self._deltas = {at: delta for at, delta in self._deltas.items() if at > upto}

    def _is_current(self) -> bool:
        """Whether subscribers have the newest version that is known. A read can be newer than the last notification."""
        if self.position is None or self._table_position is None:
            return False
        return self.position.reaches(self._table_position)

    def _charge(self, size: int) -> None:
        """Charge the bytes to each client; end the subscriptions of a client over its limit."""
        held = self._readers.held
        for client in clients_of(self._subscriptions):
            held.keep(client, self, size)
            if not held.has_room(client):
                for lost in [known for known in self._subscriptions if known.client == client]:
                    lost.replace("error", problem_body(held.too_much()))
                    del self._subscriptions[lost]
                held.keep(client, self, 0)
        if not self._subscriptions:
            self._ended()

    async def _follow(self) -> None:
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await retried(self._advance, f"{self.subject or 'a SELECT'} cannot be followed")
                await asyncio.sleep(self.pause_seconds)
        except TurnoutError as error:
            # Mostly its generation was retired, or a table or a column is gone.
            for subscription in self._subscriptions:
                subscription.replace("error", problem_body(self._explained(error)))
            self._ended()

    def _explained(self, error: TurnoutError) -> TurnoutError:
        """The error for subscribers: a table that was read before and is not known any more is gone."""
        table_is_gone = error.code == "unknown_table" and self.generation is None and self._was_read()
        return table_gone(self.table, error.hint) if table_is_gone and self.table else error

    def _was_read(self) -> bool:
        """Whether the table was there when it was subscribed to."""
        return self.position is not None


@dataclass(frozen=True, slots=True)
class SentState:
    """What the clients of a subject have: where its tables were, how many rows there are, and these, encoded."""

    positions: tuple[Position, ...]
    total: int
    encoded: bytes

    @property
    def position(self) -> Position:
        """The position of its table, where it is of one."""
        return self.positions[0]

    @property
    def size(self) -> int:
        """The bytes that are held."""
        return len(self.encoded)

    def differs(self, other: SentState) -> bool:
        """Whether a viewer would see a difference; a version alone is none."""
        mine, others = ([at.generation for at in one.positions] for one in (self, other))
        return (self.encoded, self.total, mine) != (other.encoded, other.total, others)

    def body(self, table: str, **more: bytes) -> bytes:
        fields = {"table": table, **self.position.as_json(), "total": self.total}
        return json_object(fields, **more)[:-1] + b"," + self.encoded[1:]


S = TypeVar("S", bound=SentState)


class SharedState(Shared, Generic[S]):
    """A subject of which each subscription gets only the newest state."""

    _state: S | None = None

    def join(self, subscription: Subscription) -> None:
        self._subscriptions[subscription] = None
        if self._state is not None:
            self._send_to(subscription, self._state)
            self._charge(self._size(self._state))

    async def _advance(self) -> None:
        before = self._state
        if before is not None and self._is_current():
            return
        self._state = fresh = await self._renew(before)
        if self.table is not None:
            self.position = fresh.position
            self._drop_deltas(fresh.position)
        if before is not None and not fresh.differs(before):
            return
        self._changed(fresh)
        for subscription in self._subscriptions:
            self._send_to(subscription, fresh)
        # Without a subscription it is kept for a client that may come back.
        if self._subscriptions:
            self._charge(self._size(fresh))

    async def _renew(self, before: S | None) -> S:
        """The state where the table is now."""
        raise NotImplementedError

    def _changed(self, fresh: S) -> None:
        """Take note of a state that a client would see as another."""

    def _send_to(self, subscription: Subscription, state: S) -> None:
        raise NotImplementedError

    def _size(self, state: S) -> int:
        return state.size


class SharedComputed(SharedState[S]):
    """An answer that is computed of whole tables, once for all who ask the same, and again when these changed."""

    least_pause_seconds = pause_seconds = LEAST_PAUSE_SECONDS
    _took_seconds = 0.0

    async def _compute(self, work: Callable[[StoreRead], T], *, large: bool, sliced: bool = False) -> T:
        def note(seconds: float) -> None:
            self._took_seconds = seconds
            self.pause_seconds = max(self.least_pause_seconds, RESTS * seconds)

        work, clients = timed(work, note), clients_of(self._subscriptions)
        if self._state is None:
            # The first answer has the place of a client, as any other read of it.
            return await self._readers.reads.run(clients, work, large=large, sliced=sliced)
        quick = self._took_seconds < _SLOW_SECONDS
        # A place of all computations: a client that has none left must not hold up all others.
        place = ["quick answers" if quick else "slow answers"]
        turns = self._readers.quick if quick else self._readers.slow
        again: T = await turns.ask(min(clients, default=""), lambda: self._readers.reads.run(place, work, large=large))
        return again


def table_gone(table: str, hint: str) -> TurnoutError:
    return TurnoutError(
        "table_gone", f"the table {table} is gone: the configuration no longer has it", hint, status=404
    )


def clients_of(subscriptions: Iterable[Subscription]) -> set[str]:
    """The clients that a read is for."""
    return {subscription.client for subscription in subscriptions}


async def retried(work: Callable[[], Awaitable[T]], fault: str) -> T:
    """Do `work`, again while the store is away. Any other failure is a TurnoutError; `fault` is for the log."""
    while True:
        try:
            return await work()
        except TurnoutError as error:
            if error.code != "store_unavailable":
                raise
            await asyncio.sleep(_STORE_AWAY_SECONDS)
        except Exception as error:
            log.exception("%s", fault)
            raise TurnoutError(
                code="internal_error",
                message="the server failed on this subscription",
                hint="subscribe again; its log has the details",
            ) from error
