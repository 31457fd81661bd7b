"""What clients of `WS /api/live` send, read and counted. Large messages are read on a thread, one at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic import ValidationError

from turnout.errors import TurnoutError
from turnout.messages import ChangesRequest, ClientMessage, WindowRequest, client_message
from turnout.serve.limits import Buckets, Rate
from turnout.serve.threads import Threads
from turnout.store.query.where import parse_columns, parse_sort, parse_terms
from turnout.store.query.windows import Window

MESSAGES = Rate(per_second=100, burst=500)
BYTES = Rate(per_second=250_000, burst=1_000_000)
"""How much is read from one client, over all its connections; the rest waits in its sockets."""

SMALL_BYTES = 4_000
"""A message of more is not read on the event loop."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A message, and the window that it asks for, or the error in that."""

    message: ClientMessage
    found: Window | TurnoutError | None = None

    def window(self) -> Window:
        if isinstance(self.found, TurnoutError):
            raise self.found
        assert self.found is not None
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
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        raise TurnoutError(
            code="bad_message",
            message=f"{where}: {first['msg']}",
            hint='send JSON such as {"type": "window", "id": "1", "table": "final_ui", "limit": 50}; '
            "types: window, changes, status, unsubscribe",
        ) from error
    try:
        return Asked(asked, _window(asked))
    except TurnoutError as error:
        return Asked(asked, error)


def _window(asked: ClientMessage) -> Window | None:
    if isinstance(asked, ChangesRequest):
        return Window(asked.table, columns=_columns(asked.columns))
    if not isinstance(asked, WindowRequest):
        return None
    given = asked.where
    terms = given if isinstance(given, str) else [t if isinstance(t, str) else t.model_dump() for t in given]
    return Window(
        asked.table,
        columns=_columns(asked.columns),
        where=parse_terms(terms),
        sort=parse_sort(asked.sort),
        offset=asked.offset,
        limit=asked.limit,
    )


def _columns(given: str | list[str] | None) -> tuple[str, ...] | None:
    return parse_columns(given) or None if given else None
