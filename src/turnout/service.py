"""The whole process of `turnout run`: store, Spark, orchestrator and HTTP server, from start to end."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from turnout.config import Settings, sent
from turnout.config.settings import SparkSettings
from turnout.config.values import is_loopback
from turnout.errors import TurnoutError
from turnout.schemas.source_schemas import schemas_of
from turnout.serve.access import Access
from turnout.serve.app import Server, create_app
from turnout.serve.connections import OpenConnections, allow_open_files
from turnout.serve.read_api import Services
from turnout.spark.jvm.engine import Engine
from turnout.store.database import Database
from turnout.store.query.sql_worker import WithoutPandas
from turnout.swap.orchestrator import Orchestrator

log = logging.getLogger("turnout")

TEMPORARY = "tmp"
"""The folder for temporary files of this process, in the data folder."""

_OTHERS = 0o077


def run(settings: Settings, *, insecure: bool = False, on_ready: Callable[[str], None] | None = None) -> None:
    """Run until SIGINT or SIGTERM; `on_ready` gets the address once the server listens."""
    _check_address(settings, insecure)
    access = Access.of(settings)
    schemas_of(settings)  # reports a file without a schema before anything is started
    allow_open_files(settings.server.max_connections)
    keep_private(settings.data_dir, settings.spark)
    with without_pandas():
        database = Database.open(settings.data_dir, settings.store.memory_limit)
        # The store is open, so no other process uses the folder.
        if settings.access is None:
            access.know_owner(sent.make_local_token(settings.data_dir))
        with _temporary_files(settings.data_dir / TEMPORARY):
            _run(settings, access, database, on_ready)


def _run(settings: Settings, access: Access, database: Database, on_ready: Callable[[str], None] | None) -> None:
    engine = Engine(settings.spark, settings.data_dir / "spark")
    orchestrator = Orchestrator(settings, database, engine)
    try:
        services = Services(database, orchestrator)
        app = create_app(services, access)
        where = services.settings.server
        open_connections = OpenConnections(where)

        def adopt(settings: Settings) -> None:
            allow_open_files(settings.server.max_connections)
            open_connections.limits = settings.server

        orchestrator.configuration.listen(adopt)
        server = Server(app, where.host, where.port, open_connections)
        orchestrator.start()
        asyncio.run(_serve(server, on_ready))
    finally:
        # Every part ends in a bounded time; the store last, because the others write to it.
        orchestrator.stop(timeout_seconds=1.5)
        engine.stop(timeout_seconds=0.7)
        try:
            database.close()
        except TurnoutError as error:
            # Not raised: Python would end by itself then, and aborts where a thread is in a statement of DuckDB.
            log.warning("the store is not closed, what is committed is kept: %s", error.message)


def keep_private(data_dir: Path, spark: SparkSettings) -> None:
    """Only the user of the process reads `data_dir`: it is 700 and its files are 600, also those that come later."""
    if spark.shared_dir is None or "://" in spark.shared_dir:
        os.umask(_OTHERS)  # a folder that hosts of a cluster share is read there by other users
    data_dir.mkdir(parents=True, exist_ok=True)
    try:
        for path in (data_dir, *data_dir.rglob("*")):
            mode = path.lstat().st_mode
            if mode & _OTHERS and not path.is_symlink():
                path.chmod(mode & ~_OTHERS & 0o7777)
    except OSError as error:
        # A volume that belongs to another user, say: it is for its owner to protect.
        log.warning(
            "the rights of data_dir cannot be set (%s): make sure that no other user can read %s", error, data_dir
        )


@contextlib.contextmanager
def without_pandas() -> Iterator[None]:
    """For the whole process: nothing that is installed beside Turnout makes its start longer."""
    finder = WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def _temporary_files(folder: Path) -> Iterator[None]:
    """Make temporary files in `folder`, not in the system's: the next start removes what a crash leaves."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(server: Server, on_ready: Callable[[str], None] | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    await server.run_until_stop(lambda _: on_ready(server.url) if on_ready else None)


def _check_address(settings: Settings, insecure: bool) -> None:
    """Only this machine may connect, unless tokens protect the server or its owner says otherwise."""
    host = settings.server.host
    if is_loopback(host):
        return
    if settings.access is not None:
        log.warning(
            "server.host is %s: tokens and rows cross the network as plain HTTP; put a proxy with TLS in front", host
        )
    elif not insecure:
        raise TurnoutError(
            "insecure_address",
            f"server.host is {host}, which others can reach, and nothing protects it",
            "listen on 127.0.0.1, describe tokens at access:, or start with --insecure",
        )
