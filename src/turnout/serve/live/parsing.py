"""What clients of `WS /api/live` send, read and counted. Large messages are read on a thread, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from turnout.errors import TurnoutError
from turnout.plan.where import Term, parse_columns, parse_sort, parse_terms
from turnout.serve.limits import Buckets, Rate
from turnout.serve.requests import first_fault
from turnout.serve.rounds import Threads
from turnout.store.query.difference import DifferenceQuestion
from turnout.store.query.summary import Summary, parse_by, parse_order, parse_values
from turnout.store.query.windows import Window
from turnout_client.messages import (
    ChangesRequest,
    ClientMessage,
    DifferenceRequest,
    Id,
    SqlRequest,
    SummaryRequest,
    Where,
    WindowRequest,
    client_message,
)

MESSAGES = Rate(per_second=100, burst=500)
BYTES = Rate(per_second=250_000, burst=1_000_000)
"""How much is read from one client, over all its connections; the rest waits in its sockets."""

_NUMBERS = itertools.count()

SMALL_BYTES = 4_000
"""A message of more is not read on the event loop."""


@dataclass(frozen=True, slots=True)
class AskedSql:
    """A SELECT. One that is answered once is nobody else's: `number` tells it from all others."""

    text: str
    limit: int
    number: int | None

    @property
    def live(self) -> bool:
        return self.number is None


class _Identified(BaseModel):
    """The part of a message that tells which one it is."""

    id: Id


class BadMessageError(TurnoutError):
    """What came is no message; `id` is the one that it has, where it can be read."""

    def __init__(self, raw: str | bytes, reason: str) -> None:
        super().__init__(
            code="bad_message",
            message=reason,
            hint='send JSON such as {"type": "window", "id": "1", "table": "final_ui", "limit": 50}; '
            "types: window, changes, summary, difference, sql, status, unsubscribe",
        )
        self.id: str | None = None
        with contextlib.suppress(ValidationError):
            self.id = _Identified.model_validate_json(raw).id


Subject = Window | Summary | AskedSql | DifferenceQuestion


@dataclass(frozen=True, slots=True)
class Asked:
    """A message, and what it asks for, or the error in that."""

    message: ClientMessage
    found: Subject | TurnoutError | None = None

    def subject(self) -> Subject | None:
        if isinstance(self.found, TurnoutError):
            raise self.found
        return self.found


class Parsing:
    """Reads messages, and counts their bytes for each client."""

    def __init__(self) -> None:
        self._thread = Threads(1, "parse")
        self._messages, self._bytes = Buckets(MESSAGES), Buckets(BYTES)

    async def parsed(self, client: str, raw: str | bytes) -> Asked:
        """The message, when its client may send it; TurnoutError where it is none."""
        while wait := self._messages.take(client) or self._bytes.wait_seconds(client, len(raw)):
            await asyncio.sleep(wait)
        self._bytes.spend(client, len(raw))
        return parsed(raw) if len(raw) <= SMALL_BYTES else await self._thread.run(lambda: parsed(raw))


def parsed(raw: str | bytes) -> Asked:
    try:
        asked = client_message.validate_json(raw)
    except ValidationError as error:
        raise BadMessageError(raw, first_fault(error, "message")) from error
    try:
        return Asked(asked, _subject(asked))
    except TurnoutError as error:
        return Asked(asked, error)


def _subject(asked: ClientMessage) -> Subject | None:
    if isinstance(asked, ChangesRequest):
        return Window(asked.table, columns=_columns(asked.columns))
    if isinstance(asked, SqlRequest):
        return AskedSql(asked.sql, asked.limit, None if asked.live else next(_NUMBERS))
    if isinstance(asked, SummaryRequest):
        by, values, where = parse_by(asked.by), parse_values(asked.values), _terms(asked.where)
        return Summary(asked.table, by, values, where, parse_order(asked.sort), asked.limit)
    if not isinstance(asked, WindowRequest | DifferenceRequest):
        return None
    window = Window(
        asked.table,
        columns=_columns(asked.columns) if isinstance(asked, WindowRequest) else None,
        where=_terms(asked.where),
        sort=parse_sort(asked.sort),
        offset=asked.offset,
        limit=asked.limit,
    )
    if isinstance(asked, WindowRequest):
        return window
    return DifferenceQuestion(window, asked.from_, asked.to, asked.change)


def _terms(given: Where) -> tuple[Term, ...]:
    return parse_terms(
        given if isinstance(given, str) else [t if isinstance(t, str) else t.model_dump() for t in given]
    )


def _columns(given: str | list[str] | None) -> tuple[str, ...] | None:
    return parse_columns(given) or None if given else None
