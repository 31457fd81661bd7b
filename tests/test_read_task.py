"""The task of a bulk read, as it comes to a worker where nothing of Turnout is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark import cloudpickle

from turnout.decode import SourceShape
from turnout.spark.read.bulk import carry_code
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
