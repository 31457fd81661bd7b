"""Answers that are read again whenever a table of theirs changed: SELECTs of somebody's own, and differences.

A SELECT can also be answered once. The difference of a table between two generations is sent once a second at most;
without named generations it is between what is shown and the candidate, and goes on with another candidate. Where a
generation is gone, or there is no candidate any more, an error ends the subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.shared import Deltas, Readers, SentState, SharedComputed, table_gone
from turnout.serve.reads import StoreRead
from turnout.serve.responses import (
    difference_body,
    difference_json,
    json_object,
    rows_json,
    sql_fields,
    to_form,
    to_json,
)
from turnout.store.query.difference import DifferenceQuestion, read_difference
from turnout.store.query.sql import SqlResult, read_sql
from turnout.store.query.windows import GONE, Positions, open_snapshot


@dataclass(frozen=True, slots=True)
class AskedSql:
    """A SELECT. One that is answered once is nobody else's: `number` tells it from all others."""

    text: str
    limit: int
    number: int | None

    @property
    def live(self) -> bool:
        return self.number is None


Q = TypeVar("Q", AskedSql, DifferenceQuestion)


@dataclass(frozen=True, slots=True)
class _Answer(SentState):
    """An encoded answer, and the position of each table that it was computed of."""

    tables: tuple[str, ...] = ()
    """The tables that a SELECT names."""
    lags: tuple[int | None, ...] = ()
    """The records that each side of a difference had not read; another lag alone is no difference."""


class _SharedAnswer(SharedComputed[_Answer], Generic[Q]):
    """One answer and all its subscriptions."""

    def __init__(self, asked: Q, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(None, readers, ended)
        self._asked: Q = asked
        self._positions: Positions | None = None

    @property
    def wanted(self) -> None:
        """Its tables are read again, so nobody has to collect what changed in them."""

    def notify(self, positions: Positions, deltas: Mapping[str, Deltas]) -> None:
        self._positions = positions
        if not self._is_current():
            self._woken.set()

    def _is_current(self) -> bool:
        if self._state is None or self._positions is None:
            return self._state is not None
        now = self._tables_at(self._state, self._positions)
        return all(at.reaches(one) for at, one in zip(self._state.positions, now, strict=True))

    def _tables_at(self, state: _Answer, positions: Positions) -> Iterable[Position]:
        """The positions of its tables among those of all."""
        raise NotImplementedError


class SharedSql(_SharedAnswer[AskedSql]):
    """One SELECT and all its subscriptions; one that is not live ends with its first answer."""

    def _tables_at(self, state: _Answer, positions: Positions) -> Iterable[Position]:
        return map(positions.of, state.tables)

    async def _advance(self) -> None:
        await super()._advance()
        if not self._asked.live:
            self._ended()

    async def _renew(self, before: _Answer | None) -> _Answer:
        return await self._compute(self._read, large=True, sliced=True)

    def _read(self, store: StoreRead) -> _Answer:
        try:
            result = read_sql(store, self._asked.text, self._asked.limit, self._readers.reads.limits.sql_memory_limit)
        except TurnoutError as error:
            raise self._missing(store) or error from error
        tables, positions = tuple(result.positions), tuple(result.positions.values())
        return _Answer(positions, result.rows.num_rows, sql_body(result), tables)

    def _missing(self, store: StoreRead) -> TurnoutError | None:
        """The error of a SELECT that named a table which is gone."""
        with open_snapshot(store) as snapshot:
            known = snapshot.names
        gone = [table for table in (self._state.tables if self._state else ()) if table not in known]
        return table_gone(gone[0], f"tables: {', '.join(known)}") if gone else None

    def _send_to(self, subscription: Subscription, state: _Answer) -> None:
        subscription.replace("rows", state.encoded)


class SharedDifference(_SharedAnswer[DifferenceQuestion]):
    """One difference and all its subscriptions."""

    least_pause_seconds = 1.0

    @property
    def generations(self) -> Collection[int]:
        named = self._asked.from_generation, self._asked.to_generation
        return [number for number in named if number is not None]

    def _tables_at(self, state: _Answer, positions: Positions) -> Iterable[Position]:
        numbers = self._asked.generations(positions.published, positions.candidate)
        table = self._asked.window.table
        return [GONE if number is None else positions.of(f"{table}@{number}") for number in numbers]

    async def _renew(self, before: _Answer | None) -> _Answer:
        return await self._compute(self._read, large=True)

    def _read(self, store: StoreRead) -> _Answer:
        found = read_difference(store, self._asked)
        return _Answer(found.positions, found.total, difference_body(found), lags=found.lags)

    def _send_to(self, subscription: Subscription, state: _Answer) -> None:
        encoded = difference_json(self._asked.window.table, state.positions, state.lags, state.encoded)
        subscription.replace("difference", encoded)


def sql_body(result: SqlResult) -> bytes:
    """The rows of a SELECT as those of a window of the table `sql`."""
    fields = {**sql_fields(result), "offset": 0}
    ids = to_json([str(number) for number in range(result.rows.num_rows)])
    return json_object(fields, ids=ids, rows=to_form("JSON", result.rows, rows_json))
