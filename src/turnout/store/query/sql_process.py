"""The processes in which SELECTs run (`sql_worker.py`): started when one is needed; one is kept for the next.

To a process go a line of JSON and the tables as Arrow streams, the last one while the query runs. From it come an empty
line (it needs no more rows), a line of JSON and the rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from turnout.store.query import sql_worker

_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT")
_lock = threading.Lock()
_idle: list[SqlProcess] = []


class ProcessEndedError(Exception):
    """The process has gone: it was ended, or took more memory than it may have."""


class ProcessIdleError(ProcessEndedError):
    """The process had been idle for long, and ended before it was asked."""


class SqlProcess:
    """One process; used by one thread, and ended by any."""

    def __init__(self) -> None:
        # Nothing of ours: neither files that are open, nor variables.
        self._process = subprocess.Popen(
            [sys.executable, str(Path(sql_worker.__file__)), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            cwd=os.sep,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._going, self._coming = self._process.stdin, self._process.stdout
        self._ended = False
        threading.Thread(target=self._wait, name="turnout-sql-process", daemon=True).start()

    def _wait(self) -> None:
        """Take note of its end at once: one that nobody waits for stays in the list of processes."""
        self._process.wait()
        with _lock:
            was_idle = self in _idle
            if was_idle:
                _idle.remove(self)
        if was_idle:
            self.close()

    @property
    def is_alive(self) -> bool:
        return not self._ended and self._process.poll() is None

    def interrupt(self) -> None:
        """End what it does; named as what DuckDB's connections have for it."""
        self._ended = True
        self._process.kill()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._coming, self._going):
            with contextlib.suppress(OSError):
                pipe.close()

    def ask(
        self, asked: Mapping[str, Any], tables: Iterable[pa.RecordBatchReader]
    ) -> tuple[dict[str, Any], pa.Table | None]:
        """What the process answers to a query over tables in the order it was told of them, and the rows."""
        try:
            self._going.write(json.dumps(asked).encode() + b"\n")
            for rows in tables:
                with rows:
                    self._send(rows)
            self._going.flush()
            self._coming.readline()
            head = json.loads(self._coming.readline())
            self._ended |= "last" in head
            return head, pa.ipc.open_stream(self._coming).read_all() if "kinds" in head else None
        except (OSError, ValueError, pa.ArrowInvalid) as error:
            self._process.kill()
            ended = ProcessEndedError if self._process.wait() else ProcessIdleError
            raise ended from error

    def _send(self, rows: pa.RecordBatchReader) -> None:
        # Not select.select: a server with many connections has pipes with numbers above 1024.
        answered = select.poll()
        answered.register(self._coming, select.POLLIN)
        with pa.ipc.new_stream(self._going, rows.schema) as stream:
            for batch in rows:
                stream.write_batch(batch)
                if answered.poll(0):
                    return


@contextlib.contextmanager
def process() -> Iterator[SqlProcess]:
    """A process for one query; kept for the next one where it is as it was."""
    with _lock:
        found = _idle.pop() if _idle else None
    if found is not None and not found.is_alive:
        found.close()
        found = None
    taken = found or SqlProcess()
    try:
        yield taken
    except BaseException:
        taken.interrupt()
        raise
    finally:
        _keep(taken)


def _keep(taken: SqlProcess) -> None:
    """Keep a process for the next query, or another one in its place, which is ready by then."""
    with _lock:
        if not _idle:
            _idle.append(taken if taken.is_alive else SqlProcess())
        kept = taken in _idle
    if not kept:
        taken.close()
