"""What a Turnout uses, every few seconds: memory, threads and open files of its process tree, and its disk."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

from turnout_process import RunningTurnout


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment. `lives` counts the processes that Turnout has been, `own_mb` is the memory of that process alone, and
    `latency_ms` the median since the sample before.
    """

    seconds: float
    lives: int
    memory_mb: float
    own_mb: float
    threads: int
    files: int
    disk_mb: float
    latency_ms: float | None


class Sampler:
    """Takes samples on a thread of its own, and writes each to a CSV file; while Turnout is down there is none."""

    def __init__(self, turnout: RunningTurnout, latency: Callable[[], float | None], file: Path, every: float) -> None:
        self.samples: list[Sample] = []
        self._turnout = turnout
        self._latency = latency
        self._file = file
        self._every = every
        self._began = time.monotonic()
        self._pids: list[int] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with self._file.open("w", newline="") as out:
            writer = csv.writer(out)
            writer.writerow([field.name for field in fields(Sample)])
            while not self._stopping.wait(self._every):
                sample = self._sample()
                if sample is not None:
                    self.samples.append(sample)
                    writer.writerow(astuple(sample))
                    out.flush()

    def _sample(self) -> Sample | None:
        latency = self._latency()
        if not self._turnout.running:
            return None
        pid = self._turnout.pid
        if pid not in self._pids:
            self._pids.append(pid)
        try:
            use = tree_use(pid)
        except psutil.NoSuchProcess:
            return None
        disk = folder_mb(self._turnout.data_dir)
        return Sample(round(time.monotonic() - self._began, 1), len(self._pids), *use, disk, latency)


def tree_use(pid: int) -> tuple[float, float, int, int]:
    """Resident megabytes of a process with its children and of it alone; threads and open files of all of them."""
    process = psutil.Process(pid)
    memory, threads, files = 0.0, 0, 0
    own = process.memory_info().rss / 2**20
    for one in [process, *process.children(recursive=True)]:
        try:
            with one.oneshot():
                memory += one.memory_info().rss / 2**20
                threads += one.num_threads()
                files += one.num_fds()
        except psutil.NoSuchProcess:
            continue
    return round(memory, 1), round(own, 1), threads, files


def folder_mb(folder: Path) -> float:
    """What the files below a folder take on disk; they come and go meanwhile. Logs do not count: they are rotated."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512 if path.is_file() and ".log" not in path.name else 0
        except OSError:
            continue
    return round(total / 2**20, 1)
