"""What subscriptions to the same window, or to the changes of the same table, share: reads and encoded messages.

`windows.py` and `changes.py` are the two kinds. A store that is away comes back, so its readers try again; any other
error ends the subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turnout.errors import TurnoutError
from turnout.serve.limits import HeldBytes
from turnout.serve.live.encoding import problem_body, unexpected
from turnout.serve.live.merging import Merger
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.pace import Pace
from turnout.serve.live.summary_rounds import SummaryRounds
from turnout.serve.reads import Reads
from turnout.store.feed import Delta, Wanted
from turnout.store.query.tracked_read import Positions
from turnout.store.query.window_rows import DeltaQueries
from turnout.store.query.windows import Window, split_name

log = logging.getLogger(__name__)

Position = tuple[int, int]
"""A generation and a version."""

MAX_DELTAS = 200
"""Changes that wait to be applied; with more than that the table is read again."""

_RETRY_SECONDS = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Readers:
    """Reads of the store, the bytes held for clients, and the merging of changes."""

    reads: Reads
    held: HeldBytes
    queries: DeltaQueries
    merger: Merger[Any]
    sql_memory: str = "512MB"
    pace: Pace = field(default_factory=Pace)
    rounds: SummaryRounds = field(default_factory=SummaryRounds)


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
            # Mostly its generation was retired.
            for subscription in self._subscriptions:
                subscription.replace("error", problem_body(error))
            self._ended()


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
            await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            log.exception("%s", fault)
            raise unexpected() from error
