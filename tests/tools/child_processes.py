"""Programs of tests that end with the test run, even if the run is killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any

import psutil

SHORT_LIVED = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-CreateCoredumpOnCrash"),
    # The classes come from files that were verified after the download.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Options of a JVM that runs only for seconds."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """Make Linux send SIGTERM to this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def ending_with_us() -> dict[str, Any]:
    """Return options of `Popen` with which the program gets SIGTERM when this process ends in any way.

    Linux sends the signal when the starting thread ends, so only the main thread can use this.
    """
    main = threading.current_thread() is threading.main_thread()
    return {"preexec_fn": end_with_parent} if main and sys.platform == "linux" else {}


def living_in(session: int) -> list[psutil.Process]:
    """Return the processes of a session that are not zombies."""
    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class LeftBehind:
    """The remaining processes of a session (`start_new_session`) whose leader has just been killed."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._over = time.time()

    def kill(self) -> None:
        """Kill them. Processes that started after the leader's end are spared, because process ids are reused."""
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == self._leader and process.create_time() <= self._over:
                    process.kill()
