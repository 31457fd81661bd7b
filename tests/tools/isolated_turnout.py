"""A `turnout run` with its own /tmp, so that a test can see the files that it leaves there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from child_processes import living_in
from namespaces import not_run, unshare
from turnout.java.jars import cache_folder
from turnout.testing import wait_until
from turnout_process import RunningTurnout

# Turnout sees an empty /tmp and its own folder, which is mounted at INSIDE. Folders of the real /tmp that it needs,
# such as a checkout, a Python or a home, are mounted into the empty /tmp. The remaining files are listed at the end of
# the process, because the namespace ends with it.
_WRAPPED = """
mount --bind "$1" /mnt && mkdir -p /mnt/before && mount --rbind /tmp /mnt/before && mount -t tmpfs none /tmp || exit 99
left="$2"; shift 2
while [ "$1" != -- ]; do
  mkdir -p "/tmp/$1" && mount --rbind "/mnt/before/$1" "/tmp/$1" || exit 99
  shift
done
shift
umount --lazy /mnt/before || exit 99
there() { find /tmp -mindepth 1 -xdev | sort; }
there > "/mnt/$left.before"
"$@"; code=$?
there | comm -13 "/mnt/$left.before" - > "/mnt/$left"
exit $code
"""
INSIDE = Path("/mnt")
"""The path at which Turnout sees its folder."""

_KEPT = {"spark.log", "java.log", "java.log.1", "log4j2.properties", "warehouse"}


class IsolatedTurnout(RunningTurnout):
    """A Turnout in a mount namespace. `program` is the command that runs there; its paths are below INSIDE."""

    def __init__(self, folder: Path, bootstrap: str, **sections: Any) -> None:
        super().__init__(folder, bootstrap, data_dir=str(INSIDE / "data"), **sections)
        self.data_dir = folder / "data"
        self.config = INSIDE / self.config.name
        self.program = [sys.executable, "-m", "turnout"]
        self._unshare = unshare("mount") or not_run("a process here may not have a mount namespace of its own")
        self._lives = 0

    @property
    def pid(self) -> int:
        """The process id of Turnout, once it answers."""
        [process] = psutil.Process(super().pid).children()
        return process.pid

    def start(self, *, ready: bool = True) -> Self:
        self._lives += 1
        wrapped = ["sh", "-c", _WRAPPED, "alone", str(self.folder), f"left-{self._lives}", *_needed_of_tmp(), "--"]
        self.command = [*self._unshare, *wrapped, *self.program]
        return super().start(ready=ready)

    def wait_gone(self) -> None:
        """Wait until all processes of a stopped Turnout have ended."""
        wait_until(lambda: not living_in(super(IsolatedTurnout, self).pid), what="the end of all its processes")

    def left(self) -> list[str]:
        """Return the files that the last run left in its /tmp."""
        return (self.folder / f"left-{self._lives}").read_text().splitlines()

    def temporary(self) -> list[str]:
        """Return the temporary files in its data folder."""
        found = [*self.data_dir.glob("tmp*"), *self.data_dir.glob("*.tmp"), *self.spark_dir.glob("*")]
        return sorted(path.name for path in found if path.name not in _KEPT)


def _needed_of_tmp() -> list[str]:
    """Return the folders below /tmp that Turnout needs to start, as relative paths."""
    needed = {Path(__file__).parents[2], Path(sys.prefix), Path(sys.base_prefix), Path.home(), cache_folder().parent}
    needed |= {Path(os.environ["JAVA_HOME"])} if "JAVA_HOME" in os.environ else set()
    below = sorted(str(path.relative_to("/tmp")) for path in needed if Path("/tmp") in path.parents)
    return [path for path in below if not any(path.startswith(f"{other}/") for other in below)]
