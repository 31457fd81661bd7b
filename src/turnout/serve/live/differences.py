"""The difference of a table between two generations: computed and sent again when it changed, once a second at most.

Without named generations it is between what is shown and the candidate, and goes on with another candidate. Where a
generation is gone, or there is no candidate any more, an error ends the subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from turnout.plan.position import Position
from turnout.serve.formats import difference_body, difference_json
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.shared import Deltas, Readers, SharedComputed
from turnout.serve.reads import Reading
from turnout.store.query.difference import DifferenceQuestion, read_difference
from turnout.store.query.windows import GONE, Positions


@dataclass(frozen=True, slots=True)
class _Compared:
    positions: tuple[Position, Position]
    lags: tuple[int | None, int | None]
    body: bytes

    def differs(self, other: _Compared) -> bool:
        """Whether a viewer would see a difference; a version or a lag alone is none."""
        numbers = [[at.generation for at in one.positions] for one in (self, other)]
        return self.body != other.body or numbers[0] != numbers[1]


class SharedDifference(SharedComputed):
    """One difference and all its subscriptions."""

    least_pause_seconds = 1.0

    def __init__(self, asked: DifferenceQuestion, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(None, readers, ended)
        self._asked = asked
        self._state: _Compared | None = None
        self._now: tuple[Position, ...] = ()

    @property
    def generations(self) -> Collection[int]:
        named = self._asked.from_generation, self._asked.to_generation
        return [number for number in named if number is not None]

    @property
    def wanted(self) -> None:
        """Its tables are read again, so nobody has to collect what changed in them."""

    def notify(self, positions: Positions, deltas: Mapping[str, Deltas]) -> None:
        numbers = self._asked.generations(positions.published, positions.candidate)
        table = self._asked.window.table
        self._now = tuple(GONE if number is None else positions.of(f"{table}@{number}") for number in numbers)
        if not self._is_current():
            self._woken.set()

    def _is_current(self) -> bool:
        known = self._state.positions if self._state else ()
        return all(at.reaches(now) for at, now in zip(known, self._now, strict=False)) and bool(known)

    async def _renew(self) -> bool:
        before = self._state
        self._state = fresh = await self._compute(self._read, large=True)
        return before is None or fresh.differs(before)

    def _read(self, store: Reading) -> _Compared:
        found = read_difference(store, self._asked)
        return _Compared(found.positions, found.lags, difference_body(found))

    def _send_to(self, subscription: Subscription) -> None:
        assert self._state is not None
        table, state = self._asked.window.table, self._state
        subscription.replace("difference", difference_json(table, state.positions, state.lags, state.body))

    @property
    def _size(self) -> int:
        return len(self._state.body) if self._state else 0
