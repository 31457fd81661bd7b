"""The live connection of a client: one thread and one WebSocket, shared by all of its subscriptions.

It exists while there are subscriptions. After a failure it reconnects with growing pauses and resumes every
subscription at its position. `newest.py` and `changes.py` process the messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import httpx
import orjson

from turnout_client import wire
from turnout_client.errors import TurnoutError, first_line
from turnout_client.events import Json, State
from turnout_client.http import unreachable_because
from turnout_client.retries import growing_pause

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import InvalidStatus

    from turnout_client.subscription import Subscription

log = logging.getLogger("turnout_client")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0
_OPEN_SECONDS = 10.0
_PING_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_JOIN_SECONDS = 5.0
_DATA = ("rows", "summary", "difference", "current", "snapshot", "changes")
# Temporary refusals: the server is starting or full, or a gateway is waiting for it.
_PASSING_STATUS = (408, 425, 429)

AnySubscription: TypeAlias = "Subscription[Any]"
S = TypeVar("S", bound="Subscription[Any]")


class Live:
    """The interface of the connection to subscriptions and clients; all methods can be called from any thread."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = headers
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._ending: list[threading.Thread] = []

    def add(self, subscription: S) -> S:
        """Request the data of a subscription, now and after each reconnection."""
        with self._lock:
            if self._session is None:
                self._session = _Session(self._url, self._headers, self.release)
            self._session.members.add(subscription)
            self._session.soon(self._session.ask, subscription)
        return subscription

    def remove(self, subscription: AnySubscription) -> None:
        """End a subscription; after the last one, also wait until the thread has ended."""
        self.release(subscription)
        self._join()

    def ask_again(self, subscription: AnySubscription) -> None:
        with self._lock:
            if self._session is not None and subscription in self._session.members:
                self._session.soon(self._session.ask, subscription)

    def close(self) -> None:
        with self._lock:
            members = list(self._session.members) if self._session else []
        for subscription in members:
            subscription.close()
        self._join()

    def release(self, subscription: AnySubscription) -> None:
        """End a subscription without waiting for the thread; a session without members ends itself."""
        with self._lock:
            session = self._session
            if session is None or subscription not in session.members:
                return
            session.members.discard(subscription)
            session.soon(session.drop, subscription)
            if not session.members:
                self._session = None
                self._ending = [thread for thread in self._ending if thread.is_alive()] + [session.thread]
                session.soon(session.work.cancel)

    def _join(self) -> None:
        with self._lock:
            ending = list(self._ending)
        for thread in ending:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)


class _Session:
    """The state of one connection thread: its event loop, its current socket, and the subscriptions by their ids.

    The lock of Live guards `members`. All other state belongs to the thread; other threads use `soon`.
    """

    def __init__(self, url: str, headers: Mapping[str, str], release: Callable[[AnySubscription], None]) -> None:
        self.members: set[AnySubscription] = set()
        self._url = url
        self._headers = headers
        self._release = release
        self._loop = asyncio.new_event_loop()
        self._was_live = False
        self._store: str | None = None
        self._ids = itertools.count(1)
        self._by_id: dict[str, AnySubscription] = {}
        self._retries: dict[AnySubscription, int] = {}
        self._socket: ClientConnection | None = None
        self._outbox: asyncio.Queue[str] = asyncio.Queue()
        self.work = self._loop.create_task(self._connect_for_ever())
        self.thread = threading.Thread(target=self._run, name="turnout-live", daemon=True)
        self.thread.start()

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Schedule a call on the session's thread; do nothing if the thread has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    # -- on the session's thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner, contextlib.suppress(asyncio.CancelledError):
                runner.get_loop().run_until_complete(self.work)
        except Exception as error:  # an unexpected error must not leave consumers waiting for ever
            log.exception("the live connection failed")
            text, hint = f"the live connection failed: {first_line(error)}", "the log has the details; subscribe again"
            self._refuse_all(TurnoutError(code="client_failed", message=text, hint=hint, status=500))

    def ask(self, subscription: AnySubscription) -> None:
        """Send a subscription's request. A new id each time keeps late messages for the old id apart."""
        self.drop(subscription)
        if self._socket is None or subscription.state.over:
            return
        identity = str(next(self._ids))
        self._by_id[identity] = subscription
        self._send(subscription._request(), identity)

    def drop(self, subscription: AnySubscription) -> None:
        for identity in [one for one, held in self._by_id.items() if held is subscription]:
            del self._by_id[identity]
            self._send({"type": "unsubscribe"}, identity)

    def _send(self, request: Json, identity: str) -> None:
        if self._socket is not None:
            self._outbox.put_nowait(orjson.dumps({**request, "id": identity}).decode())

    async def _send_all(self, socket: ClientConnection) -> None:
        from websockets.exceptions import ConnectionClosed

        # The receiving task handles a closed connection.
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.send(await self._outbox.get())

    async def _connect_for_ever(self) -> None:
        failures = 0
        while True:
            opened = time.monotonic()
            reason = await self._connect_once()
            # After a connection that lasted, the pauses start short again.
            if time.monotonic() - opened > LONGEST_PAUSE_SECONDS:
                failures = 0
            for subscription in list(self.members):  # the copy is atomic in Python, so no lock is needed
                subscription._set_state(State.AWAY, reason)
            await asyncio.sleep(pause_seconds(failures))
            failures += 1

    async def _connect_once(self) -> str:
        """Connect, and serve until the connection ends; return the reason."""
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

        try:
            async with _open(self._url, self._headers) as socket:
                await self._serve(socket)
        except InvalidStatus as error:
            return self._not_let_in(error)
        except ConnectionClosed as error:
            if error.rcvd is None:
                return "the connection broke"
            return f"the server closed the connection: {error.rcvd.reason or f'code {error.rcvd.code}'}"
        except ssl.SSLCertVerificationError as error:
            if not self._was_live:
                text = f"the certificate of {self._url} is not trusted: {error.verify_message}"
                hint = "give the file with its authority in SSL_CERT_FILE"
                self._refuse_all(TurnoutError(code="server_unreachable", message=text, hint=hint, status=503))
            return first_line(error)
        except (OSError, WebSocketException) as error:
            return f"no answer from {self._url}: {unreachable_because(error, _OPEN_SECONDS)}"
        except _NotTurnoutError as error:
            self._refuse_all(self._bad_answer(str(error)))
            return str(error)
        return "the connection ended"

    async def _serve(self, socket: ClientConnection) -> None:
        """Send requests and dispatch messages on an open socket until it closes."""
        self._greet(_read(await socket.recv()))
        self._by_id.clear()
        self._socket, self._outbox = socket, asyncio.Queue()
        sender = asyncio.ensure_future(self._send_all(socket))
        try:
            for subscription in list(self.members):
                self.ask(subscription)
            while True:
                self._dispatch(_read(await socket.recv()))
        finally:
            self._socket = None
            sender.cancel()

    def _greet(self, hello: Json) -> None:
        if hello["type"] != "hello":
            raise _NotTurnoutError("its first message is not a hello")
        if hello.get("store") != self._store:
            for subscription in list(self.members):
                subscription._forget_position()
        self._store = hello.get("store")

    def _dispatch(self, message: Json) -> None:
        subscription = self._by_id.get(str(message.get("id")))
        if message["type"] == "error":
            self._problem(subscription, message)
        # Unknown types come from a newer server, unknown ids belong to ended subscriptions.
        elif subscription is not None and message["type"] in _DATA:
            self._data(subscription, message)

    def _data(self, subscription: AnySubscription, message: Json) -> None:
        try:
            fits = subscription._receive(message)
        except (KeyError, TypeError, ValueError) as error:
            text = f"a {message['type']} message is not valid: {first_line(error)}"
            raise _NotTurnoutError(text) from error
        if fits:
            self._was_live = True
            self._retries.pop(subscription, None)
        else:
            log.info("%s: something is missing between two messages, asking again", subscription.table)
            self.ask(subscription)

    def _problem(self, subscription: AnySubscription | None, message: Json) -> None:
        error = wire.problem(message) or TurnoutError(code="error", message="the server refused and did not say why")
        if subscription is None:
            log.warning("the server did not accept a message: %s", error)
            return
        del self._by_id[str(message["id"])]
        # A server that has just started may not have its tables yet, so a subscription that had data tries again. A
        # numbered generation (NAME@7) never returns.
        known = subscription._had_data and subscription.state is State.AWAY and "@" not in subscription.table
        if error.status >= 500 or (error.code == "unknown_table" and known):
            subscription._set_state(State.AWAY, error.message)
            count = self._retries[subscription] = self._retries.get(subscription, -1) + 1
            self._loop.call_later(pause_seconds(count), self.ask, subscription)
        else:
            self._refuse(subscription, error)

    def _not_let_in(self, refusal: InvalidStatus) -> str:
        """Handle an HTTP answer instead of a WebSocket: if it is final, refuse all subscriptions. Return the reason."""
        status = refusal.response.status_code
        error = wire.problem(wire.parsed(refusal.response.body or b""), status)
        passes = status >= 500 or status in _PASSING_STATUS or (self._was_live and status not in (401, 403))
        if not passes:
            self._refuse_all(error or self._bad_answer(f"/api/live answers {status}"))
        return error.message if error else f"{self._url} answers {status}"

    def _refuse(self, subscription: AnySubscription, error: TurnoutError) -> None:
        subscription._set_state(State.REFUSED, error.message, error)
        self._release(subscription)

    def _refuse_all(self, error: TurnoutError) -> None:
        for subscription in list(self.members):
            self._refuse(subscription, error)

    def _bad_answer(self, reason: str) -> TurnoutError:
        return wire.bad_answer(self._url, f"does not answer as Turnout does: {reason}")


class _NotTurnoutError(Exception):
    """The server does not speak the protocol."""


def _open(url: str, headers: Mapping[str, str]) -> Any:
    """Return a context manager for the socket. It trusts the same certificate authorities as the HTTP calls."""
    from websockets.asyncio.client import connect

    class Connect(connect):
        """A connection that follows no redirect: older versions of the library would send the token along."""

        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    host = url.partition("://")[2]
    return Connect(
        "ws" + url.removeprefix("http") + "/api/live",
        additional_headers=headers,
        # On the same machine compression costs more than it saves.
        compression=None if host.startswith(("127.", "localhost", "[::1]")) else "deflate",
        ssl=httpx.create_ssl_context() if url.startswith("https:") else None,
        max_size=None,  # a snapshot is as large as its table
        open_timeout=_OPEN_SECONDS,
        close_timeout=_CLOSE_SECONDS,
        ping_interval=_PING_SECONDS,
        ping_timeout=_PING_SECONDS,
    )


def pause_seconds(failures: int) -> float:
    """Return the seconds before the next attempt; they are random, so that many clients do not reconnect at once."""
    longest = growing_pause(failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    return random.uniform(longest / 2, longest)


def _read(data: str | bytes) -> Json:
    message = wire.parsed(data)
    if isinstance(message, dict) and isinstance(message.get("type"), str):
        return message
    raise _NotTurnoutError("a message is not a JSON object with a type")
