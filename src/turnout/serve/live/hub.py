"""All subscriptions: each window, each table's changes and the status once, however many subscribe to it.

It hears of every commit of the store, finds out which tables have moved, and tells those that share them. It lives
on the event loop, starts with the first subscription and rests after the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb

from turnout.errors import TurnoutError
from turnout.serve.formats import to_json
from turnout.serve.limits import HeldBytes
from turnout.serve.live.merging import Merger
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.shared import Position, Readers, Shared
from turnout.serve.reads import Reads
from turnout.serve.threads import Threads
from turnout.store.database import Database
from turnout.store.feed import Commit, Delta
from turnout.store.query.tracked_read import read_positions
from turnout.store.query.window_rows import DeltaQueries
from turnout.store.query.windows import split_name

log = logging.getLogger(__name__)

KEPT_FOR_ONE = 8
"""How many tables are followed on for one client that has left: it may come back."""

MAX_COMMITS = 500
"""Commits that wait; changes that are missed are found by their versions."""

STATUS_SECONDS = 1.0
_ROUND_SECONDS = 0.02
_RETRY_SECONDS = 0.5

A = TypeVar("A")
_Key = tuple[Callable[..., Shared], str]


@dataclass(frozen=True, slots=True)
class _Leaving:
    """The last client of a table, which has left for now."""

    client: str
    timer: asyncio.TimerHandle


class Hub:
    """Used on one event loop only, except for `_heard`."""

    def __init__(
        self,
        database: Database,
        status: Callable[[], dict[str, Any]],
        reads: Reads,
        held: HeldBytes,
        sql_memory: str = "512MB",
    ) -> None:
        self._database = database
        self._status = status
        queries = DeltaQueries()
        self._readers = Readers(reads, held, queries, Merger(queries), sql_memory)
        # Threads of their own: however many windows have to be read, all others hear of what changed.
        self._looking, self._asking = Threads(1, "positions"), Threads(1, "status")
        self._shared: dict[_Key, Shared] = {}
        self._leaving: dict[_Key, _Leaving] = {}
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
            shared = self._shared[key] = kind(asked, self._readers, lambda: self._forget(key))
            self._want()
        if leaving := self._leaving.pop(key, None):
            leaving.timer.cancel()
        shared.join(subscription, seen)
        return lambda: self._leave(key, shared, subscription)

    def follow_status(self, subscription: Subscription) -> Callable[[], None]:
        self._start()
        self._of_status.add(subscription)
        self._status_woken.set()
        return lambda: self._leave_status(subscription)

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

    def _leave_status(self, subscription: Subscription) -> None:
        self._of_status.discard(subscription)
        self._rest()

    def _leave(self, key: _Key, shared: Shared, subscription: Subscription) -> None:
        if shared.leave(subscription) or self._shared.get(key) is not shared or self._loop is None:
            return
        if not shared.resume_seconds:
            self._forget(key)
            return
        timer = self._loop.call_later(shared.resume_seconds, self._forget, key)
        self._leaving[key] = _Leaving(subscription.client, timer)
        of_client = [left for left, leaving in self._leaving.items() if leaving.client == subscription.client]
        for oldest in of_client[:-KEPT_FOR_ONE]:
            self._forget(oldest)

    def _forget(self, key: _Key) -> None:
        if (leaving := self._leaving.pop(key, None)) is not None:
            leaving.timer.cancel()
        if (shared := self._shared.pop(key, None)) is not None:
            shared.close()
        self._want()
        self._rest()

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
        deltas = _by_table(commits)
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
            await self._status_pause()

    async def _status_pause(self) -> None:
        """A second, or less when a viewer comes or a swap was made."""
        self._status_woken.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._status_woken.wait(), STATUS_SECONDS)


def _note(what: str, error: Exception) -> None:
    """Log and go on: one error must not stop every subscription. Errors that are not the store's are faults of ours."""
    known = isinstance(error, (TurnoutError, duckdb.Error))
    log.log(logging.DEBUG if known else logging.ERROR, "%s cannot be read: %s", what, error, exc_info=not known)


def _by_table(commits: list[Commit]) -> dict[str, dict[Position, Delta | None]]:
    """What led to each new position of each table; None where that was not collected."""
    found: dict[str, dict[Position, Delta | None]] = {}
    for commit in commits:
        for table, version in commit.versions.items():
            found.setdefault(table, {})[commit.generation, version] = commit.deltas.get(table)
    return found
