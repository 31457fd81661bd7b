"""An orchestrator in the test's process with a real server in front of it: a `turnout run` but for the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import httpx

from orchestrated import Orchestrated, running_on
from running import RunningTurnout
from serving import serving
from turnout.config import Settings, load
from turnout.serve.app import Services, create_app
from turnout.testing import patience, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def served_on(settings: Settings, session: SparkSession) -> Iterator[tuple[Orchestrated, str]]:
    """Serve by these settings until the block ends; the address is where it is served."""
    with running_on(settings, session) as running:
        configuration = running.orchestrator.configuration
        services = Services(running.database, running.orchestrator)
        services.adopt(configuration.settings)
        with serving(create_app(services, configuration=configuration)) as url:
            yield running, url


class ServedTurnout(RunningTurnout):
    """To be asked as one in a process of its own is, but not to be killed."""

    def __init__(self, session: SparkSession, folder: Path, bootstrap: str, **sections: Any) -> None:
        super().__init__(folder, bootstrap, **sections)
        self._session = session
        self._until_closed = ExitStack()

    def start(self, *, ready: bool = True) -> Self:
        _, url = self._until_closed.enter_context(served_on(load(self.config, {}), self._session))
        self.http.close()
        self.http = httpx.Client(base_url=url, timeout=patience())
        return self

    def wait_ready(self) -> None:
        wait_until(lambda: self.http.get("/readyz").is_success, what=lambda: self.http.get("/readyz").text)

    def close(self) -> None:
        super().close()
        self._until_closed.close()
