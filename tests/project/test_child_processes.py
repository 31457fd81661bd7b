"""Programs that tests start: they end with the tests, and what a killed one leaves is ended too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

import child_processes
from child_processes import LeftBehind
from turnout.testing import wait_until
from turnout_process import lives

STARTS = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from child_processes import ending_with_us
print(subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, **ending_with_us()).pid, flush=True)
sys.stdin.read()
"""


def started(program: list[str]) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """A process that leads a session, and the one that it started."""
    parent = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout is not None
    return parent, psutil.Process(int(parent.stdout.readline()))


def test_program_ends_with_a_process_that_is_killed() -> None:
    parent, child = started([sys.executable, "-c", STARTS, str(Path(child_processes.__file__).parent)])
    with parent:
        assert lives(child)
        parent.kill()
    wait_until(lambda: not lives(child), what="the end of what it started")


def test_what_a_killed_process_left_is_ended_and_nothing_else() -> None:
    command = ["sh", "-c", "sleep 600 >/dev/null & echo $!; wait"]
    (killed, left), (other, others) = started(command), started(command)
    with killed, other:
        killed.kill()
        killed.wait()
        LeftBehind(killed.pid).kill()
        wait_until(lambda: not lives(left), what="the end of what was left")
        assert lives(others)
        others.kill()
