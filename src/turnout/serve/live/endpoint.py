"""One connection of `WS /api/live`: accepts it, reads its messages, and follows what they ask for; its outbox sends.

Messages are counted, and large ones read on a thread, one at a time. `access.py` decides who may connect; what
subscriptions are sent is decided by the hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from importlib.metadata import version

from pydantic import BaseModel, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.plan.where import Term, parse_columns, parse_sort, parse_terms
from turnout.serve.access import Access, identity_of, subprotocol_of
from turnout.serve.limits import Buckets, Rate, Viewers, caller
from turnout.serve.live.changes import SharedChanges
from turnout.serve.live.computed import AskedSql, SharedDifference, SharedSql
from turnout.serve.live.hub import Hub
from turnout.serve.live.outbox import Outbox, Subscription, message, problem_body
from turnout.serve.live.shared import Shared
from turnout.serve.live.summaries import SharedSummary
from turnout.serve.live.windows import SharedWindow
from turnout.serve.requests import check_parameters, first_fault
from turnout.serve.responses import error_response, to_json
from turnout.serve.rounds import Threads
from turnout.store.query.difference import DifferenceQuestion
from turnout.store.query.summary import Summary, parse_by, parse_order, parse_values
from turnout.store.query.windows import Window
from turnout_client.messages import (
    MAX_SUBSCRIPTIONS,
    ChangesRequest,
    ClientMessage,
    CloseCode,
    DifferenceRequest,
    Id,
    SqlRequest,
    SummaryRequest,
    Unsubscribe,
    Where,
    WindowRequest,
    client_message,
)

MESSAGES = Rate(per_second=100, burst=500)
BYTES = Rate(per_second=250_000, burst=1_000_000)
"""How much is read from one client, over all its connections; the rest waits in its sockets."""

SMALL_BYTES = 4_000
"""A message of more is not read on the event loop."""
_SPEAKING = Rate(per_second=50, burst=200)
_NUMBERS = itertools.count()

Subject = tuple[Callable[..., Shared], Window | Summary | AskedSql | DifferenceQuestion]
"""What a subscription asks for, and the class that follows it."""


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


Asked = tuple[ClientMessage, Subject | TurnoutError | None]
"""A message, and what it asks for, or the error in that."""


class Live:
    """The endpoint: takes a place for each viewer, and serves it."""

    def __init__(self, hub: Hub, store: str, viewers: Viewers, access: Access) -> None:
        self.hub, self.viewers, self.access = hub, viewers, access
        self._store = store
        self._parsing = Threads(1, "parse")
        self._messages, self._bytes = Buckets(MESSAGES), Buckets(BYTES)

    async def connect(self, websocket: WebSocket) -> None:
        client = caller(websocket.scope)
        with contextlib.ExitStack() as held:
            try:
                check_parameters(websocket.query_params)
                held.enter_context(self.viewers.place(client))
            except TurnoutError as error:
                await error_response(error)(websocket.scope, websocket.receive, websocket.send)
                return
            await websocket.accept(subprotocol_of(websocket.scope))
            await Viewer(websocket, self).run(self._hello(websocket))

    async def parsed(self, client: str, raw: str | bytes) -> Asked:
        """The message, when its client may send it; TurnoutError where it is none."""
        while wait := self._messages.take(client) or self._bytes.wait_seconds(client, len(raw)):
            await asyncio.sleep(wait)
        self._bytes.spend(client, len(raw))
        return parsed(raw) if len(raw) <= SMALL_BYTES else await self._parsing.run(lambda: parsed(raw))

    def _hello(self, websocket: WebSocket) -> str:
        role, sql = identity_of(websocket.scope).role, True
        try:
            self.access.check_sql(websocket.scope)
        except TurnoutError:
            sql = False
        hello = {"type": "hello", "server": version("turnout"), "store": self._store, "role": role, "sql": sql}
        return to_json(hello).decode()


class Viewer:
    """One open connection of a client, from hello to its end."""

    def __init__(self, websocket: WebSocket, live: Live) -> None:
        self._websocket = websocket
        self._live = live
        self._client = caller(websocket.scope)
        self._outbox = Outbox(self._client, live.hub.readers.held)
        self._subscriptions: dict[str, contextlib.ExitStack] = {}
        self._speaking = Buckets(_SPEAKING, most=1)

    async def run(self, hello: str) -> None:
        self._outbox.put_first(hello)
        sending = asyncio.ensure_future(self._outbox.send(self._websocket.send_text))
        hearing = asyncio.ensure_future(self._hear())
        leaving = asyncio.ensure_future(self._leave())
        tasks = (sending, hearing, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for subscription in self._subscriptions.values():
                subscription.close()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)
            self._outbox.close()

    async def _hear(self) -> None:
        while True:
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return
            if self._speaking.take("client"):
                reason = f"more than {_SPEAKING.per_second:g} messages a second"
                await self._close(CloseCode.TOO_MANY_MESSAGES, reason)
                return
            await self._take(event.get("text") or event.get("bytes") or b"")

    async def _leave(self) -> None:
        """End the connection of somebody whose token or session has ended."""
        await self._close(CloseCode.SIGNED_OUT, await self._live.access.ended(self._websocket.scope))

    async def _close(self, code: CloseCode, reason: str) -> None:
        with contextlib.suppress(RuntimeError, TimeoutError, WebSocketDisconnect):
            await asyncio.wait_for(self._websocket.close(code, reason), 1)

    async def _take(self, raw: str | bytes) -> None:
        identity: str | None = None
        try:
            request, subject = await self._live.parsed(self._client, raw)
            identity = request.id
            self._answer(request, subject)
        except TurnoutError as error:
            given = error.id if isinstance(error, BadMessageError) else identity
            self._outbox.put_first(message("error", given, problem_body(error)))

    def _answer(self, request: ClientMessage, subject: Subject | TurnoutError | None) -> None:
        if (earlier := self._subscriptions.pop(request.id, None)) is not None:
            earlier.close()
        if isinstance(request, Unsubscribe):
            return
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise TurnoutError(
                code="too_many_subscriptions",
                message=f"this connection has {MAX_SUBSCRIPTIONS} subscriptions, which is the most",
                hint="unsubscribe from some, or open another connection",
            )
        with contextlib.ExitStack() as ending:
            ending.enter_context(self._live.viewers.subscription(self._client, request.type))
            subscription = Subscription(self._outbox, request.id)
            ending.callback(self._follow(request, subject, subscription))
            ending.callback(self._outbox.remove, subscription)
            self._subscriptions[request.id] = ending.pop_all()

    def _follow(
        self, request: ClientMessage, subject: Subject | TurnoutError | None, subscription: Subscription
    ) -> Callable[[], None]:
        if isinstance(subject, TurnoutError):
            raise subject
        if subject is None:
            return self._live.hub.follow_status(subscription)
        if request.type == "sql":
            self._live.access.check_sql(self._websocket.scope)
        if isinstance(request, SummaryRequest):
            subscription.history_seconds = request.history
        if (resume := getattr(request, "resume", None)) is not None:
            subscription.seen = Position(resume.generation, resume.version)
        return self._live.hub.follow(*subject, subscription)


def parsed(raw: str | bytes) -> Asked:
    try:
        asked = client_message.validate_json(raw)
    except ValidationError as error:
        raise BadMessageError(raw, first_fault(error, "message")) from error
    try:
        return asked, _subject(asked)
    except TurnoutError as error:
        return asked, error


def _subject(asked: ClientMessage) -> Subject | None:
    if isinstance(asked, ChangesRequest):
        return SharedChanges, Window(asked.table, columns=_columns(asked.columns))
    if isinstance(asked, SqlRequest):
        return SharedSql, AskedSql(asked.sql, asked.limit, None if asked.live else next(_NUMBERS))
    if isinstance(asked, SummaryRequest):
        by, values, where = parse_by(asked.by), parse_values(asked.values), _terms(asked.where)
        return SharedSummary, Summary(asked.table, by, values, where, parse_order(asked.sort), asked.limit)
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
        return SharedWindow, window
    return SharedDifference, DifferenceQuestion(window, asked.from_, asked.to, asked.change)


def _terms(given: Where) -> tuple[Term, ...]:
    return parse_terms(
        given if isinstance(given, str) else [t if isinstance(t, str) else t.model_dump() for t in given]
    )


def _columns(given: str | list[str] | None) -> tuple[str, ...] | None:
    return parse_columns(given) or None if given else None
