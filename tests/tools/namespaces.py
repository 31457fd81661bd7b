"""Support for tests that need root, because they mount file systems or create networks.

`@pytest.mark.namespaces("mount")`: if this process may not mount, the test runs in another process, which is root in a
user namespace. If there are no user namespaces either, the summary lists the test as not run; with CI in the
environment, it fails. A test with "net" always runs in another process, in a network of its own: Chromium ends the
requests of all pages when the network of the machine changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from functools import cache
from typing import NoReturn

import pytest

# `ip netns` stores names below /run, which belongs to root; the loopback interface of a new network is down.
_PREPARED = """
case "$1" in *net*) mount -t tmpfs none /run && ip link set lo up || exit 99;; esac
shift; exec "$@"
"""
_AS_USER = "--map-root-user"
_INSIDE = "TESTS_INSIDE_NAMESPACES"
_SBIN = os.pathsep.join(("/usr/sbin", "/sbin"))


@cache
def unshare(*kinds: str) -> tuple[str, ...] | None:
    """Return the command prefix for new namespaces of these kinds (mount, net) as root; None if it is not allowed."""
    for more in ((), (_AS_USER,)):
        command = ("unshare", *(f"--{kind}" for kind in kinds), *more)
        try:
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
        except OSError:
            return None
    return None


def not_run(why: str) -> NoReturn:
    """Skip a test that cannot run on this machine, with a line in the summary."""
    pytest.skip(f"not run: {why}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "namespaces(*kinds): needs to be root of namespaces of these kinds (mount, net)")
    os.environ["PATH"] += os.pathsep + _SBIN  # ordinary users often do not have these


def _kinds(item: pytest.Item) -> tuple[str, ...]:
    """Return the namespaces in which a test runs in another process; none if it runs in this one."""
    mark = item.get_closest_marker("namespaces")
    if mark is None or os.environ.get(_INSIDE):
        return ()
    return mark.args if "net" in mark.args or _AS_USER in (unshare(*mark.args) or _AS_USER) else ()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Remove fixtures from tests that run in another process, which has its own broker and Spark."""
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
    """Turn skipped tests into failures if CI is in the environment."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome, report.longrepr = "failed", f"CI runs all tests, but: {report.longrepr}"
    return report


def _run_inside(command: Sequence[str], kinds: Sequence[str], item: pytest.Function) -> None:
    """Run a test in another process, with its own broker and Spark."""
    folder = item.funcargs["tmp_path"]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", f"{folder}/inside"]
    prepared = ["sh", "-c", _PREPARED, "prepared", " ".join(kinds)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [*command, *prepared, *pytest_, item.nodeid],
        cwd=item.config.rootpath,
        env=environ | {"CI": "1", _INSIDE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"as root of its own namespaces:\n{done.stdout}\n{done.stderr}"
