"""What a stranger reads where `make setup` cannot go on: one line with the remedy."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from explain import NEEDED_BYTES, why
from turnout.local.broker import free_port

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


class Refusing(BaseHTTPRequestHandler):
    """A registry that answers, with an error."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def registry() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("kind", "variable"), [("python", "PIP_INDEX_URL"), ("node", "npm_config_registry")])
def test_registry_that_cannot_be_reached_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, kind: str, variable: str
) -> None:
    port = free_port()
    monkeypatch.setenv(variable, f"http://me:secret@127.0.0.1:{port}/simple/")
    said = why(kind)
    assert said.startswith(f"error: http://127.0.0.1:{port}/simple/ cannot be reached (")
    assert said.endswith(f"or set {variable} to a registry that this machine reaches")
    assert "\n" not in said


def test_registry_that_answers_is_not_blamed(monkeypatch: pytest.MonkeyPatch, registry: int) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{registry}/")
    assert why("python").endswith(f"although http://127.0.0.1:{registry}/ answers: see above")


def test_disk_without_room_is_told() -> None:
    assert NEEDED_BYTES < 10**9
    said = why("python", needed_bytes=10**18)
    assert said.startswith("error: the disk is full: ") and said.endswith("5 GB are enough for everything")


def test_old_python_is_told_with_the_remedy(tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", "--no-print-directory", "venv", f"PYTHON={old}"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {old} is not Python 3.11 or newer; give one that is: make setup PYTHON=")


def test_java_home_without_java_is_told_in_one_line() -> None:
    # `-o`: what is installed here is taken as it is.
    command = ["make", "--no-print-directory", "-o", ".venv/.installed", "java"]
    # `make test` tells its children that they are inside of it.
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    environ = outside | {"JAVA_HOME": "/nowhere"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: JAVA_HOME is /nowhere, which has no bin/java that can be run; install Java 17")
    assert done.returncode and all(line.startswith("make: ***") for line in rest), rest
