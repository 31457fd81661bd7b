"""Real servers on free ports, in threads of their own, for the tests of clients."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from exemplary import example
from turnout.config import Settings, parse
from turnout.config.configuration import Configuration
from turnout.config.server import ServerSettings
from turnout.errors import TurnoutError
from turnout.example.by_example import source_json
from turnout.plan.control import ApplyRequest, ControlRejected, Outcome
from turnout.serve.access import Access
from turnout.serve.app import Server, Services, create_app
from turnout.serve.connections import OpenConnections
from turnout.store.config_history import as_json
from turnout.store.database import Database
from turnout.store.ledger import MessageRecord
from turnout.swap.applies import apply_of, record_of
from turnout.swap.control_queue import QueuedMessage, Reply
from turnout.swap.explainer import Explainer
from turnout.swap.health import Readiness
from turnout.swap.metrics import Metrics
from turnout.testing import patience

SECONDS = patience()
"""The limit of all that is waited for."""

# One client for all calls, without TLS: to make one that reads the machine's certificates takes longer than a call.
# It keeps no connection: servers come and go.
HTTP = httpx.Client(timeout=SECONDS, verify=False, limits=httpx.Limits(max_keepalive_connections=0))

STATUS = {
    "usersTopic": "users",
    "accountsTopic": "accounts",
    "joinType": "left",
    "lastApplied": "2026-01-01T00:00:00Z",
    "generation": 1,
    "state": "live",
    "lag": 0,
    "requestId": None,
}


OWNER = "token-of-the-server-s-user"


def owned() -> Access:
    """A server without tokens, whose user has the token OWNER."""
    access = Access()
    access.know_owner(OWNER)
    return access


class Steering:
    """Stands where the orchestrator will: the reading calls need no more of it."""

    def status(self) -> dict[str, Any]:
        return STATUS

    def readiness(self) -> Readiness:
        return Readiness(True, "generation 1 is published")

    def metrics(self) -> Metrics:
        return Metrics(self.readiness())

    def topics(self) -> list[str]:
        return ["users"]

    def test_alert(self, name: str) -> None:
        raise NotImplementedError

    def example(self, topic: str, records: int) -> dict[str, Any]:
        """As of a topic with three records."""
        values = [{"userId": f"u{number}", "city": "Ulm"} for number in range(3)]
        return source_json(example(topic, values[:records]), Settings())

    def apply(self, request: ApplyRequest, requester: str) -> QueuedMessage:
        raise NotImplementedError

    @property
    def explainer(self) -> Explainer:
        raise TurnoutError("starting", "generation 1 is not ready yet, or is gone", "try again in some seconds")


class Configured(Steering):
    """An orchestrator that decides on files, and has nothing to build: what it applies is in force at once."""

    def __init__(self, **document: Any) -> None:
        self.configuration = Configuration(parse(document, Path("/etc/turnout"), {}))
        self.records: list[MessageRecord] = []
        """What the store would keep."""

    def apply(self, request: ApplyRequest, requester: str) -> QueuedMessage:
        record, parsed = record_of(self.configuration, request, requester)
        self.records.append(record)
        try:
            if isinstance(parsed, ControlRejected):
                raise parsed
            found = apply_of(self.configuration, parsed, self.configuration.first_plan())
            outcome = Outcome.APPLIED if found.changes and not request.dry_run else Outcome.UNCHANGED
            answer = Reply(outcome, "decided", 1, report={"changes": as_json(found.changes)})
            if outcome is Outcome.APPLIED:
                self.configuration.adopt(found.settings)
        except ControlRejected as error:
            answer = Reply(Outcome.REJECTED, str(error), 1, error, error.report)
        message = QueuedMessage(record, parsed, answer=answer)
        message.done.set()
        return message


@contextmanager
def serving(
    app: ASGIApp,
    port: int = 0,
    open_connections: OpenConnections | None = None,
    send_buffer: int | None = None,
    trusted_proxies: Sequence[str] = (),
) -> Iterator[str]:
    """Serve while the block runs; gives the address.

    Without `open_connections`, an idle one stays open, and a pong may come late: a slow machine takes its time.
    `send_buffer` is how many bytes the kernel takes for a client that does not read; left alone, it takes megabytes.
    """
    patient = OpenConnections(request_seconds=SECONDS, proxies=trusted_proxies)
    server = Server(app, "127.0.0.1", port, open_connections or patient, trusted_proxies)
    server._uvicorn.config.ws_ping_timeout = SECONDS
    if send_buffer is not None:  # its connections have the same
        server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.run(lambda _: ready.set())))
    thread.start()
    try:
        assert ready.wait(SECONDS)
        yield server.url
    finally:
        server.stop()
        thread.join(SECONDS)
        assert not thread.is_alive()


@contextmanager
def small_store(folder: Path) -> Iterator[Database]:
    """A store with three users and one swap."""
    database = Database.open(folder)
    try:
        with database.write() as cursor:
            cursor.execute("""
                CREATE SCHEMA g1;
                CREATE TABLE g1.versions AS SELECT 'users_ui' AS name, 5::BIGINT AS version;
                CREATE TABLE g1.users_ui (_id BIGINT, "userId" VARCHAR, name VARCHAR, age BIGINT);
                INSERT INTO g1.users_ui VALUES (1, 'u1', 'Ada', 36), (2, 'u2', 'Ben', NULL), (3, 'u3', '[b]Cy', 52);
                CREATE VIEW main.users_ui AS FROM g1.users_ui;
                UPDATE turnout.published SET generation = 1;
                INSERT INTO turnout.swaps (_id, ts, generation, "from", "to", outcome, "buildSeconds")
                VALUES (1, '2026-01-01 00:00:00+00', 1, NULL, 'users=users', 'applied', 0.25);
            """)
        yield database
    finally:
        database.close()


def application(database: Database, max_viewers: int = 500) -> ASGIApp:
    """The real application over a store."""
    return create_app(patient(database, max_viewers=max_viewers))


def patient(database: Database, **limits: Any) -> Services:
    """What an application is made of. SQL has a low priority: a busy machine takes its time."""
    given = ServerSettings(**{"query_timeout_seconds": SECONDS, **limits})
    return Services(database, Steering(), limits=given)  # type: ignore[arg-type,unused-ignore]
