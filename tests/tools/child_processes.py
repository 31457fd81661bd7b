"""Programs that tests start end with them: a run that is killed leaves none behind."""

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
    # Its classes are those of files that were verified when they came.
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Options of a JVM that lives for seconds."""

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """Have this process sent SIGTERM when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def ending_with_us() -> dict[str, Any]:
    """Options of `Popen`: the program is sent SIGTERM when this process ends, however it ends.

    Linux sends it when the thread that started the program ends, so only the main thread can ask for it.
    """
    main = threading.current_thread() is threading.main_thread()
    return {"preexec_fn": end_with_parent} if main and sys.platform == "linux" else {}


def living_in(session: int) -> list[psutil.Process]:
    """The processes of a session that are not zombies."""
    found = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


class LeftBehind:
    """What a process left that led a session (`start_new_session`) and has just been killed."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._over = time.time()

    def kill(self) -> None:
        """What began after the leader's end is of others: numbers of processes are used again."""
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if os.getsid(process.pid) == self._leader and process.create_time() <= self._over:
                    process.kill()
