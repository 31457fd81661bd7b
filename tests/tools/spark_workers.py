"""A scheduler that gives files with the `spark` fixture to only half of the workers of a run.

A session costs 4 s of processor time, and as much again until its JVM has loaded and compiled the code of batches.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


@cache
def takes_spark(file: Path) -> bool:
    """Whether tests of a file use the shared Spark; other tests start Spark in a separate process."""
    return "spark: SparkSession" in file.read_text(encoding="utf-8")


class SparkWorkers(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A scheduler that gives whole files to workers in order; workers with Spark get files that need it first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next_for(node)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._next_for(node) is None and not node.shutting_down:
            node.shutdown()  # takes effect after the assigned files
        else:
            super()._reschedule(node)

    def _next_for(self, node: WorkerController) -> str | None:
        with_spark = [file for file in self.workqueue if takes_spark(self.config.rootpath / file)]
        others = (file for file in self.workqueue if file not in with_spark)
        # A crashed worker is replaced by another running worker or by a new one.
        there = [one for one in self.nodes if not one.shutting_down]
        if node in there[: (self.numnodes + 1) // 2]:
            return next(iter(with_spark), next(others, None))
        return next(others, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SparkWorkers | None:
    return SparkWorkers(config, log) if config.getvalue("dist") == "loadfile" else None
