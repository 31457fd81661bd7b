"""Processor seconds of a process and its children, by what they were used for: a JVM by kind of thread, Python apart.

Times depend on what else runs on the machine; processor seconds hardly do. A snapshot reads `/proc` once (some
milliseconds); `used` is the difference of two. Without `/proc` snapshots are empty, and so is the difference.
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

# How the names of threads begin. Linux cuts them at 15 characters, and the JVM gives them to its threads.
_THREADS = (
    (COMPILER, ("C1 CompilerThre", "C2 CompilerThre", "Sweeper thread")),
    # Without threads of its own a collector works in the VM's.
    (COLLECTOR, ("GC Thread", "G1 ", "VM Thread", "ZWorker", "ZDriver", "Shenandoah")),
    (TASKS, ("Executor task", "stdout writer")),
    # A JVM inside Python (Deephaven's) shares its process with Python's threads.
    (PYTHON, ("python",)),
)
_JVM_MARK = "VM Thread"

Usage = dict[str, float]
"""Seconds by kind; `wall` is the time between the two snapshots."""


@dataclass(frozen=True, slots=True)
class Stat:
    """A line of `/proc`: of a process (with what its ended children used) or of one of its threads."""

    name: str
    own: float
    children: float
    started: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What had been used at one moment."""

    moment: float
    by_process: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds by kind; all of a JVM's under `JVM`. What an ended child used is its parent's: sums only grow."""
    threads: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)
    """Kind and seconds of each thread of a JVM, by its number and start."""


def snapshot(pid: int) -> Snapshot:
    """Of a process and everything that it started and that still runs."""
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
        # What a JVM starts are Spark's Python workers, by way of pyspark.daemon.
        for process in _children(child, recursive=True):
            _add(taken, process, WORKERS)
    return taken


def used(before: Snapshot, after: Snapshot) -> Usage:
    """What was used between two moments, by kind.

    A thread that ended meanwhile is in its process's sum and nowhere else; so is the part of a second that is lost
    where each thread's time is cut to hundredths.
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
    """None where it has ended. The name is in brackets and may hold anything, brackets too."""
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
