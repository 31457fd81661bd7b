"""Nothing of Turnout stays in the system's temporary folder, whichever way its process ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lengths import LONG
from running import RunningTurnout, lives
from turnout.local.broker import EmbeddedBroker
from turnout.testing import create_topic, produce, wait_until

# A folder of the machine's own is mounted where Turnout sees it beside its empty /tmp. What is left in that /tmp is
# written down when the process has ended, for the namespace ends with it.
_WRAPPED = """
mount --bind "$1" /mnt && mount -t tmpfs none /tmp || exit 99
left="$2"; shift 2
"$@"; code=$?
find /tmp -mindepth 1 > "/mnt/$left"
exit $code
"""


ENDS = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM) if LONG else (signal.SIGKILL, signal.SIGTERM)


@dataclass
class Alone:
    """Runs Turnout with an empty system's temporary folder of its own."""

    folder: Path
    unshare: list[str]
    lives: int = 0

    def run(self, turnout: RunningTurnout) -> psutil.Process:
        """Start it and wait until it is ready; its process."""
        self.lives += 1
        wrapped = [*self.unshare, "sh", "-c", _WRAPPED, "alone", str(self.folder), f"left-{self.lives}"]
        turnout.command = [*wrapped, sys.executable, "-m", "turnout"]
        turnout.config = Path("/mnt") / turnout.config.name
        turnout.start()
        [process] = psutil.Process(turnout.pid).children()
        return process

    def left(self) -> list[str]:
        """What the last life left in its temporary folder."""
        return (self.folder / f"left-{self.lives}").read_text().splitlines()


@pytest.fixture
def alone(tmp_path: Path) -> Alone:
    for unshare in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
            return Alone(tmp_path, unshare)
    raise AssertionError("a process here may not have a mount namespace of its own")


def children_end(family: list[psutil.Process]) -> None:
    wait_until(lambda: not any(lives(one) for one in family), what="the end of all its processes")


def temporary_in(data_dir: Path) -> list[str]:
    found = [*data_dir.glob("tmp*"), *data_dir.glob("*.tmp"), *(data_dir / "spark").glob("*")]
    kept = {"spark.log", "java.log", "java.log.1", "log4j2.properties", "warehouse"}
    return sorted(path.name for path in found if path.name not in kept)


def test_nothing_stays_in_the_temporary_folder(broker: EmbeddedBroker, tmp_path: Path, alone: Alone) -> None:
    """After an end in order nothing is left at all; after a kill nothing in the system's folder, nor after a start."""
    bootstrap = broker.bootstrap_servers
    for topic in ("temporary-users", "temporary-accounts", "temporary-control"):
        create_topic(bootstrap, topic, 1)
    # So many that each life reads some in bulk, which has files of its own.
    many = [json.dumps({"userId": f"k{n}", "name": "n", "age": n}) for n in range(45_000)]
    columns = {"userId": "string", "name": "string", "age": "int64"}
    users = {"topic": "temporary-users", "table": "users_ui", "key": "userId", "columns": columns}
    columns = {"userId": "string", "balance": "double"}
    accounts = {"topic": "temporary-accounts", "table": "accounts_ui", "key": "userId", "columns": columns}
    turnout = RunningTurnout(
        tmp_path,
        bootstrap,
        sources={"users": users, "accounts": accounts},
        control={"topic": "temporary-control"},
        start="earliest",
        data_dir="/mnt/data",
    )
    data_dir = tmp_path / "data"

    for life, number in enumerate(ENDS, start=1):
        produce(bootstrap, "temporary-users", many)
        process = alone.run(turnout)
        assert list(data_dir.rglob("left")) == []
        wait_until(lambda life=life: turnout.total("final_ui") == life * len(many), what="rows")  # type: ignore[misc]
        family = [psutil.Process(turnout.pid), process, *process.children(recursive=True)]
        process.send_signal(number)
        children_end(family)
        assert alone.left() == []
        if number == signal.SIGTERM:
            assert temporary_in(data_dir) == []
        else:
            (data_dir / "spark" / "tmp" / "left").mkdir(parents=True, exist_ok=True)
            (data_dir / "tmp" / "left").mkdir(parents=True, exist_ok=True)
            (data_dir / "store.tmp" / "left").mkdir(parents=True, exist_ok=True)
    turnout.http.close()
