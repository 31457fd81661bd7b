"""A `turnout run` that has the system's temporary folder for itself: what it leaves there is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import psutil

from ending import living_in
from running import RunningTurnout
from turnout.testing import wait_until

# A folder of the machine's own is mounted where Turnout sees it beside its empty /tmp. What is left in that /tmp is
# written down when the process has ended, for the namespace ends with it.
_WRAPPED = """
mount --bind "$1" /mnt && mount -t tmpfs none /tmp || exit 99
left="$2"; shift 2
"$@"; code=$?
find /tmp -mindepth 1 > "/mnt/$left"
exit $code
"""
INSIDE = Path("/mnt")
"""Where Turnout sees its folder."""

_KEPT = {"spark.log", "java.log", "java.log.1", "log4j2.properties", "warehouse"}


class AloneTurnout(RunningTurnout):
    """`program` is what runs in its namespace; paths in it are those of INSIDE."""

    def __init__(self, folder: Path, bootstrap: str, **sections: Any) -> None:
        super().__init__(folder, bootstrap, data_dir=str(INSIDE / "data"), **sections)
        self.data_dir = folder / "data"
        self.config = INSIDE / self.config.name
        self.program = [sys.executable, "-m", "turnout"]
        self._unshare = _unshare()
        self._lives = 0

    @property
    def pid(self) -> int:
        """Turnout's own, once it answers."""
        [process] = psutil.Process(super().pid).children()
        return process.pid

    def start(self, *, ready: bool = True) -> Self:
        self._lives += 1
        wrapped = ["sh", "-c", _WRAPPED, "alone", str(self.folder), f"left-{self._lives}"]
        self.command = [*self._unshare, *wrapped, *self.program]
        return super().start(ready=ready)

    def wait_gone(self) -> None:
        """Wait until nothing runs any more of a life that has ended."""
        wait_until(lambda: not living_in(super(AloneTurnout, self).pid), what="the end of all its processes")

    def left(self) -> list[str]:
        """What the last life, which has ended, left in the system's temporary folder."""
        return (self.folder / f"left-{self._lives}").read_text().splitlines()

    def temporary(self) -> list[str]:
        """What is temporary in its own folder."""
        found = [*self.data_dir.glob("tmp*"), *self.data_dir.glob("*.tmp"), *self.spark_dir.glob("*")]
        return sorted(path.name for path in found if path.name not in _KEPT)


def _unshare() -> list[str]:
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
            return unshare
    raise AssertionError("a process here may not have a mount namespace of its own")
