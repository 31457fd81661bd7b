"""All subscriptions: each window, each table's changes and the status once, however many subscribe to it.

The hub hears of every commit of the store, reads which tables have moved, and notifies what subscriptions share
(`shared.py`). It runs on the event loop, starts with the first subscription and rests after the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import duckdb

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.shared import Readers, Shared
from turnout.serve.responses import to_json
from turnout.serve.rounds import Threads
from turnout.store.database import Database
from turnout.store.feed import Commit, Delta
from turnout.store.query.windows import read_positions

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


class Hub:
    """Follows the store for all subscriptions. Used on one event loop only, except for `_heard`."""

    def __init__(self, database: Database, status: Callable[[], dict[str, Any]], readers: Readers) -> None:
        self.readers = readers
        self._database = database
        self._status = status
        # Threads of their own: however many windows have to be read, all others hear of what changed.
        self._positions_thread, self._status_thread = Threads(1, "positions"), Threads(1, "status")
        self._shared: dict[_Key, Shared] = {}
        self._leaving: dict[_Key, asyncio.TimerHandle] = {}
        """The timers after which what nobody follows for now is forgotten."""
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
        shared.join(subscription)
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
            self._tasks = [asyncio.ensure_future(self._pump()), asyncio.ensure_future(self._send_status())]

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
        self._leaving[key] = self._loop.call_later(shared.resume_seconds, self._forget, key)
        of_client = [known for known in self._leaving if self._shared[known].last_client == subscription.client]
        for oldest in of_client[:-KEPT_FOR_ONE]:
            self._forget(oldest)

    def _forget(self, key: _Key) -> None:
        self._stop_timer(key)
        if (shared := self._shared.pop(key, None)) is not None:
            shared.close()
        self._want()
        self._rest()

    def _stop_timer(self, key: _Key) -> None:
        if (timer := self._leaving.pop(key, None)) is not None:
            timer.cancel()

    def _want(self) -> None:
        self._database.feed.want(
            (shared.table, wanted)
            for shared in self._shared.values()
            if shared.table is not None and (wanted := shared.wanted) is not None
        )

    # -- commits and positions

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
                # Mostly the store is unavailable, which others report; what was missed is found by its versions.
                _log_failure("positions", error)
                self._commits.clear()
                self._woken.set()
                await asyncio.sleep(_RETRY_SECONDS)
            await asyncio.sleep(_ROUND_SECONDS)

    async def _round(self) -> None:
        named = {number for shared in self._shared.values() for number in shared.generations}
        positions = await self._positions_thread.run(lambda: read_positions(self._database, named))
        # After the positions: what led to them has been heard by now, or is in a moment.
        commits = [self._commits.popleft() for _ in range(len(self._commits))]
        # What led to each new position of each table; None where that was not collected.
        deltas: dict[str, dict[Position, Delta | None]] = {}
        for commit in commits:
            for table, version in commit.versions.items():
                deltas.setdefault(table, {})[Position(commit.generation, version)] = commit.deltas.get(table)
        if positions.published != self._published:
            self._published = positions.published
            self._status_woken.set()
        for shared in self._shared.values():
            shared.notify(positions, deltas)

    async def _send_status(self) -> None:
        while True:
            if self._of_status:
                try:
                    body = to_json({"status": await self._status_thread.run(self._status)})
                except Exception as error:
                    _log_failure("the status", error)
                else:
                    for subscription in self._of_status:
                        subscription.replace("status", body)
            # A second, or less when a viewer comes or a swap was made.
            self._status_woken.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._status_woken.wait(), STATUS_SECONDS)


def _log_failure(what: str, error: Exception) -> None:
    """Log and go on: one error must not stop every subscription. Errors that are not the store's are faults of ours."""
    known = isinstance(error, (TurnoutError, duckdb.Error))
    log.log(logging.DEBUG if known else logging.ERROR, "%s cannot be read: %s", what, error, exc_info=not known)
