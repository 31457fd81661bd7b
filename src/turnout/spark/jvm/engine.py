"""Spark as the orchestrator has it: one session at a time; it notices when that is gone, starts another, and ends it.

It does not know the queries: whoever finds that the session is gone starts them anew.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from turnout.config import SparkSettings
from turnout.errors import TurnoutError
from turnout.spark.jvm.cluster import is_local, no_executors
from turnout.spark.jvm.java_errors import is_disconnected
from turnout.spark.jvm.session import (
    OUTPUT_FILE,
    Java,
    clear_scratch,
    end_java,
    forget_session,
    start_session,
    stop_session,
)
from turnout_client.retries import growing_pause

LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 120.0
"""A session that lived so long did not end by what ended those before it."""

EXECUTORS_SECONDS = 30.0
"""How long a cluster may take to give the first executor, before that is an error."""

_GONE = "spark_gone"
_DYING_SECONDS = 1.0
"""How long a JVM may take from closing its connections to its end."""


class Engine:
    """The session. The orchestrator's thread uses it; `stop` may come from another."""

    def __init__(self, settings: SparkSettings, work: Path) -> None:
        self._settings = settings
        self._work = work
        self._lock = threading.Lock()
        self._java: Java | None = None
        self._session: SparkSession | None = None
        self._started_at = 0.0
        self._ends = 0
        self.starts = 0
        self._stopped = False

    def session(self) -> SparkSession:
        """The session; started, which takes seconds, where there is none."""
        if self._session is None:
            self.starts += 1
            self._session = start_session(self._settings, self._work, self._java_began)
            self._started_at = time.monotonic()
        self._wait_for_executors(self._session)
        return self._session

    def _wait_for_executors(self, session: SparkSession) -> None:
        """Jobs would wait without a word where a cluster has nothing for them."""
        if is_local(self._settings.master):
            return
        deadline = time.monotonic() + EXECUTORS_SECONDS
        memory = self._settings.conf.get("spark.executor.memory", "1g")
        while no_executors(session) and not self._stopped:
            if time.monotonic() > deadline:
                raise TurnoutError(
                    code="spark_not_started",
                    message=f"{self._settings.master} has given no executor within {EXECUTORS_SECONDS:g} s",
                    hint="check that it has workers with free cores, and as much free memory as "
                    f"spark.executor.memory ({memory})",
                    status=503,
                )
            time.sleep(0.1)

    def fault(self, wait_seconds: float = 0.0) -> TurnoutError | None:
        """Why the session is of no use any more; None where it is, or there is none."""
        session, java = self._session, self._java
        if session is None or java is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            java.wait(wait_seconds)
        if java.returncode is not None:
            return _gone(f"Spark's JVM (process {java.pid}) {_ending(java.returncode)}", self._work)
        if _is_stopped(session):
            return _gone("Spark stopped by itself", self._work)
        return None

    @contextlib.contextmanager
    def converting_errors(self) -> Iterator[None]:
        """Convert errors to `spark_gone` if the JVM has ended."""
        try:
            yield
        except Exception as error:
            fault = self.fault(_DYING_SECONDS if is_disconnected(error) else 0.0)
            if fault is None:
                raise
            raise fault from error

    def drop(self) -> float:
        """Let go of a session that is gone; how many seconds to wait before another is started."""
        session, self._session = self._session, None
        if session is None or self._java is None:
            return 0.0
        self._ends = 1 if time.monotonic() - self._started_at > STEADY_SECONDS else self._ends + 1
        end_java(self._java)
        forget_session(session)
        return pause_seconds(self._ends)

    def stop(self, timeout_seconds: float) -> None:
        """End it for good, within about two seconds more than given; also while it starts."""
        self.cancel()
        if self._session is not None:
            stop_session(self._session, timeout_seconds)
            clear_scratch(self._work)

    def cancel(self) -> None:
        """Give up a start that is under way, and begin no other."""
        with self._lock:
            self._stopped = True
        if self._session is None and self._java is not None:
            end_java(self._java)

    def _java_began(self, java: Java) -> None:
        with self._lock:
            self._java = java
            stopped = self._stopped
        if stopped:
            end_java(java)


def pause_seconds(ends: int) -> float:
    """None after the first end, then longer each time: a start takes the machine's whole attention."""
    return 0.0 if ends <= 1 else growing_pause(ends - 2, 1.0, LONGEST_PAUSE_SECONDS)


def is_gone(error: BaseException) -> bool:
    """Whether this is what `fault` says."""
    return isinstance(error, TurnoutError) and error.code == _GONE


def _is_stopped(session: SparkSession) -> bool:
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):
        return False  # it is about to end, which its process will tell, or too busy to say


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _gone(what: str, work: Path) -> TurnoutError:
    return TurnoutError(
        code=_GONE,
        message=f"{what}; it is started again",
        hint=f"until then the tables stay as they are; {work / OUTPUT_FILE}.1 has what it printed",
        status=503,
    )
