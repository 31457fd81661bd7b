"""An orchestrator in the process of the test, with the shared Spark, for tests that inspect its objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.config import Settings, SparkSettings, parse
from turnout.spark.jvm.engine import Engine
from turnout.store.database import Database
from turnout.store.query.windows import Window, read_window
from turnout.swap.control_queue import Reply
from turnout.swap.orchestrator import Orchestrator
from turnout.testing import patience, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedEngine(Engine):
    """The Spark that all tests share; it is neither started nor ended here."""

    def __init__(self, session: SparkSession) -> None:
        super().__init__(SparkSettings(), Path())
        self._shared = session

    def session(self) -> SparkSession:
        return self._shared


class Orchestrated:
    """A running orchestrator and its store."""

    def __init__(self, settings: Settings, session: SparkSession) -> None:
        self.settings = settings
        self.database = Database.open(settings.data_dir)
        self.orchestrator = Orchestrator(settings, self.database, SharedEngine(session))

    def send(self, **message: Any) -> Reply:
        """Submit a control message, and wait for its outcome."""
        queued = self.orchestrator.queue.submit(json.dumps(message), "test")
        queued.done.wait(patience())
        assert queued.answer is not None, f"no outcome: {message}"
        return queued.answer

    def rows(self, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = read_window(self.database, Window(table)).rows.to_pylist()
        return rows

    def wait_ready(self) -> None:
        wait_until(lambda: self.orchestrator.readiness().ready, what="readiness")


@contextmanager
def running_on(settings: Settings, session: SparkSession) -> Iterator[Orchestrated]:
    """Run an orchestrator with these settings during a `with` block."""
    running = Orchestrated(settings, session)
    running.orchestrator.start()
    try:
        running.wait_ready()
        yield running
    finally:
        running.orchestrator.stop()
        running.database.close()


@contextmanager
def orchestrated(folder: Path, session: SparkSession, bootstrap: str, **sections: Any) -> Iterator[Orchestrated]:
    """Run an orchestrator in `folder` during a `with` block."""
    document = {"kafka": {"bootstrap_servers": bootstrap}, "data_dir": str(folder / "data"), **sections}
    with running_on(parse(document, folder, {}), session) as running:
        yield running
