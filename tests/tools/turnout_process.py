"""A real `turnout run` in a separate process, for tests that start, query, kill and restart it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
import yaml

from child_processes import LeftBehind, ending_with_us
from turnout.config.sent import TOKEN_FILE
from turnout.local.broker import free_port
from turnout.testing import patience, wait_until

ASKED_SECONDS = 0.15
"""The pause between two polls over HTTP, each of which costs both sides some milliseconds of a core."""


def lives(process: psutil.Process) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class RunningTurnout:
    """A Turnout with a fixed data folder and port, which can be stopped and started."""

    def __init__(self, folder: Path, bootstrap: str, **sections: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.data_dir = Path(sections.get("data_dir", folder / "data"))
        self.log_file = folder / "turnout.log"
        document = {
            "kafka": {"bootstrap_servers": bootstrap},
            # All viewers of tests have the same address.
            "server": {"port": self.port, "max_viewers_per_client": 500, "query_timeout_seconds": patience()},
            "data_dir": str(self.data_dir),
            "spark": {"driver_memory": "1g"},
            **sections,
        }
        self.config = folder / "turnout.yaml"
        self.config.write_text(yaml.safe_dump(document))
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, timeout=patience())
        self.command = [sys.executable, "-m", "turnout"]
        self._process: subprocess.Popen[bytes] | None = None
        self._left_behind: list[LeftBehind] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def spark_dir(self) -> Path:
        """The folder in which its Spark writes."""
        return self.data_dir / "spark"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, *, ready: bool = True) -> Self:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.command, "run", "-c", str(self.config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                **ending_with_us(),
            )
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        try:
            wait_until(lambda: self.answer("/readyz") == 200, interval=ASKED_SECONDS, what="readiness")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {self.reason()!r}; log:\n{self.log()}") from None

    def wait_answer(self) -> None:
        """Wait until the server answers; Spark may still be starting."""
        wait_until(lambda: self.answer("/healthz") == 200, interval=ASKED_SECONDS, what="an answer")

    def answer(self, path: str) -> int | None:
        """Return the status of a call; None if the server does not answer."""
        answer = self._asked(path)
        return None if answer is None else answer.status_code

    def _asked(self, path: str) -> httpx.Response | None:
        assert self.running, f"turnout has ended:\n{self.log()}"
        try:
            return self.http.get(path)
        except httpx.HTTPError:
            return None

    def reason(self) -> str:
        """Return why the server is not ready; empty if it is ready or does not answer yet."""
        answer = self._asked("/readyz")
        if answer is None or answer.status_code != 503:
            return ""
        message: str = answer.json()["error"]["message"]
        return message

    def get(self, path: str) -> Any:
        response = self.http.get(path)
        response.raise_for_status()
        return response.json()

    def rows(self, table: str, **query: Any) -> list[dict[str, Any]]:
        response = self.http.get(f"/api/tables/{table}/rows", params={"limit": 100_000, **query})
        response.raise_for_status()
        rows: list[dict[str, Any]] = response.json()["rows"]
        return rows

    def total(self, table: str, **query: Any) -> int:
        response = self.http.get(f"/api/tables/{table}/rows", params={"limit": 0, **query})
        response.raise_for_status()
        return int(response.json()["total"])

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get("/api/status")
        return status

    def put_config(self, text: str) -> httpx.Response:
        """Send a configuration with the token of the server's user."""
        token = (self.data_dir / TOKEN_FILE).read_text()
        return self.http.put("/api/config", content=text, headers={"Authorization": f"Bearer {token}"})

    def log(self) -> str:
        return self.log_file.read_text()[-5000:] if self.log_file.exists() else ""

    def java(self) -> psutil.Process:
        """Return the JVM of its Spark, which must be running."""
        javas = []
        for child in psutil.Process(self.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                javas += [child] if child.name() == "java" else []
        [java] = javas
        return java

    def kill(self) -> None:
        """Kill the process as a power failure would, without cleanup."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        self._note_killed()

    def wait_killed(self) -> None:
        """Wait until the process has been killed by a signal."""
        assert self._process is not None
        process = self._process
        wait_until(lambda: process.poll() is not None, what=lambda: f"the kill; log:\n{self.log()}")
        # The second value is the exit code of a shell that started the process.
        assert process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), self.log()
        self._note_killed()

    def _note_killed(self) -> None:
        """Note the killed process, because its JVM ends later, possibly after the tests."""
        assert self._process is not None
        self._left_behind.append(LeftBehind(self._process.pid))

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self._process is not None
        os.kill(self.pid, number)
        return self._process.wait(patience())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()
        if self.running:
            self.stop()
        for left in self._left_behind:
            left.kill()
