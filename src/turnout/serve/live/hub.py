"""Everything that is followed, each once, however many look: windows, tables' changes and the status.

It hears of every commit of the store, finds out which tables have moved, and tells those that follow them. It lives
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
from turnout.serve.held_bytes import Held
from turnout.serve.live.changes import SharedChanges
from turnout.serve.live.encoding import status_body
from turnout.serve.live.merging import Merger
from turnout.serve.live.outbox import ChangesSlot, NewestSlot
from turnout.serve.live.windows import Place, Readers, SharedWindow
from turnout.serve.reads import Reads
from turnout.serve.threads import Threads
from turnout.store.database import Database
from turnout.store.feed import Commit, Delta, Wanted
from turnout.store.query.delta_sql import Netting
from turnout.store.query.tracked_read import read_positions
from turnout.store.query.windows import Window, split_name

log = logging.getLogger(__name__)

RESUME_SECONDS = 60.0
"""How long the changes of a table are followed after its last follower left: it may come back."""

KEPT_FOR_ONE = 8
"""How many tables are followed on for one client that has left."""

MAX_COMMITS = 500
"""Commits that wait to be told; what is missed is found by its versions."""

STATUS_SECONDS = 1.0
_ROUND_SECONDS = 0.02
_RETRY_SECONDS = 0.5

Shared = SharedWindow | SharedChanges
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A table that the last follower has left, for now."""

    client: str
    timer: asyncio.TimerHandle
    end: Callable[[], None]


class Hub:
    """All that is followed. Used on one event loop only, except for `_heard`."""

    def __init__(self, database: Database, status: Callable[[], dict[str, Any]], reads: Reads, held: Held) -> None:
        self._database = database
        self._status = status
        netting = Netting()
        self._readers = Readers(reads, held, netting, Merger(netting))
        # Threads of their own: however many windows have to be read, all others hear of what changed.
        self._looking, self._asking = Threads(1, "positions"), Threads(1, "status")
        self._windows: dict[str, SharedWindow] = {}
        self._changes: dict[Window, SharedChanges] = {}
        self._leaving: dict[Window, _Leaving] = {}
        self._status_viewers: set[NewestSlot] = set()
        self._commits: deque[Commit] = deque(maxlen=MAX_COMMITS)
        self._woken = asyncio.Event()
        self._status_woken = asyncio.Event()
        self._published = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def follow_window(self, slot: NewestSlot, window: Window, seen: Place | None) -> Callable[[], None]:
        """Send the window to `slot` from now on; the answer ends it."""
        self._start()
        # By their texts: values that people give may be equal and mean different things, such as 1 and 1.0 as names.
        name = repr(window)
        shared = self._windows.get(name)
        if shared is None:
            ended = self._forgetting(self._windows, name)
            shared = self._windows[name] = SharedWindow(window, self._readers, ended)
            self._want()
        shared.join(slot, seen)
        return lambda: self._leave_window(name, shared, slot)

    def follow_changes(
        self, slot: Callable[[Callable[[ChangesSlot], None]], ChangesSlot], window: Window, seen: Place | None
    ) -> tuple[ChangesSlot, Callable[[], None]]:
        """Send all changes of a table; `slot` makes the place for them, told what to do when it falls behind."""
        self._start()
        shared = self._changes.get(window)
        if shared is None:
            ended = self._forgetting(self._changes, window)
            shared = self._changes[window] = SharedChanges(window, self._readers, ended)
            self._want()
        if leaving := self._leaving.pop(window, None):
            leaving.timer.cancel()
        made = slot(shared.fall_behind)
        shared.join(made, seen)
        return made, lambda: self._leave_changes(shared, made)

    def follow_status(self, slot: NewestSlot) -> Callable[[], None]:
        self._start()
        self._status_viewers.add(slot)
        self._status_woken.set()
        return lambda: self._leave_status(slot)

    # -- coming and going

    def _start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._database.feed.listen(self._heard)
            self._tasks = [asyncio.ensure_future(self._pump()), asyncio.ensure_future(self._tell_status())]

    def _rest(self) -> None:
        """Where nobody follows anything, commits are not even heard."""
        if self._followed() or self._status_viewers:
            return
        self._database.feed.leave(self._heard)
        for task in self._tasks:
            task.cancel()
        self._commits.clear()
        self._loop = None

    def _leave_status(self, slot: NewestSlot) -> None:
        self._status_viewers.discard(slot)
        self._rest()

    def _leave_window(self, name: str, shared: SharedWindow, slot: NewestSlot) -> None:
        if not shared.leave(slot) and self._windows.get(name) is shared:
            self._forget(self._windows, name)

    def _leave_changes(self, shared: SharedChanges, slot: ChangesSlot) -> None:
        if shared.leave(slot) or self._changes.get(shared.window) is not shared or self._loop is None:
            return

        def end() -> None:
            self._leaving.pop(shared.window, None)
            self._forget(self._changes, shared.window)

        self._leaving[shared.window] = _Leaving(slot.client, self._loop.call_later(RESUME_SECONDS, end), end)
        of_client = [leaving for leaving in self._leaving.values() if leaving.client == slot.client]
        for leaving in of_client[:-KEPT_FOR_ONE]:
            leaving.timer.cancel()
            leaving.end()

    def _forgetting(self, known: dict[K, Any], key: K) -> Callable[[], None]:
        return lambda: self._forget(known, key)

    def _forget(self, known: dict[K, Any], key: K) -> None:
        if (shared := known.pop(key, None)) is not None:
            shared.close()
        self._want()
        self._rest()

    def _want(self) -> None:
        wanted: dict[str, Wanted] = {}
        for shared in self._followed():
            table = split_name(shared.window.table)[0]
            wanted[table] = wanted.get(table, Wanted()) | shared.wanted
        self._database.feed.want(wanted)

    def _followed(self) -> list[Shared]:
        return [*self._windows.values(), *self._changes.values()]

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
        named = {number for shared in self._followed() if (number := split_name(shared.window.table)[1]) is not None}
        positions = await self._looking.run(lambda: read_positions(self._database, named))
        # After the positions: what led to them has been heard by now, or is in a moment.
        commits = [self._commits.popleft() for _ in range(len(self._commits))]
        deltas = _by_table(commits)
        if positions.published != self._published:
            self._published = positions.published
            self._status_woken.set()
        for shared in self._followed():
            plain, _ = split_name(shared.window.table)
            shared.told(positions.of(shared.window.table), deltas.get(plain, {}))

    async def _tell_status(self) -> None:
        while True:
            if self._status_viewers:
                try:
                    body = status_body(await self._asking.run(self._status))
                except Exception as error:
                    _note("the status", error)
                else:
                    for slot in self._status_viewers:
                        slot.put("status", body)
            await self._status_pause()

    async def _status_pause(self) -> None:
        """A second, or less when a viewer comes or a swap was made."""
        self._status_woken.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._status_woken.wait(), STATUS_SECONDS)


def _note(what: str, error: Exception) -> None:
    """Nothing that goes wrong here may end following for all; what is not the store's trouble is a fault of ours."""
    known = isinstance(error, (TurnoutError, duckdb.Error))
    log.log(logging.DEBUG if known else logging.ERROR, "%s cannot be read: %s", what, error, exc_info=not known)


def _by_table(commits: list[Commit]) -> dict[str, dict[Place, Delta | None]]:
    """What led to each new place of each table; None where that was not collected."""
    found: dict[str, dict[Place, Delta | None]] = {}
    for commit in commits:
        for table, version in commit.versions.items():
            found.setdefault(table, {})[commit.generation, version] = commit.deltas.get(table)
    return found
