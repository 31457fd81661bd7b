"""A real schema registry (Apicurio Registry with its Confluent interface) in a separate process.

Its schemas are stored in a file, so that they survive a restart.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from child_processes import SHORT_LIVED, ending_with_us
from http_server import HTTP
from turnout.java.jars import Jar, cache_folder, fetch
from turnout.java.runtime import find_java
from turnout.local.broker import HOST, free_port
from turnout.testing import patience, wait_until

# The last release that runs on Java 17.
DISTRIBUTION = Jar(
    "io.apicurio",
    "apicurio-registry-app",
    "3.0.9",
    size=108860403,
    sha256="2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
    ending="-all.tar.gz",
)
STARTS = 5
"""The maximum number of starts of a registry that ends during its start."""
_OPTIONS = ("-Xmx256m", *SHORT_LIVED)


class ApicurioRegistry:
    """A registry with a fixed address, which can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.port = free_port()
        self._log = folder / "registry.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self.url = f"http://{HOST}:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        self._starts = 0
        self._launch()
        wait_until(self._answers, interval=0.2, what=lambda: f"the registry; its log ends with\n{self._end_of_log()}")

    def _launch(self) -> None:
        self._starts += 1
        settings = {
            "quarkus.http.host": HOST,
            "quarkus.http.port": str(self.port),
            "apicurio.storage.kind": "sql",
            "apicurio.storage.sql.kind": "h2",
            "apicurio.datasource.url": f"jdbc:h2:file:{self._folder / 'schemas'}",
        }
        given = [f"-D{name}={value}" for name, value in settings.items()]
        program = installed() / f"{DISTRIBUTION.artifact}-{DISTRIBUTION.version}-runner.jar"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(find_java()), *_OPTIONS, *given, "-jar", str(program)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **ending_with_us(),
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(patience())
            self._process = None

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Register a schema, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        document = {"schema": text, "schemaType": kind, "references": list(references)}
        response = HTTP.post(f"{self.url}/subjects/{subject}/versions", json=document)
        response.raise_for_status()
        return int(response.json()["id"])

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            # The registry gives up if its database takes seconds to open, or if a foreign connection uses its port
            # for a moment.
            assert self._starts < STARTS, f"the registry ended; its log ends with\n{self._end_of_log()}"
            self._launch()
        try:
            return HTTP.get(f"{self.url}/subjects").status_code == 200
        except httpx.HTTPError:
            return False

    def _end_of_log(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def installed() -> Path:
    """Return the folder of the registry's files, which are fetched, verified and unpacked once for all runs."""
    [archive] = fetch([DISTRIBUTION], cache_folder())
    folder = archive.parent / "unpacked"
    with archive.with_name(".unpacking").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = folder.with_name(f"unpacked.{os.getpid()}.part")
            shutil.rmtree(part, ignore_errors=True)
            with tarfile.open(archive) as files:
                # Python before 3.11.4 has no extraction filters; the hash of the archive was verified.
                files.extraction_filter = getattr(tarfile, "data_filter", None)
                files.extractall(part)
            part.rename(folder)
    return folder
