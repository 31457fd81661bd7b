"""A Turnout in the process of the test, with the shared Spark and a real server.

It starts 8 s faster than a process, so it is used unless a test kills the process or inspects it from outside.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from http_server import serving
from in_process_orchestrator import Orchestrated
from turnout.config import Settings, load, sent
from turnout.config.secrets import hidden_texts, masked
from turnout.logs import TextLines
from turnout.serve.access import Access
from turnout.serve.app import Services, create_app
from turnout.testing import patience
from turnout_process import RunningTurnout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def served_on(settings: Settings, session: SparkSession, port: int = 0) -> Iterator[tuple[Orchestrated, str]]:
    """Run a server with these settings during a `with` block, and yield its address."""
    running = Orchestrated(settings, session)
    with ExitStack() as ends:
        ends.callback(running.database.close)
        ends.callback(running.orchestrator.stop)
        services = Services(running.database, running.orchestrator)
        access = Access.of(settings)
        access.know_owner(sent.make_local_token(settings.data_dir))
        url = ends.enter_context(serving(create_app(services, access), port))
        running.orchestrator.start()
        yield running, url


class ServedTurnout(RunningTurnout):
    """A Turnout with the methods of a separate process. Its log is a file; Spark's folder is that of the session."""

    def __init__(self, folder: Path, session: SparkSession, bootstrap: str = "", **sections: Any) -> None:
        super().__init__(folder, bootstrap, **sections)
        self._session = session
        self._life: ExitStack | None = None

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def spark_dir(self) -> Path:
        return Path(self._session.conf.get("spark.local.dir") or "")

    @property
    def running(self) -> bool:
        return self._life is not None

    def start(self, *, ready: bool = True) -> Self:
        with ExitStack() as life:
            settings = load(self.config, {})
            self._log_to_file(life, hidden_texts(settings))
            life.enter_context(served_on(settings, self._session, self.port))
            self.http = life.enter_context(httpx.Client(base_url=self.url, timeout=patience()))
            self._life = life.pop_all()
        if ready:
            self.wait_ready()
        return self

    def _log_to_file(self, life: ExitStack, secrets: set[str]) -> None:
        handler = logging.FileHandler(self.log_file)
        handler.setFormatter(TextLines(partial(masked, values=secrets)))
        logger = logging.getLogger("turnout")
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        life.callback(handler.close)
        life.callback(logger.setLevel, before)
        life.callback(logger.removeHandler, handler)

    def close(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.close()
