"""Which worker of a run takes which file: those that need Spark go to half of the workers."""

from __future__ import annotations

from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from spark_workers import SparkWorkers

if TYPE_CHECKING:
    from pathlib import Path

SPARK = "def test_a(spark: SparkSession) -> None: ..."
PLAIN = "def test_a() -> None: ..."


class Worker:
    """Notes the tests that it is given, and runs none."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="worker")
        self.taken: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.taken += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    """Workers that end their tests in turn, until there are no more."""

    def __init__(self, folder: Path, files: dict[str, str], workers: int) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)
        option = SimpleNamespace(loadscopereorder=False)
        config: Any = SimpleNamespace(rootpath=folder, option=option, getvalue=lambda name: ["popen"] * workers)
        self.tests = [f"{name}::test_a" for name in files]
        self.workers: list[Any] = [Worker() for _ in range(workers)]
        self.scheduler = SparkWorkers(config)
        for worker in self.workers:
            self.scheduler.add_node(worker)
            self.scheduler.add_node_collection(worker, self.tests)
        self.scheduler.schedule()

    def finish(self) -> list[list[str]]:
        """The files that each worker took."""
        done = [0 for _ in self.workers]
        while any(count < len(worker.taken) for count, worker in zip(done, self.workers, strict=True)):
            for number, worker in enumerate(self.workers):
                if done[number] < len(worker.taken):
                    self.scheduler.mark_test_complete(worker, worker.taken[done[number]])
                    done[number] += 1
        return [[self.tests[index].partition("::")[0] for index in worker.taken] for worker in self.workers]


def test_files_that_need_spark_go_to_half_of_the_workers_and_come_first_there(tmp_path: Path) -> None:
    files = {f"test_{n}.py": SPARK if n % 3 == 0 else PLAIN for n in range(30)}
    run = Run(tmp_path, files, 4)
    taken = run.finish()
    assert sorted(chain(*taken)) == sorted(files), "each file once"
    with_spark = [[files[name] == SPARK for name in names] for names in taken]
    assert with_spark[0][:5] == with_spark[1][:5] == [True] * 5, "those with Spark, in their order"
    assert not any(with_spark[2] + with_spark[3])
    assert any(not one for one in with_spark[0]), "nobody is idle while there is something else to do"
    assert all(worker.shutting_down for worker in run.workers)


def test_run_of_nothing_but_files_that_need_spark_ends(tmp_path: Path) -> None:
    for workers in (1, 3):
        run = Run(tmp_path, {f"test_{n}.py": SPARK for n in range(7)}, workers)
        assert sorted(map(bool, run.finish())) == sorted([True, True, False][:workers])
        assert all(worker.shutting_down for worker in run.workers)


def test_worker_that_crashed_is_replaced_by_one_that_takes_spark(tmp_path: Path) -> None:
    run = Run(tmp_path, {f"test_{n}.py": SPARK if n < 6 else PLAIN for n in range(20)}, 2)
    run.scheduler.remove_node(run.workers[0])
    lost = run.workers.pop(0).taken
    assert lost and set(run.finish()[0]) == {f"test_{n}.py" for n in range(20)}
