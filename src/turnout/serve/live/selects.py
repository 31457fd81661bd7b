"""A SELECT of somebody's own: answered once, or again whenever a table that it names changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turnout.errors import TurnoutError
from turnout.serve.ask_api import in_form
from turnout.serve.formats import json_object, rows_json, to_json
from turnout.serve.live.computed import SharedComputed
from turnout.serve.live.hub import Position, Readers, reaches, table_gone
from turnout.serve.live.outbox import Subscription
from turnout.serve.live.parsing import AskedSql
from turnout.serve.reads import Reading
from turnout.store.feed import Delta
from turnout.store.query.sql import SqlResult, read_sql
from turnout.store.query.windows import Positions, open_snapshot


@dataclass(frozen=True, slots=True)
class _Shown:
    body: bytes
    places: Mapping[str, Position]


class SharedSql(SharedComputed):
    """One SELECT and all its subscriptions; one that is not live ends with its first answer."""

    def __init__(self, asked: AskedSql, readers: Readers, ended: Callable[[], None]) -> None:
        super().__init__("", readers, ended)
        self._asked = asked
        self._shown: _Shown | None = None
        self._positions: Positions | None = None

    @property
    def wanted(self) -> None:
        """Its tables are read again, so nobody has to collect what changed in them."""

    def look(self, positions: Positions, deltas: Mapping[str, Mapping[Position, Delta | None]]) -> None:
        self._positions = positions
        if not self._is_current():
            self._woken.set()

    def _is_current(self) -> bool:
        if self._shown is None or self._positions is None:
            return self._shown is not None
        return all(reaches(place, self._positions.of(table)) for table, place in self._shown.places.items())

    async def _advance(self) -> None:
        await super()._advance()
        if not self._asked.live:
            self._ended()

    async def _renew(self) -> bool:
        before = self._shown
        self._shown = shown = await self._compute(self._read, large=True, sliced=True)
        return before is None or before.body != shown.body

    def _read(self, store: Reading) -> _Shown:
        try:
            found = read_sql(store, self._asked.text, self._asked.limit, self._readers.reads.limits.sql_memory_limit)
        except TurnoutError as error:
            raise self._missing(store) or error from error
        places = {
            table: (found.generation, version) for table, version in zip(found.tables, found.versions, strict=True)
        }
        return _Shown(sql_body(found), places)

    def _missing(self, store: Reading) -> TurnoutError | None:
        """The error of a SELECT that named a table which is gone."""
        with open_snapshot(store) as snapshot:
            known = snapshot.names
        gone = [table for table in (self._shown.places if self._shown else ()) if table not in known]
        return table_gone(gone[0], f"tables: {', '.join(known)}") if gone else None

    def _send_to(self, subscription: Subscription) -> None:
        assert self._shown is not None
        subscription.replace("rows", self._shown.body)

    @property
    def _size(self) -> int:
        return len(self._shown.body) if self._shown else 0


def sql_body(found: SqlResult) -> bytes:
    """The rows of a SELECT as those of a window of the table `sql`."""
    fields = {
        "table": "sql",
        "generation": found.generation,
        "version": 0,
        "total": found.rows.num_rows,
        "offset": 0,
        "complete": found.complete,
        "columns": found.columns,
    }
    ids = to_json([str(number) for number in range(found.rows.num_rows)])
    return json_object(fields, ids=ids, rows=in_form("JSON", found.rows, rows_json))
