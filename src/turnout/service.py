"""The whole process of `turnout run`: store, Spark, orchestrator and HTTP server, from start to end."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from turnout.config import Settings
from turnout.errors import TurnoutError
from turnout.orchestrator import Orchestrator
from turnout.server.api import Services
from turnout.server.app import Server, create_app
from turnout.store.database import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("turnout")


def run(settings: Settings, *, insecure: bool = False, on_ready: Callable[[str], None] | None = None) -> None:
    """Run until SIGINT or SIGTERM; `on_ready` gets the address once the server listens."""
    _check_address(settings, insecure)
    database = Database.open(settings.data_dir, settings.store.memory_limit)
    sessions: list[SparkSession] = []

    def start_spark() -> SparkSession:
        from turnout.spark.session import start_session

        if not sessions:
            sessions.append(start_session(settings.spark, settings.data_dir / "spark"))
        return sessions[0]

    orchestrator = Orchestrator(settings, database, start_spark)
    try:
        wait_seconds = settings.swap.catch_up_timeout_seconds + 60
        app = create_app(Services(database, orchestrator, control_wait_seconds=wait_seconds))
        server = Server(app, settings.server.host, settings.server.port)
        orchestrator.start()
        asyncio.run(_serve(server, on_ready))
    finally:
        _end(orchestrator, sessions, database)


async def _serve(server: Server, on_ready: Callable[[str], None] | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    await server.run(lambda _: on_ready(server.url) if on_ready else None)


def _end(orchestrator: Orchestrator, sessions: list[SparkSession], database: Database) -> None:
    """Every part ends in a bounded time; the store last, because the others write to it."""
    orchestrator.stop(timeout_seconds=1.5)
    if sessions:
        from turnout.spark.session import stop_session

        stop_session(sessions[0], timeout_seconds=0.7)
    database.close()


def _check_address(settings: Settings, insecure: bool) -> None:
    """Only this machine may connect, unless its owner says otherwise. Tokens that nobody checks protect nothing."""
    if insecure:
        return
    if settings.access is not None:
        raise TurnoutError(
            code="access_not_checked",
            message="access: is set, but this version does not check tokens yet",
            hint="remove access: and listen on 127.0.0.1, or start with --insecure to serve without them",
        )
    host = settings.server.host
    if not _is_loopback(host):
        raise TurnoutError(
            code="insecure_address",
            message=f"server.host is {host}, which others can reach, and nothing protects it",
            hint="listen on 127.0.0.1, or start with --insecure",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
