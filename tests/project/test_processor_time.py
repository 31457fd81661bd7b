"""What `--cpu` counts: the processor seconds of a process and of all that it started, however they ended."""

from __future__ import annotations

import os
import subprocess
import sys

from processor_time import Tree
from turnout.testing import wait_until

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
# Tells of its child when that was busy, and is killed. The child ends when the pipe of this number does.
LEAVING = f"""
import subprocess, sys
stays = {BUSY!r} + "print(flush=True); import os; os.read(%s, 1)" % sys.argv[1]
child = subprocess.Popen([sys.executable, "-c", stays], stdout=subprocess.PIPE, pass_fds=[int(sys.argv[1])])
child.stdout.readline()
print(child.pid, flush=True)
input()
"""


def test_child_is_counted_while_it_runs_and_when_it_has_ended() -> None:
    tree = Tree()
    before = tree.seconds()
    with subprocess.Popen(
        [sys.executable, "-c", f"{BUSY}print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = tree.seconds()
        assert running - before > 0.25
        child.communicate(b"\n")
    assert tree.seconds() >= running - 0.02  # the system counts those that run by hundredths


def test_child_whose_parent_has_ended_is_counted_on() -> None:
    tree = Tree()
    read, write = os.pipe()
    command = [sys.executable, "-c", LEAVING, str(read)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[read]) as parent:
        os.close(read)
        assert parent.stdout is not None
        left = int(parent.stdout.readline())
        known = tree.seconds()
        parent.kill()
    assert tree.knows(left)
    assert tree.seconds() >= known - 0.02
    os.close(write)
    wait_until(lambda: not tree.knows(left), what="the end of what was left")
    assert tree.seconds() >= known - 0.02
