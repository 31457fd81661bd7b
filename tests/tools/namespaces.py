"""What needs root: tests that mount file systems or make networks, and what is told where they cannot be run.

`@pytest.mark.namespaces("mount")`: where this process may not mount, the test is run once more in a process of its own,
which is root in a user namespace. Where there are no such namespaces either, the summary has a line of what was not
run, and with CI in the environment that is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from functools import cache
from typing import NoReturn

import pytest

# `ip netns` keeps its names below /run, which belongs to root; a new network has no loopback interface yet.
_PREPARED = """
case "$1" in *net*) mount -t tmpfs none /run && ip link set lo up || exit 99;; esac
shift; exec "$@"
"""
_AS_USER = "--map-root-user"
_SBIN = os.pathsep.join(("/usr/sbin", "/sbin"))


@cache
def unshare(*kinds: str) -> tuple[str, ...] | None:
    """How a command gets namespaces of its own of these kinds (mount, net), as root of them; None where it cannot."""
    for more in ((), (_AS_USER,)):
        command = ("unshare", *(f"--{kind}" for kind in kinds), *more)
        try:
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
        except OSError:
            return None
    return None


def not_run(why: str) -> NoReturn:
    """End a test that cannot be run on this machine: one line of the summary."""
    pytest.skip(f"not run: {why}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "namespaces(*kinds): needs to be root of namespaces of these kinds (mount, net)")
    os.environ["PATH"] += os.pathsep + _SBIN  # ordinary users often do not have these


def _kinds(item: pytest.Item) -> tuple[str, ...]:
    """The namespaces that a test needs and that this process cannot make for it."""
    mark = item.get_closest_marker("namespaces")
    return () if mark is None or _AS_USER not in (unshare(*mark.args) or _AS_USER) else mark.args


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is run elsewhere has its broker and its Spark there."""
    for item in items:
        if isinstance(item, pytest.Function) and _kinds(item):
            item.fixturenames = ["tmp_path"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    kinds = _kinds(pyfuncitem)
    if not kinds:
        return None
    command = unshare(*kinds)
    if command is None:
        not_run(f"{' and '.join(kinds)} namespaces may not be made here, not even by unshare {_AS_USER}")
    _run_inside(command, kinds, pyfuncitem)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was not run is a failure where CI is in the environment."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome, report.longrepr = "failed", f"CI runs all tests, but: {report.longrepr}"
    return report


def _run_inside(command: Sequence[str], kinds: Sequence[str], item: pytest.Function) -> None:
    """Run one test in another process, with a broker and a Spark of its own."""
    folder = item.funcargs["tmp_path"]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", f"{folder}/inside"]
    prepared = ["sh", "-c", _PREPARED, "prepared", " ".join(kinds)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [*command, *prepared, *pytest_, item.nodeid],
        cwd=item.config.rootpath,
        env=environ | {"CI": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"as root of its own namespaces:\n{done.stdout}\n{done.stderr}"
