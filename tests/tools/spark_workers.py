"""Which workers of a run have Spark: half of them. Only those take files with tests that ask for the `spark` fixture.

A session costs 4 s of processor time, and as much again until its JVM has loaded and compiled what batches need.
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
    """Whether tests of a file ask for the shared Spark: whatever else starts one has it in a process of its own."""
    return "spark: SparkSession" in file.read_text(encoding="utf-8")


class SparkWorkers(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives whole files to workers, in their order; workers with Spark take files that need it before others."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = self._next_for(node)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if self._next_for(node) is None and not node.shutting_down:
            node.shutdown()  # when it has done what it was given
        else:
            super()._reschedule(node)

    def _next_for(self, node: WorkerController) -> str | None:
        with_spark = [file for file in self.workqueue if takes_spark(self.config.rootpath / file)]
        others = (file for file in self.workqueue if file not in with_spark)
        # One that crashed is replaced: by another that is there, or by a new one.
        there = [one for one in self.nodes if not one.shutting_down]
        if node in there[: (self.numnodes + 1) // 2]:
            return next(iter(with_spark), next(others, None))
        return next(others, None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SparkWorkers | None:
    return SparkWorkers(config, log) if config.getvalue("dist") == "loadfile" else None
