"""The task of a bulk read, as it comes to a worker where nothing of Turnout is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle

from turnout.decode.shape import SourceShape
from turnout.plan.offsets import EARLIEST, Offsets
from turnout.spark.read.bulk import TASK_RECORDS, carry_code, split
from turnout.spark.read.task import task

WITHOUT_TURNOUT = """
import pickle, sys

class Nothing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "turnout":
            raise ImportError(name)

sys.meta_path.insert(0, Nothing)
with open(sys.argv[1], "rb") as file:
    print(list(pickle.load(file)([])))
"""


def test_task_runs_where_turnout_is_not_installed(tmp_path: Path) -> None:
    carry_code()
    file = tmp_path / "task"
    shape = SourceShape("users", 0, "userId", {"userId": "string", "born": "date"}, tombstones=True)
    file.write_bytes(cloudpickle.dumps(task({"group.id": "g"}, [shape], None)))  # type: ignore[no-untyped-call]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TURNOUT, str(file)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


WATCHED = """
import gc, sys
import pyarrow as pa
from turnout.spark.read.task import task

def ranges():
    print(gc.isenabled())
    yield from ()

list(task({"group.id": "g"}, [], None)(ranges()))
pa.array([1])
print(gc.isenabled(), gc.get_freeze_count() > 0, "pandas" in sys.modules)
import pandas
"""


def test_worker_collects_no_garbage_while_it_reads_and_imports_no_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\nTrue True False\n", "")


def test_ranges_of_a_partition_are_of_one_size() -> None:
    more = TASK_RECORDS.usual + 2
    start, end = Offsets({("t", 0): 10, ("t", 1): EARLIEST, ("t", 2): 5}), {("t", 0): 10 + more, ("t", 1): more}
    ranges = split(["t"], start, Offsets({**end, ("t", 2): 5}), 1)
    half = more // 2
    assert [(one.partition, one.start, one.end) for one in ranges] == [
        (0, 10, 10 + half),
        (0, 10 + half, 10 + more),
        (1, EARLIEST, half),
        (1, half, more),
    ]
