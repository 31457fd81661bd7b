"""A Turnout in the test's own process, on the shared Spark: store, orchestrator and HTTP server, as `turnout run` has
them. It costs a tenth of a process, so it is for all that neither kills one nor looks at it from outside."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import httpx

from orchestrated import Orchestrated
from running import AskedTurnout
from serving import serving
from turnout.config import parse
from turnout.serve.app import Services, create_app
from turnout.testing import patience

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ServedTurnout(AskedTurnout):
    """One data folder, over any number of lives; each has an address of its own."""

    def __init__(self, folder: Path, session: SparkSession, bootstrap: str, **sections: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "kafka": {"bootstrap_servers": bootstrap},
            "data_dir": str(folder / "data"),
            # All viewers of tests come from one address.
            "server": {"max_viewers_per_client": 500},
            **sections,
        }
        self.log_file = folder / "turnout.log"
        self.url = ""
        self._settings = parse(document, folder, {})
        self._session = session
        self._life: ExitStack | None = None

    @property
    def running(self) -> bool:
        return self._life is not None

    def start(self, *, ready: bool = True) -> Self:
        with ExitStack() as life:
            running = Orchestrated(self._settings, self._session)
            life.callback(running.database.close)
            life.callback(running.orchestrator.stop)
            configuration = running.orchestrator.configuration
            services = Services(running.database, running.orchestrator)
            services.adopt(configuration.settings)
            self._log_to_file(life)
            self.url = life.enter_context(serving(create_app(services, configuration=configuration)))
            self.http = life.enter_context(httpx.Client(base_url=self.url, timeout=patience()))
            running.orchestrator.start()
            self._life = life.pop_all()
        if ready:
            self.wait_ready()
        return self

    def _log_to_file(self, life: ExitStack) -> None:
        handler = logging.FileHandler(self.log_file)
        log = logging.getLogger("turnout")
        log.addHandler(handler)
        life.callback(handler.close)
        life.callback(log.removeHandler, handler)

    def close(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
