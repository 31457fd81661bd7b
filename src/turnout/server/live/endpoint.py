"""One connection of `WS /api/live`: accepted, heard, and sent what waits in its outbox.

Who may connect is decided before (`access.py`); what is followed, and what is sent, is the hub's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

from pydantic import ValidationError
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from turnout.errors import TurnoutError
from turnout.messages import (
    MAX_SUBSCRIPTIONS,
    ChangesRequest,
    ClientMessage,
    CloseCode,
    Position,
    StatusRequest,
    Unsubscribe,
    WindowRequest,
    client_message,
)
from turnout.server.access import identity_of, refuse, subprotocol_of
from turnout.server.api import known_parameters
from turnout.server.formats import to_json
from turnout.server.limits import Buckets, Rate, Viewers
from turnout.server.live.encoding import message, problem_body
from turnout.server.live.hub import Hub
from turnout.server.live.outbox import ChangesSlot, NewestSlot, Outbox, Slot
from turnout.store.where import parse_columns, parse_sort, parse_terms
from turnout.store.windows import Window

log = logging.getLogger(__name__)

_SPEAKING = Rate(per_second=50, burst=200)


class Live:
    """The endpoint: takes a place for each viewer, and serves it."""

    def __init__(self, hub: Hub, store: str, viewers: Viewers) -> None:
        self._hub = hub
        self._store = store
        self._viewers = viewers

    def routes(self) -> list[WebSocketRoute]:
        return [WebSocketRoute("/api/live", self.connect)]

    async def connect(self, websocket: WebSocket) -> None:
        with contextlib.ExitStack() as held:
            try:
                known_parameters(websocket.query_params)
                held.enter_context(self._viewers.place())
            except TurnoutError as error:
                await refuse(websocket.scope, websocket.receive, websocket.send, error)
                return
            await websocket.accept(subprotocol_of(websocket.scope))
            await Connection(websocket, self._hub, self._viewers.subscriptions).run(self._hello(websocket))

    def _hello(self, websocket: WebSocket) -> str:
        role = identity_of(websocket.scope).role
        return to_json({"type": "hello", "server": version("turnout"), "store": self._store, "role": role}).decode()


class Connection:
    """One client, from hello to its end."""

    def __init__(self, websocket: WebSocket, hub: Hub, counts: Counter[str]) -> None:
        self._websocket = websocket
        self._hub = hub
        self._counts = counts
        self._outbox = Outbox()
        self._followed: dict[str, tuple[Slot, Callable[[], None]]] = {}
        self._speaking = Buckets(_SPEAKING, most=1)

    async def run(self, hello: str) -> None:
        self._outbox.put_first(hello)
        sending = asyncio.ensure_future(self._send())
        hearing = asyncio.ensure_future(self._hear())
        try:
            await asyncio.wait([sending, hearing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, hearing):
                task.cancel()
            for slot, leave in self._followed.values():
                self._outbox.remove(slot)
                leave()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(sending, hearing, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            text = await self._outbox.next()
            try:
                await self._websocket.send_text(text)
            except (WebSocketDisconnect, RuntimeError):
                return  # the client has gone, or was given up because it reads nothing

    async def _hear(self) -> None:
        while True:
            event = await self._websocket.receive()
            if event["type"] == "websocket.disconnect":
                return
            if self._speaking.take("client"):
                await self._close(CloseCode.TOO_MANY_MESSAGES, f"more than {_SPEAKING.per_second:g} messages a second")
                return
            self._take(event.get("text") or event.get("bytes") or b"")

    async def _close(self, code: CloseCode, reason: str) -> None:
        with contextlib.suppress(RuntimeError, TimeoutError, WebSocketDisconnect):
            await asyncio.wait_for(self._websocket.close(code, reason), 1)

    def _take(self, raw: str | bytes) -> None:
        identity: str | None = None
        try:
            asked = _parsed(raw)
            identity = asked.id
            self._answer(asked)
        except TurnoutError as error:
            self._outbox.put_first(message("error", identity, problem_body(error)))

    def _answer(self, asked: ClientMessage) -> None:
        self._unfollow(asked.id)
        if isinstance(asked, Unsubscribe):
            return
        if len(self._followed) >= MAX_SUBSCRIPTIONS:
            raise TurnoutError(
                code="too_many_subscriptions",
                message=f"this connection has {MAX_SUBSCRIPTIONS} subscriptions, which is the most",
                hint="unsubscribe from some, or open another connection",
            )
        slot, leave = self._follow(asked)
        self._counts[asked.type] += 1
        self._followed[asked.id] = slot, partial(self._leave, asked.type, leave)

    def _leave(self, kind: str, leave: Callable[[], None]) -> None:
        self._counts[kind] -= 1
        leave()

    def _follow(self, asked: WindowRequest | ChangesRequest | StatusRequest) -> tuple[Slot, Callable[[], None]]:
        if isinstance(asked, ChangesRequest):
            window = Window(asked.table, columns=_columns(asked.columns))
            return self._hub.follow_changes(
                lambda behind: ChangesSlot(self._outbox, asked.id, behind), window, _place(asked.resume)
            )
        slot = NewestSlot(self._outbox, asked.id)
        if isinstance(asked, WindowRequest):
            return slot, self._hub.follow_window(slot, _window(asked), _place(asked.resume))
        return slot, self._hub.follow_status(slot)

    def _unfollow(self, identity: str) -> None:
        followed = self._followed.pop(identity, None)
        if followed is not None:
            slot, leave = followed
            self._outbox.remove(slot)
            leave()


def _parsed(raw: str | bytes) -> ClientMessage:
    try:
        return client_message.validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        raise TurnoutError(
            code="bad_message",
            message=f"{where}: {first['msg']}",
            hint='send JSON such as {"type": "window", "id": "1", "table": "final_ui", "limit": 50}; '
            "types: window, changes, status, unsubscribe",
        ) from error


def _window(asked: WindowRequest) -> Window:
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


def _place(position: Position | None) -> tuple[int, int] | None:
    return (position.generation, position.version) if position else None
