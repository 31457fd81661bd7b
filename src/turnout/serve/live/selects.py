"""A SELECT of somebody's own: answered once, or again whenever a table that it names changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.formats import json_object, rows_json, sql_fields, to_form, to_json
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.parsing import AskedSql
from turnout.serve.live.shared import Deltas, Readers, SharedComputed, table_gone
from turnout.serve.reads import Reading
from turnout.store.query.sql import SqlResult, read_sql
from turnout.store.query.windows import Positions, open_snapshot


@dataclass(frozen=True, slots=True)
class _Answer:
    body: bytes
    positions: Mapping[str, Position]
    """The position of each table that the SELECT names."""


class SharedSql(SharedComputed):
    """One SELECT and all its subscriptions; one that is not live ends with its first answer."""

    def __init__(self, asked: AskedSql, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__(None, readers, ended)
        self._asked = asked
        self._answer: _Answer | None = None
        self._positions: Positions | None = None

    @property
    def wanted(self) -> None:
        """A live SELECT: its tables are read again, so nobody has to collect what changed in them."""

    def notify(self, positions: Positions, deltas: Mapping[str, Deltas]) -> None:
        self._positions = positions
        if not self._is_current():
            self._woken.set()

    def _is_current(self) -> bool:
        if self._answer is None or self._positions is None:
            return self._answer is not None
        return all(at.reaches(self._positions.of(table)) for table, at in self._answer.positions.items())

    async def _advance(self) -> None:
        await super()._advance()
        if not self._asked.live:
            self._ended()

    async def _renew(self) -> bool:
        before = self._answer
        self._answer = fresh = await self._compute(self._read, large=True, sliced=True)
        return before is None or before.body != fresh.body

    def _read(self, store: Reading) -> _Answer:
        try:
            result = read_sql(store, self._asked.text, self._asked.limit, self._readers.reads.limits.sql_memory_limit)
        except TurnoutError as error:
            raise self._missing(store) or error from error
        versions = zip(result.tables, result.versions, strict=True)
        return _Answer(sql_body(result), {table: Position(result.generation, version) for table, version in versions})

    def _missing(self, store: Reading) -> TurnoutError | None:
        """The error of a SELECT that named a table which is gone."""
        with open_snapshot(store) as snapshot:
            known = snapshot.names
        gone = [table for table in (self._answer.positions if self._answer else ()) if table not in known]
        return table_gone(gone[0], f"tables: {', '.join(known)}") if gone else None

    def _send_to(self, subscription: Subscription) -> None:
        assert self._answer is not None
        subscription.replace("rows", self._answer.body)

    @property
    def _size(self) -> int:
        return len(self._answer.body) if self._answer else 0


def sql_body(result: SqlResult) -> bytes:
    """The rows of a SELECT as those of a window of the table `sql`."""
    fields = {**sql_fields(result), "offset": 0}
    ids = to_json([str(number) for number in range(result.rows.num_rows)])
    return json_object(fields, ids=ids, rows=to_form("JSON", result.rows, rows_json))
