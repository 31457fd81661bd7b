"""The live connection of a client: one thread with one WebSocket, shared by all of its subscriptions.

It lives while there are subscriptions. It connects again with growing pauses, and takes up every subscription where
it was. What the messages mean is `mirror.py`; how events get to their consumers is `intake.py`.
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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnout.client import wire
from turnout.client.events import Json, State
from turnout.client.intake import Intake
from turnout.errors import TurnoutError, first_line
from turnout.plan.retries import growing_pause

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed, InvalidStatus

log = logging.getLogger("turnout.client")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 5.0
_OPEN_SECONDS = 10.0
_PING_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_JOIN_SECONDS = 5.0
_DATA = ("rows", "current", "snapshot", "changes")
# Refusals that pass: the server starts, is full, or a gateway in front of it waits for it.
_PASSING_STATUS = (408, 425, 429)

AnyIntake = Intake[Any]


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is, and how to get in."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    tls: Callable[[], ssl.SSLContext]

    def open(self) -> Any:
        """The socket, to be entered."""
        from websockets.asyncio.client import connect

        secure = self.url.startswith("https:")
        host = self.url.partition("://")[2]
        return connect(
            "ws" + self.url.removeprefix("http") + "/api/live",
            additional_headers=self.headers,
            # Packing costs more than it saves where no network is in between.
            compression=None if host.startswith(("127.", "localhost", "[::1]")) else "deflate",
            ssl=self.tls() if secure else None,
            max_size=None,  # a snapshot is as large as its table
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PING_SECONDS,
        )


class Live:
    """The connection as subscriptions and their client see it; all methods may be called from any thread."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._ending: list[_Session] = []

    def add(self, intake: AnyIntake) -> None:
        """Fill it from now on."""
        with self._lock:
            if self._session is None:
                self._session = _Session(self._address, self.release)
                self._session.start()
            self._session.members.add(intake)
            self._session.soon(self._session.ask, intake)

    def remove(self, intake: AnyIntake) -> None:
        """Send it nothing more; after the last one the thread has gone when this returns."""
        self.release(intake)
        self._join()

    def ask_again(self, intake: AnyIntake) -> None:
        with self._lock:
            if self._session is not None and intake in self._session.members:
                self._session.soon(self._session.ask, intake)

    def close(self) -> None:
        """End every subscription."""
        with self._lock:
            members = list(self._session.members) if self._session else []
        for intake in members:
            intake.set_state(State.CLOSED)
            self.release(intake)
        for intake in members:
            intake.join()
        self._join()

    def release(self, intake: AnyIntake) -> None:
        """Take it out; without a member a session ends by itself."""
        with self._lock:
            session = self._session
            if session is None or intake not in session.members:
                return
            session.members.discard(intake)
            session.soon(session.drop, intake)
            if not session.members:
                self._session = None
                self._ending = [one for one in self._ending if one.running] + [session]
                session.soon(session.end)

    def _join(self) -> None:
        with self._lock:
            ending = list(self._ending)
        for session in ending:
            session.join()


class _Session:
    """The life of one thread: its event loop, the socket of the moment, and which wire id is whose.

    `members` is guarded by the lock of Live. All else belongs to the thread: others come in by `soon`.
    """

    def __init__(self, address: Address, release: Callable[[AnyIntake], None]) -> None:
        self.members: set[AnyIntake] = set()
        self._address = address
        self._release = release
        self._loop = asyncio.new_event_loop()
        self._work: asyncio.Task[None] | None = None
        self._ended = self._was_live = False
        self._store: str | None = None
        self._ids = itertools.count(1)
        self._by_id: dict[str, AnyIntake] = {}
        self._retries: dict[AnyIntake, int] = {}
        self._socket: ClientConnection | None = None
        self._outbox: asyncio.Queue[str] | None = None
        self._thread = threading.Thread(target=self._run, name="turnout-live", daemon=True)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    def soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Run on the session's thread; once that is gone, nothing is left to do."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *arguments)

    # -- on its own thread

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._main())
        except Exception as error:  # a fault of ours must not leave consumers waiting for ever
            log.exception("the live connection failed")
            self._refuse_all(_failed(error))

    async def _main(self) -> None:
        if self._ended:
            return
        self._work = asyncio.ensure_future(self._connect_for_ever())
        with contextlib.suppress(asyncio.CancelledError):
            await self._work

    def end(self) -> None:
        self._ended = True
        if self._work is not None:
            self._work.cancel()

    def ask(self, intake: AnyIntake) -> None:
        """Send its request. A new id each time: what is still under way for the old one is never mixed in."""
        self.drop(intake)
        if self._outbox is None or intake.state.over:
            return
        identity = str(next(self._ids))
        self._by_id[identity] = intake
        self._outbox.put_nowait(wire.encode(intake.request(), identity))

    def drop(self, intake: AnyIntake) -> None:
        for identity in [one for one, held in self._by_id.items() if held is intake]:
            del self._by_id[identity]
            if self._outbox is not None:
                self._outbox.put_nowait(wire.encode({"type": "unsubscribe"}, identity))

    async def _connect_for_ever(self) -> None:
        failures = 0
        while True:
            opened = time.monotonic()
            reason = await self._connect_once()
            # A connection that lasted was a good one: pauses begin short again.
            if time.monotonic() - opened > LONGEST_PAUSE_SECONDS:
                failures = 0
            for intake in list(self.members):  # one step for Python, so no lock is needed
                intake.set_state(State.AWAY, reason)
            await asyncio.sleep(pause_seconds(failures))
            failures += 1

    async def _connect_once(self) -> str:
        """Connect and serve; why that ended, in words."""
        from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

        try:
            async with self._address.open() as socket:
                await self._serve(socket)
        except InvalidStatus as error:
            return self._not_let_in(error)
        except ConnectionClosed as error:
            return _closing(error)
        except ssl.SSLCertVerificationError as error:
            if not self._was_live:
                self._refuse_all(_untrusted(self._address.url, error))
            return first_line(error)
        except (OSError, WebSocketException) as error:
            return f"no answer from {self._address.url}: {_reason(error)}"
        except _NotTurnoutError as error:
            self._refuse_all(_not_turnout(self._address.url, str(error)))
            return str(error)
        return "the connection ended"

    async def _serve(self, socket: ClientConnection) -> None:
        """Everything on one open socket, until it closes."""
        self._greet(_read(await socket.recv()))
        self._by_id.clear()
        self._socket, self._outbox = socket, asyncio.Queue()
        sender = asyncio.ensure_future(_send_all(self._outbox, socket))
        try:
            for intake in list(self.members):
                self.ask(intake)
            while True:
                self._dispatch(_read(await socket.recv()))
        finally:
            self._socket = self._outbox = None
            sender.cancel()

    def _greet(self, hello: Json) -> None:
        if hello["type"] != "hello":
            raise _NotTurnoutError("its first message is not a hello")
        if hello.get("store") != self._store:
            for intake in list(self.members):
                intake.doubt()
        self._store = hello.get("store")

    def _dispatch(self, message: Json) -> None:
        intake = self._by_id.get(str(message.get("id")))
        if message["type"] == "error":
            self._problem(intake, message)
        # Unknown types are of a newer server, unknown ids of subscriptions that have gone.
        elif intake is not None and message["type"] in _DATA:
            self._data(intake, message)

    def _data(self, intake: AnyIntake, message: Json) -> None:
        try:
            fits = intake.receive(message)
        except (KeyError, TypeError, ValueError) as error:
            text = f"a {message['type']} message is not as it should be: {first_line(error)}"
            raise _NotTurnoutError(text) from error
        if fits:
            self._was_live = True
            self._retries.pop(intake, None)
        else:
            log.info("%s: something is missing between two messages, asking again", intake.table)
            self.ask(intake)

    def _problem(self, intake: AnyIntake | None, message: Json) -> None:
        error = wire.problem(message.get("error"))
        if intake is None:
            log.warning("the server did not take a message: %s", error)
            return
        del self._by_id[str(message["id"])]
        if _passes(intake, error):
            intake.set_state(State.AWAY, error.message)
            count = self._retries[intake] = self._retries.get(intake, -1) + 1
            self._loop.call_later(pause_seconds(count), self.ask, intake)
        else:
            self._refuse(intake, error)

    def _not_let_in(self, refusal: InvalidStatus) -> str:
        """What an HTTP answer instead of a socket means: over, or only for now."""
        status = refusal.response.status_code
        error = wire.problem_of_body(refusal.response.body or b"", status)
        passes = status >= 500 or status in _PASSING_STATUS or (self._was_live and status not in (401, 403))
        if not passes:
            self._refuse_all(error or _not_turnout(self._address.url, f"/api/live answers {status}"))
        return error.message if error else f"{self._address.url} answers {status}"

    def _refuse(self, intake: AnyIntake, error: TurnoutError) -> None:
        intake.set_state(State.REFUSED, error.message, error)
        self._release(intake)

    def _refuse_all(self, error: TurnoutError) -> None:
        for intake in list(self.members):
            self._refuse(intake, error)


class _NotTurnoutError(Exception):
    """The other side does not speak the protocol."""


def pause_seconds(failures: int) -> float:
    """How long to wait before the next attempt; spread, so that many clients do not come back at once."""
    longest = growing_pause(failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
    return random.uniform(longest / 2, longest)


def _passes(intake: AnyIntake, error: TurnoutError) -> bool:
    """Whether to ask again later.

    A server that has just started may not have its tables yet: whoever had data gets it again. A generation by
    its number never comes back.
    """
    if error.status >= 500:
        return True
    known = intake.seen and intake.state is State.AWAY
    return error.code == "unknown_table" and known and "@" not in intake.table


async def _send_all(outbox: asyncio.Queue[str], socket: ClientConnection) -> None:
    from websockets.exceptions import ConnectionClosed

    # Whoever receives hears of a closed connection too, and acts on it.
    with contextlib.suppress(ConnectionClosed):
        while True:
            await socket.send(await outbox.get())


def _read(data: str | bytes) -> Json:
    try:
        return wire.decode(data)
    except ValueError as error:
        raise _NotTurnoutError(f"a message is no JSON object with a type: {first_line(error)}") from error


def _closing(closed: ConnectionClosed) -> str:
    if closed.rcvd is None:
        return "the connection broke"
    return f"the server closed the connection: {closed.rcvd.reason or f'code {closed.rcvd.code}'}"


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return f"it took longer than {_OPEN_SECONDS:g} s"
    return first_line(error)


def _not_turnout(url: str, reason: str) -> TurnoutError:
    return TurnoutError(
        code="bad_answer",
        message=f"{url} does not answer as Turnout does: {reason}",
        hint="check that the address is that of a Turnout server of this version, without a path",
        status=502,
    )


def _untrusted(url: str, error: ssl.SSLCertVerificationError) -> TurnoutError:
    return TurnoutError(
        code="server_unreachable",
        message=f"the certificate of {url} is not trusted: {error.verify_message}",
        hint="give the file with its authority in SSL_CERT_FILE",
        status=503,
    )


def _failed(error: Exception) -> TurnoutError:
    return TurnoutError(
        code="client_failed",
        message=f"the live connection failed: {first_line(error)}",
        hint="the log has the details; subscribe again",
        status=500,
    )
