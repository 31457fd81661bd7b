"""One connection of `WS /api/live`: accepts it, and follows what its messages ask for; its outbox sends.

`access.py` decides who may connect; what subscriptions are sent is decided by the hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import version

from starlette.websockets import WebSocket, WebSocketDisconnect

from turnout.errors import TurnoutError
from turnout.plan.position import Position
from turnout.serve.access import Access, identity_of, subprotocol_of
from turnout.serve.formats import to_json
from turnout.serve.limits import Buckets, Rate, Viewers, caller
from turnout.serve.live.changes import SharedChanges
from turnout.serve.live.computed import SharedDifference, SharedSql
from turnout.serve.live.hub import Hub
from turnout.serve.live.outbox import Outbox, Subscription, message, problem_body
from turnout.serve.live.parsing import Asked, BadMessageError, Parsing
from turnout.serve.live.shared import Shared
from turnout.serve.live.summaries import SharedSummary
from turnout.serve.live.windows import SharedWindow
from turnout.serve.requests import check_parameters
from turnout.serve.responses import error_response
from turnout_client.messages import MAX_SUBSCRIPTIONS, CloseCode, SummaryRequest, Unsubscribe

log = logging.getLogger(__name__)

_SPEAKING = Rate(per_second=50, burst=200)
_KINDS: Mapping[str, Callable[..., Shared]] = {
    "window": SharedWindow,
    "changes": SharedChanges,
    "summary": SharedSummary,
    "difference": SharedDifference,
    "sql": SharedSql,
}
"""What follows a subject, by the type of the message that asks for it."""


class Live:
    """The endpoint: takes a place for each viewer, and serves it."""

    def __init__(self, hub: Hub, store: str, viewers: Viewers, access: Access) -> None:
        self.hub, self.viewers, self.access = hub, viewers, access
        self.parsing = Parsing()
        self._store = store

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
            asked = await self._live.parsing.parsed(self._client, raw)
            identity = asked.message.id
            self._answer(asked)
        except TurnoutError as error:
            given = error.id if isinstance(error, BadMessageError) else identity
            self._outbox.put_first(message("error", given, problem_body(error)))

    def _answer(self, asked: Asked) -> None:
        identity = asked.message.id
        if (earlier := self._subscriptions.pop(identity, None)) is not None:
            earlier.close()
        if isinstance(asked.message, Unsubscribe):
            return
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise TurnoutError(
                code="too_many_subscriptions",
                message=f"this connection has {MAX_SUBSCRIPTIONS} subscriptions, which is the most",
                hint="unsubscribe from some, or open another connection",
            )
        with contextlib.ExitStack() as ending:
            ending.enter_context(self._live.viewers.subscription(self._client, asked.message.type))
            subscription = Subscription(self._outbox, identity)
            ending.callback(self._follow(asked, subscription))
            ending.callback(self._outbox.remove, subscription)
            self._subscriptions[identity] = ending.pop_all()

    def _follow(self, asked: Asked, subscription: Subscription) -> Callable[[], None]:
        request, subject = asked.message, asked.subject()
        if subject is None:
            return self._live.hub.follow_status(subscription)
        if request.type == "sql":
            self._live.access.check_sql(self._websocket.scope)
        if isinstance(request, SummaryRequest):
            subscription.history_seconds = request.history
        resume = getattr(request, "resume", None)
        seen = Position(resume.generation, resume.version) if resume else None
        return self._live.hub.follow(_KINDS[request.type], subject, subscription, seen)
