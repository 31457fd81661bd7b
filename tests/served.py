"""A Turnout in the test's own process, on the shared Spark, with a real server: asked as a `turnout run` is asked."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from orchestrated import Orchestrated
from running import RunningTurnout
from serving import serving
from turnout.config import load
from turnout.config.secrets import hidden_texts
from turnout.logs import TextLines
from turnout.serve.app import Services, create_app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SELDOM = 0.2
"""How often it is asked for what comes with a batch: question and answer take the time of the test's process."""


class ServedTurnout(RunningTurnout):
    """One life of it. Its log is a file, as that of a process; Spark's folder is that of the session."""

    def __init__(self, folder: Path, session: SparkSession, bootstrap: str = "", **sections: Any) -> None:
        super().__init__(folder, bootstrap, **sections)
        self._session = session
        self._ends = contextlib.ExitStack()

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def spark_dir(self) -> Path:
        return Path(self._session.conf.get("spark.local.dir") or "")

    @property
    def running(self) -> bool:
        return True

    def start(self, *, ready: bool = True) -> Self:
        with contextlib.ExitStack() as ends:
            settings = load(self.config)
            self._log_to_file(ends, hidden_texts(settings))
            inside = Orchestrated(settings, self._session)
            ends.callback(inside.database.close)
            ends.callback(inside.orchestrator.stop)
            configuration = inside.orchestrator.configuration
            services = Services(inside.database, inside.orchestrator)
            services.adopt(configuration.settings)
            ends.enter_context(serving(create_app(services, configuration=configuration), self.port))
            inside.orchestrator.start()
            if ready:
                self.wait_ready()
            self._ends = ends.pop_all()
        return self

    def _log_to_file(self, ends: contextlib.ExitStack, secrets: set[str]) -> None:
        handler = logging.FileHandler(self.log_file)
        handler.setFormatter(TextLines(secrets))
        logger = logging.getLogger("turnout")
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        ends.callback(handler.close)
        ends.callback(logger.setLevel, before)
        ends.callback(logger.removeHandler, handler)

    def close(self) -> None:
        self.http.close()
        self._ends.close()
