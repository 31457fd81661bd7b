"""Processor seconds of a process and its children by use: JVMs by kind of thread, and Python processes.

Elapsed times depend on other programs on the machine; processor seconds hardly do. A snapshot reads `/proc` once, in a
few milliseconds; `used` returns the difference of two. Without `/proc` snapshots and differences are empty.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import sysconf
from pathlib import Path

import psutil

COMPILER = "JVM compiler"
COLLECTOR = "JVM collector"
TASKS = "Spark tasks"
JVM = "JVM, other threads"
ENDED = "JVM, threads that ended"
PYTHON = "Python"
WORKERS = "Python workers"
OTHER = "other processes"
KINDS = (COMPILER, COLLECTOR, TASKS, JVM, ENDED, PYTHON, WORKERS, OTHER)

_PROC = Path("/proc")

# The prefixes of thread names. The JVM names its threads, and Linux cuts the names at 15 characters.
_THREADS = (
    (COMPILER, ("C1 CompilerThre", "C2 CompilerThre", "Sweeper thread")),
    # A serial collector has no threads and runs in the VM Thread.
    (COLLECTOR, ("GC Thread", "G1 ", "VM Thread", "ZWorker", "ZDriver", "Shenandoah")),
    (TASKS, ("Executor task", "stdout writer")),
    # Deephaven's JVM runs inside a Python process, together with Python's threads.
    (PYTHON, ("python",)),
)
_JVM_MARK = "VM Thread"

Usage = dict[str, float]
"""The seconds by kind; `wall` is the time between the two snapshots."""


@dataclass(frozen=True, slots=True)
class Stat:
    """The processor time of a process (with that of its ended children) or of a thread, from `/proc`."""

    name: str
    own: float
    children: float
    started: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The processor time used so far, at one moment."""

    moment: float
    by_process: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by kind; all of a JVM under `JVM`. The time of an ended child moves to its parent, so sums only grow."""
    threads: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)
    """The kind and seconds of each JVM thread, by its id and start time."""


def snapshot(pid: int) -> Snapshot:
    """Take a snapshot of a process and all its running descendants."""
    taken = Snapshot(time.monotonic())
    if not (_PROC / "self" / "task").exists():
        return taken
    _add(taken, pid, PYTHON)
    for child in _children(pid):
        if _name(child) != "java":
            _add(taken, child, OTHER)
            for process in _children(child, recursive=True):
                _add(taken, process, OTHER)
            continue
        _add(taken, child, JVM)
        # The children of a JVM are Spark's Python workers, started by pyspark.daemon.
        for process in _children(child, recursive=True):
            _add(taken, process, WORKERS)
    return taken


def used(before: Snapshot, after: Snapshot) -> Usage:
    """Return the processor seconds between two snapshots, by kind.

    `ENDED` has the time of threads that ended meanwhile, which is known only from the sum of the process, and the
    fractions that are lost because the time of each thread is cut to hundredths of a second.
    """
    if not after.by_process:
        return {}
    seconds = {kind: after.by_process.get(kind, 0.0) - before.by_process.get(kind, 0.0) for kind in KINDS}
    threads = dict.fromkeys(KINDS, 0.0)
    for thread, (kind, taken) in after.threads.items():
        threads[kind] += taken - before.threads.get(thread, ("", 0.0))[1]
    ended = seconds.pop(JVM) - sum(threads.values())
    usage = {kind: max(0.0, threads[kind] + seconds.get(kind, 0.0)) for kind in KINDS} | {ENDED: max(0.0, ended)}
    return usage | {"wall": after.moment - before.moment}


def _add(taken: Snapshot, pid: int, kind: str) -> None:
    stat = _stat(_PROC / str(pid))
    if stat is None:
        return
    threads = dict(_threads(pid)) if kind in (PYTHON, JVM) else {}
    is_jvm = kind == JVM or any(thread.name == _JVM_MARK for thread in threads.values())
    taken.by_process[JVM if is_jvm else kind] += stat.own
    taken.by_process[{PYTHON: OTHER, JVM: WORKERS}.get(kind, kind)] += stat.children
    if is_jvm:
        taken.threads.update({(tid, one.started): (_kind(one.name), one.own) for tid, one in threads.items()})


def _kind(name: str) -> str:
    return next((kind for kind, beginnings in _THREADS if name.startswith(beginnings)), JVM)


def _threads(pid: int) -> Iterator[tuple[int, Stat]]:
    try:
        folders = list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return
    for folder in folders:
        if stat := _stat(folder):
            yield int(folder.name), stat


def _stat(folder: Path) -> Stat | None:
    """Read a `stat` file; return None if the process has ended. The name is in brackets and may contain brackets."""
    try:
        before, _, after = (folder / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return None
    fields = after.split()
    user, system, children_user, children_system = (int(value) for value in fields[11:15])
    ticks = sysconf("SC_CLK_TCK")
    return Stat(
        before.partition("(")[2], (user + system) / ticks, (children_user + children_system) / ticks, int(fields[19])
    )


def _children(pid: int, *, recursive: bool = False) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive)]
    except psutil.NoSuchProcess:
        return []


def _name(pid: int) -> str:
    stat = _stat(_PROC / str(pid))
    return stat.name if stat else ""
