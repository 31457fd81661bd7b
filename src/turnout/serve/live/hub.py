"""All subscriptions: each window, each table's changes and the status once, however many subscribe to it.

The hub hears of every commit of the store, finds out which tables have moved, and tells those that share them. It lives
on the event loop, starts with the first subscription and rests after the last. `windows.py`, `changes.py` and
`computed.py` are the kinds of what subscriptions share: reads and encoded messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import duckdb

from turnout.errors import TurnoutError
from turnout.serve.formats import to_json
from turnout.serve.limits import HeldBytes
from turnout.serve.live.outbox import Subscription, problem_body
from turnout.serve.live.pace import Pace
from turnout.serve.live.summary_rounds import SummaryRounds
from turnout.serve.reads import Reads
from turnout.serve.threads import Threads
from turnout.store.database import Database
from turnout.store.feed import Commit, Delta, Wanted
from turnout.store.query.windows import Positions, Window, read_positions, split_name

if TYPE_CHECKING:
    from turnout.serve.live.windows import Merger

log = logging.getLogger(__name__)

Position = tuple[int, int]
"""A generation and a version."""

MAX_DELTAS = 200
"""Changes that wait to be applied; with more than that the table is read again."""

KEPT_FOR_ONE = 8
"""How many tables are followed on for one client that has left: it may come back."""

MAX_COMMITS = 500
"""Commits that wait; changes that are missed are found by their versions."""

STATUS_SECONDS = 1.0
_ROUND_SECONDS = 0.02
_RETRY_SECONDS = 0.5
_STORE_AWAY_SECONDS = 1.0

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Readers:
    """Reads of the store, the bytes held for clients, and the merging of changes."""

    reads: Reads
    held: HeldBytes
    changes: HeldBytes
    """Changes that are kept for clients, which have a room of their own: rows that wait must not push them out."""
    merger: Merger[Any]
    large_merger: Merger[Any]
    pace: Pace = field(default_factory=Pace)
    rounds: SummaryRounds = field(default_factory=SummaryRounds)
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def turn(self, client: str) -> asyncio.Lock:
        """The turn of a client at whole tables: it has one read of them at a time."""
        return self._turns.setdefault(client, asyncio.Lock())


class Shared:
    """A window with its subscriptions, each with the position that its client has. Lives on the event loop."""

    resume_seconds = 0.0
    """How long it goes on after the last subscription left: that client may come back."""

    pause_seconds = 0.0
    """How long it rests after each step."""

    def __init__(self, window: Window, readers: Readers, ended: Callable[[], None]) -> None:
        self.window = window
        self._readers = readers
        self._ended = ended
        self._subscriptions: dict[Subscription, Position | None] = {}
        self.position: Position | None = None
        """How far its subscriptions have been sent; None before the first read."""
        self._told: Position | None = None
        self._deltas: dict[Position, Delta | None] = {}
        self._woken = asyncio.Event()
        self._woken.set()
        self._task = asyncio.ensure_future(self._follow())

    @property
    def wanted(self) -> Wanted | None:
        """The columns that its deltas must have; None where it needs no deltas."""
        raise NotImplementedError

    def join(self, subscription: Subscription, seen: Position | None) -> None:
        """Add a subscription of a client that has what `seen` says."""
        raise NotImplementedError

    async def _advance(self) -> None:
        """Bring the subscriptions to where the table is."""
        raise NotImplementedError

    def leave(self, subscription: Subscription) -> bool:
        """Remove a subscription; whether any is left."""
        self._subscriptions.pop(subscription, None)
        return bool(self._subscriptions)

    def close(self) -> None:
        self._task.cancel()

    def look(self, positions: Positions, deltas: Mapping[str, Mapping[Position, Delta | None]]) -> None:
        """All tables are at `positions`; `deltas` has what led there, by table."""
        plain, _ = split_name(self.window.table)
        self.told(positions.of(self.window.table), deltas.get(plain, {}))

    def told(self, position: Position, deltas: Mapping[Position, Delta | None]) -> None:
        """The table is at `position`. `deltas` has what led to a position, or None where that was not collected."""
        # Also what leads beyond the position: it was committed after that was looked up. Not those of other
        # generations, which would only pile up.
        known = {**self._deltas, **deltas}
        self._deltas = {place: delta for place, delta in known.items() if place[0] == position[0]}
        if len(self._deltas) > MAX_DELTAS:
            self._deltas.clear()
        self._told = position
        if not self._is_current():
            self._woken.set()

    def _known_deltas(self, since: Position, columns: Collection[str]) -> list[Delta]:
        """What led from `since` to where the table is; empty where a step, or a column of it, is not known."""
        if self._told is None or self._told[0] != since[0]:
            return []
        found = [self._deltas.get((since[0], later)) for later in range(since[1] + 1, self._told[1] + 1)]
        known = [delta for delta in found if delta is not None and delta.tells(columns)]
        return known if len(known) == len(found) else []

    def _is_current(self) -> bool:
        """Whether all that was told has been sent: what is read can be newer than what was told."""
        return self.position is not None and self._told is not None and reaches(self.position, self._told)

    def _count(self, size: int) -> None:
        """Count what is held for all of its clients; one that has too much by it loses its subscriptions."""
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
                await retried(self._advance, f"{self.window.table} cannot be followed")
                await asyncio.sleep(self.pause_seconds)
        except TurnoutError as error:
            # Mostly its generation was retired, or a table or a column is gone.
            for subscription in self._subscriptions:
                subscription.replace("error", problem_body(self._explained(error)))
            self._ended()

    def _explained(self, error: TurnoutError) -> TurnoutError:
        """A table that was followed and is not known any more is gone; one of a generation was retired with it."""
        table, generation = split_name(self.window.table)
        if error.code != "unknown_table" or generation is not None or not self._was_read():
            return error
        return table_gone(table, error.hint)

    def _was_read(self) -> bool:
        """Whether the table was there when it was subscribed to."""
        return self.position is not None


def table_gone(table: str, hint: str) -> TurnoutError:
    return TurnoutError("table_gone", f"the table {table} is gone: the configuration has it no more", hint, status=404)


def reaches(position: Position, other: Position) -> bool:
    """Whether it is of the same generation, and not before the other."""
    return position[0] == other[0] and position[1] >= other[1]


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
                status=500,
            ) from error


_Key = tuple[Callable[..., Shared], str]


class Hub:
    """Used on one event loop only, except for `_heard`."""

    def __init__(self, database: Database, status: Callable[[], dict[str, Any]], readers: Readers) -> None:
        self.readers = readers
        self._database = database
        self._status = status
        # Threads of their own: however many windows have to be read, all others hear of what changed.
        self._looking, self._asking = Threads(1, "positions"), Threads(1, "status")
        self._shared: dict[_Key, Shared] = {}
        self._leaving: dict[_Key, tuple[str, asyncio.TimerHandle]] = {}
        """The last client of what nobody follows for now, and the timer after which it is forgotten."""
        self._of_status: set[Subscription] = set()
        self._commits: deque[Commit] = deque(maxlen=MAX_COMMITS)
        self._woken = asyncio.Event()
        self._status_woken = asyncio.Event()
        self._published = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def follow(
        self,
        kind: Callable[[A, Readers, Callable[[], None]], Shared],
        asked: A,
        subscription: Subscription,
        seen: Position | None = None,
    ) -> Callable[[], None]:
        """Send what was asked for, of one kind, to the subscription from now on; the answer ends it."""
        self._start()
        # By its text: values that people give may be equal and mean different things, such as 1 and 1.0 as names.
        key = kind, repr(asked)
        shared = self._shared.get(key)
        if shared is None:
            shared = self._shared[key] = kind(asked, self.readers, lambda: self._forget(key))
            self._want()
        self._stop_timer(key)
        shared.join(subscription, seen)
        return lambda: self._leave(key, shared, subscription)

    def follow_status(self, subscription: Subscription) -> Callable[[], None]:
        self._start()
        self._of_status.add(subscription)
        self._status_woken.set()

        def leave() -> None:
            self._of_status.discard(subscription)
            self._rest()

        return leave

    # -- coming and going

    def _start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._database.feed.listen(self._heard)
            self._tasks = [asyncio.ensure_future(self._pump()), asyncio.ensure_future(self._tell_status())]

    def _rest(self) -> None:
        """Without subscriptions, commits are not even heard."""
        if self._shared or self._of_status:
            return
        self._database.feed.leave(self._heard)
        for task in self._tasks:
            task.cancel()
        self._commits.clear()
        self._loop = None

    def _leave(self, key: _Key, shared: Shared, subscription: Subscription) -> None:
        if shared.leave(subscription) or self._shared.get(key) is not shared or self._loop is None:
            return
        if not shared.resume_seconds:
            self._forget(key)
            return
        timer = self._loop.call_later(shared.resume_seconds, self._forget, key)
        self._leaving[key] = subscription.client, timer
        of_client = [left for left, (client, _) in self._leaving.items() if client == subscription.client]
        for oldest in of_client[:-KEPT_FOR_ONE]:
            self._forget(oldest)

    def _forget(self, key: _Key) -> None:
        self._stop_timer(key)
        if (shared := self._shared.pop(key, None)) is not None:
            shared.close()
        self._want()
        self._rest()

    def _stop_timer(self, key: _Key) -> None:
        if (leaving := self._leaving.pop(key, None)) is not None:
            leaving[1].cancel()

    def _want(self) -> None:
        self._database.feed.want(
            (split_name(one.window.table)[0], wanted)
            for one in self._shared.values()
            if (wanted := one.wanted) is not None
        )

    # -- hearing and telling

    def _heard(self, commit: Commit | None) -> None:
        """On the thread that committed."""
        if (loop := self._loop) is None:
            return
        try:
            loop.call_soon_threadsafe(self._take, commit)
        except RuntimeError:
            return  # the loop has ended

    def _take(self, commit: Commit | None) -> None:
        if commit is not None:
            self._commits.append(commit)
        self._woken.set()

    async def _pump(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._round()
            except Exception as error:
                # Mostly the store is in trouble, which others tell; what was missed is found by its versions.
                _note("positions", error)
                self._commits.clear()
                self._woken.set()
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(_ROUND_SECONDS)

    async def _round(self) -> None:
        named = {
            number for shared in self._shared.values() if (number := split_name(shared.window.table)[1]) is not None
        }
        positions = await self._looking.run(lambda: read_positions(self._database, named))
        # After the positions: what led to them has been heard by now, or is in a moment.
        commits = [self._commits.popleft() for _ in range(len(self._commits))]
        # What led to each new position of each table; None where that was not collected.
        deltas: dict[str, dict[Position, Delta | None]] = {}
        for commit in commits:
            for table, version in commit.versions.items():
                deltas.setdefault(table, {})[commit.generation, version] = commit.deltas.get(table)
        if positions.published != self._published:
            self._published = positions.published
            self._status_woken.set()
        for shared in self._shared.values():
            shared.look(positions, deltas)

    async def _tell_status(self) -> None:
        while True:
            if self._of_status:
                try:
                    body = to_json({"status": await self._asking.run(self._status)})
                except Exception as error:
                    _note("the status", error)
                else:
                    for subscription in self._of_status:
                        subscription.replace("status", body)
            # A second, or less when a viewer comes or a swap was made.
            self._status_woken.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._status_woken.wait(), STATUS_SECONDS)


def _note(what: str, error: Exception) -> None:
    """Log and go on: one error must not stop every subscription. Errors that are not the store's are faults of ours."""
    known = isinstance(error, (TurnoutError, duckdb.Error))
    log.log(logging.DEBUG if known else logging.ERROR, "%s cannot be read: %s", what, error, exc_info=not known)
