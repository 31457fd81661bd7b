"""A test that needs root is run by root, else as root of a user namespace, else not, which is told.

A test that changes the network is run in one of its own, by root too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import namespaces

NEEDS_ROOT = """
import os, pytest
from pathlib import Path

@pytest.fixture
def costly():
    assert "FAKE_ROOT" in os.environ, "only where the test is run"

@pytest.mark.namespaces({kinds})
def test_it(tmp_path, costly):
    Path("{ran}").write_text(str(tmp_path))
"""
PREPARES = "#!/bin/sh\n"
# Root of the test's machine, or of a namespace, is who has FAKE_ROOT.
REFUSES = "#!/bin/sh\nexit 1\n"
FOR_ROOT = """#!/bin/sh
[ -n "$FAKE_ROOT" ] || case "$*" in *--map-root-user*) ;; *) exit 1;; esac
while case "$1" in --*) true;; *) false;; esac; do shift; done
FAKE_ROOT=1 exec "$@"
"""


def run(folder: Path, unshare: str, kinds: str = '"mount"', **environ: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_root.py").write_text(NEEDS_ROOT.format(ran=folder / "ran", kinds=kinds))
    (folder / "pytest.ini").write_text("[pytest]\n")
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("unshare", unshare), ("mount", PREPARES), ("ip", PREPARES)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    changed = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(Path(namespaces.__file__).parent)}
    changed |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "namespaces", "CI": ""}
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", "test_root.py"]
    return subprocess.run(
        command, cwd=folder, env=os.environ | changed | environ, capture_output=True, text=True, check=False
    )


def test_test_of_root_is_run_where_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, FOR_ROOT, FAKE_ROOT="1")
    assert done.returncode == 0, done.stdout
    assert "inside" not in (tmp_path / "ran").read_text()


def test_test_with_a_network_is_run_once_in_a_namespace_by_root_too(tmp_path: Path) -> None:
    done = run(tmp_path, FOR_ROOT, '"mount", "net"', FAKE_ROOT="1")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout and "/inside/" in (tmp_path / "ran").read_text()


def test_test_of_an_ordinary_user_is_run_once_in_a_namespace(tmp_path: Path) -> None:
    done = run(tmp_path, FOR_ROOT)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout and "/inside/" in (tmp_path / "ran").read_text()


@pytest.mark.parametrize(("ci", "code", "said"), [("", 0, "SKIPPED [1]"), ("true", 1, "CI runs all tests, but: ")])
def test_test_that_cannot_be_run_is_told_and_fails_ci(tmp_path: Path, ci: str, code: int, said: str) -> None:
    done = run(tmp_path, REFUSES, CI=ci)
    assert done.returncode == code, done.stdout
    assert said in done.stdout and "not run: mount namespaces may not be made here" in done.stdout
    assert not (tmp_path / "ran").exists()
