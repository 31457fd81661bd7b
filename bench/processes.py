"""A peer in a separate process, which reports events as one JSON object per line; ending it ends its children."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import psutil

STOP_SECONDS = 2
KILLED_SECONDS = 30
"""The time limit after SIGKILL: releasing the memory of a large process takes seconds."""


class PeerFailed(Exception):  # noqa: N818 - reported as the peer's result
    """The peer ended, or reported no event in time."""


class Peer:
    """The process of a peer, from the start to the end of a `with` block."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] = {}) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **self._environment},
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Signal the whole process group, because engines leave children behind, and some hang at exit.
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(STOP_SECONDS)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._process.wait(KILLED_SECONDS)
        self._errors.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def memory_mb(self) -> float:
        return tree_mb(self._process.pid)

    def go_on(self) -> None:
        """Send a line to a peer that waits for one."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def wait(self, event: str, timeout: float) -> dict[str, Any]:
        """Wait for an event by its name, and return it; other events are skipped."""
        try:
            while (said := self._events.get(timeout=timeout)) is not None:
                if said["event"] == "error":
                    raise PeerFailed(str(said["error"]))
                if said["event"] == event:
                    return said
        except queue.Empty:
            raise PeerFailed(f"no '{event}' within {timeout:g} s") from None
        raise PeerFailed(f"ended before '{event}': {self._last_words()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b'{"event"'):
                self._events.put(json.loads(line))
        self._events.put(None)

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        told = [line for line in lines if not line.startswith(("\tat ", "  File"))]
        return " / ".join(told[-3:])[:500] or "nothing on standard error"


def tree_mb(pid: int) -> float:
    """Return the resident memory of a process and all its children in MB."""
    total = 0.0
    process = psutil.Process(pid)
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total / 2**20


def tree_cpu_seconds(pid: int) -> float:
    """Return the processor time of a process and all its children, also of ended children."""
    total = 0.0
    process = psutil.Process(pid)
    for one in [process, *process.children(recursive=True)]:
        try:
            times = one.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
