"""Real servers on free ports, in separate threads, for tests of clients."""

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

from fake_orchestrator import FakeOrchestrator
from turnout.config import Settings
from turnout.config.configuration import Configuration
from turnout.config.server import ServerSettings
from turnout.serve.access import Access
from turnout.serve.app import Server, Services, create_app
from turnout.serve.connections import OpenConnections
from turnout.store.database import Database
from turnout.testing import patience

SECONDS = patience()
"""The time limit of every wait."""

# One client for all calls, without TLS, because loading the machine's certificates takes longer than a call.
# It keeps no connections, because servers are started and stopped.
HTTP = httpx.Client(timeout=SECONDS, verify=False, limits=httpx.Limits(max_keepalive_connections=0))

OWNER = "token-of-the-server-s-user"


def owned() -> Access:
    """Return the access of a server without tokens, whose user has the token OWNER."""
    access = Access()
    access.know_owner(OWNER)
    return access


@contextmanager
def serving(
    app: ASGIApp,
    port: int = 0,
    open_connections: OpenConnections | None = None,
    send_buffer: int | None = None,
    trusted_proxies: Sequence[str] = (),
) -> Iterator[str]:
    """Run a server during a `with` block, and yield its address.

    Without `open_connections`, idle connections stay open and pongs may be late, for slow machines. `send_buffer` is
    the number of bytes that the kernel buffers for a client that does not read; by default it is megabytes.
    """
    patient = OpenConnections(ServerSettings(trusted_proxies=tuple(trusted_proxies)), SECONDS)
    server = Server(app, "127.0.0.1", port, open_connections or patient)
    server.config.ws_ping_timeout = SECONDS
    if send_buffer is not None:  # connections inherit it
        server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.run_until_stop(lambda _: ready.set())))
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
    """Yield a store with three users and one swap."""
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
    """Return the real application with a store."""
    return create_app(patient(database, max_viewers=max_viewers))


def patient(database: Database, orchestrator: FakeOrchestrator | None = None, **limits: Any) -> Services:
    """Return the services of an application, with long query limits, because SQL has a low priority."""
    given = ServerSettings(**{"query_timeout_seconds": SECONDS, **limits})
    orchestrator = orchestrator or FakeOrchestrator()
    orchestrator.configuration = Configuration(Settings(server=given))
    return Services(database, orchestrator)
