"""The bench's own arithmetic: processor seconds by kind, and from results to rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from processors import JVM, KINDS, OTHER, PYTHON, WORKERS, Snapshot, snapshot, used

BUSY = "import time\nwhile time.process_time() < {seconds}: pass\n"
ENDS_A_CHILD = f"""
import subprocess, sys
input()
subprocess.run([sys.executable, "-c", {BUSY.format(seconds=0.3)!r}], check=True)
{BUSY.format(seconds=0.3)}
print("done", flush=True)
input()
"""


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_processor_seconds_hold_what_ended_children_used() -> None:
    with started(ENDS_A_CHILD) as process:
        assert process.stdin is not None and process.stdout is not None
        before = snapshot(process.pid)
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"done\n"
        usage = used(before, snapshot(process.pid))
    assert usage[PYTHON] > 0.2
    assert usage[OTHER] > 0.2


def test_processor_seconds_of_threads_and_of_those_that_ended_are_all_of_the_process() -> None:
    before, after = Snapshot(10.0), Snapshot(14.0)
    before.by_process.update({JVM: 10.0, WORKERS: 1.0})
    before.threads.update({(1, 1): ("JVM compiler", 4.0), (2, 1): (JVM, 3.0), (3, 1): ("Spark tasks", 3.0)})
    after.by_process.update({JVM: 20.0, WORKERS: 1.5})
    # Thread 2 has ended, and its number is another's now.
    after.threads.update({(1, 1): ("JVM compiler", 5.0), (2, 9): ("JVM collector", 2.0), (3, 1): ("Spark tasks", 6.0)})
    usage = used(before, after)
    assert usage == dict.fromkeys(KINDS, 0.0) | {
        "JVM compiler": 1.0,
        "JVM collector": 2.0,
        "Spark tasks": 3.0,
        "JVM, threads that ended": 4.0,
        "Python workers": 0.5,
        "wall": 4.0,
    }


def test_processor_seconds_of_a_process_that_is_gone_are_none() -> None:
    with started("input()") as process:
        before = snapshot(process.pid)
    assert not psutil.pid_exists(process.pid)
    assert used(before, snapshot(process.pid)) == {}
