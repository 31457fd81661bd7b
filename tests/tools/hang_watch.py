"""End a test that hangs: its processes compute nothing although the machine is idle.

A fixed limit that suits a busy machine would let a test hang for minutes on an idle one. So only the time counts in
which the machine was idle and the test did nothing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from processor_time import Tree
from turnout.testing import patience

LIMIT_SECONDS = 90.0
_LOOK_SECONDS = 5.0
_BUSY_CORES = 0.4
"""The maximum processor use of a test that only polls, with its waiting processes; real work uses more."""
_FREE_CORES = 0.6
_SIGNAL = signal.SIGUSR2


class Look(NamedTuple):
    """A sample: the running test, its processor seconds, and the idle seconds of the machine."""

    test: str
    used: float
    idle: float

    def is_still_since(self, before: Look, seconds: float) -> bool:
        """Whether the test did nothing in this time although the machine was idle."""
        works = self.used - before.used > _BUSY_CORES * seconds
        could = self.idle - before.idle > _FREE_CORES * seconds
        return bool(self.test) and self.test == before.test and could and not works


class Watch(threading.Thread):
    """A thread that watches the test of the main thread."""

    def __init__(self, limit_seconds: float, look_seconds: float = _LOOK_SECONDS) -> None:
        super().__init__(name="stillness", daemon=True)
        self._limit, self._every = limit_seconds, look_seconds
        self._tree = Tree()
        self._ended = threading.Event()
        self.test = ""
        """The name of the running test."""

    def run(self) -> None:
        still, last = 0.0, self._look()
        while not self._ended.wait(self._every):
            before, last = last, self._look()
            still = still + self._every if last.is_still_since(before, self._every) else 0.0
            if still >= self._limit:
                still = 0.0
                os.kill(os.getpid(), _SIGNAL)

    def _look(self) -> Look:
        return Look(self.test, self._tree.seconds(), idle_seconds())

    def end(self) -> None:
        self._ended.set()
        self.join()

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.test:
            raise TimeoutError(f"nothing has happened for {self._limit:g} s, although the machine was idle")


def idle_seconds() -> float:
    """Return the idle seconds of all cores of this machine; 0 if the system does not report them."""
    try:
        fields = Path("/proc/stat").read_text().split(maxsplit=5)
    except OSError:
        return 0.0
    return int(fields[4]) / os.sysconf("SC_CLK_TCK")


_WATCH = pytest.StashKey[Watch]()


def pytest_sessionstart(session: pytest.Session) -> None:
    watch = session.config.stash[_WATCH] = Watch(patience(LIMIT_SECONDS))
    signal.signal(_SIGNAL, watch.interrupt)
    watch.start()


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_WATCH].end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    watch = item.config.stash[_WATCH]
    watch.test = item.nodeid
    try:
        return (yield)
    finally:
        watch.test = ""
