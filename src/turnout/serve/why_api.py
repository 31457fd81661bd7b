"""The HTTP call that tells why rows are there: which records they are made of, and which were not chosen.

The store is read as for any other call (`reads.py`). Kafka is asked on threads of its own, one question of a client at
a time, and it never holds up an answer for long.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import anyio
from starlette.requests import Request
from starlette.responses import Response

from turnout.config import Role
from turnout.serve.access import identity_of
from turnout.serve.formats import to_json
from turnout.serve.limits import caller
from turnout.serve.parameters import OF_WHY, why_of
from turnout.serve.read_api import Services
from turnout.serve.responses import Answers
from turnout.serve.rounds import Rounds, Threads
from turnout.serve.routes import READING, Call
from turnout.serve.schemas import Answer
from turnout.store.query.row_records import Reason

_ASKING, _ASKING_SECONDS = 2, 20.0


class WhyHeader(Answer):
    name: str
    value: str | None


class WhyRecord(Answer):
    """A record. `key`, `headers` and `value` are null where they were not read: viewers do not get them."""

    source: str
    topic: str
    partition: int
    offset: int
    timestamp: str
    reason: Reason | None
    """Why it is in no row; null where it is in one."""
    key: str | None
    headers: list[WhyHeader] | None
    value: str | None
    """As text, or as `base64:...` where it is none; the first 10,000 characters."""
    bytes: int | None
    """The size of the value."""
    clipped: bool
    """Whether the value is longer."""
    gone: bool | None
    """Whether the record is gone from Kafka; null where Kafka was not asked."""


class WhyRow(Answer):
    """A row and its records; `row` is null for a key that has no row."""

    row: str | None
    records: list[WhyRecord]
    others: list[WhyRecord]
    complete: bool
    """Whether `others` has all records of the key that were not chosen."""


class WhyMessage(Answer):
    """A control message; its `requester` is `configuration` where the file alone made the generation."""

    requester: str
    requestId: str | None  # noqa: N815 - the names of the wire
    ts: datetime
    partition: int | None
    offset: int | None
    raw: str | None


class Why(Answer):
    """Rows with their records; `total` counts all rows of the key, `notes` say what is missing."""

    table: str
    generation: int
    version: int
    key: str | None
    """The column of the key; null for `bad_records`."""
    message: WhyMessage | None
    """The control message that made the generation; null where it is no longer stored."""
    total: int
    rows: list[WhyRow]
    notes: list[str]


class KafkaTurns(Rounds[str, Callable[[], bytes], bytes]):
    """Questions to Kafka: each client has one thread at most."""

    def __init__(self) -> None:
        super().__init__(
            self._ask, may_begin=lambda client: self.running.total() < _ASKING and not self.running[client]
        )
        self._threads = Threads(_ASKING, "why")

    async def _ask(self, questions: Sequence[Callable[[], bytes]]) -> list[bytes]:
        [question] = questions
        asked = asyncio.ensure_future(self._threads.run(question))
        try:
            await asyncio.wait([asked])
        except asyncio.CancelledError:  # the client has gone; its thread has not
            await asyncio.wait([asked])
        return [asked.result()]


@dataclass(frozen=True, slots=True)
class WhyApi:
    """The call, bound to its services."""

    _services: Services
    _answers: Answers
    _turns: KafkaTurns = field(default_factory=KafkaTurns)

    @Call(
        "/api/tables/{name}/why",
        Why,
        errors=(*READING, "unknown_table", "unknown_row", "starting", "not_found"),
        parameters=OF_WHY,
    )
    async def explain_rows(self, request: Request) -> Response:
        """The records that a row is made of, those of its key that were not chosen, and what made its generation."""
        question = why_of(request.path_params["name"], request.query_params)
        explainer = self._services.orchestrator.explainer
        found = await self._answers.read(request, lambda store: explainer.rows(store, question))
        raw_values = identity_of(request.scope).role is Role.OPERATOR
        with anyio.move_on_after(_ASKING_SECONDS):
            work = lambda: to_json(explainer.answer(found, raw_values=raw_values))  # noqa: E731
            return _json(await self._turns.ask(caller(request.scope), work))
        found.notes.append(f"Kafka did not give the records within {_ASKING_SECONDS:g} s")
        return _json(to_json(explainer.as_json(found, {})))


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})
