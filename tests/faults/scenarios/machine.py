"""The machine that Turnout runs on: its clock and its disk."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime
from pathlib import Path

from faults import faked
from faults.scenarios import bulk
from faults.stage import NotPossibleError, Stage
from faults.world import Comparison, World
from small_disk import fill, small_disk
from turnout.testing import wait_until

LOAD_SECONDS = 3
DISK_MEGABYTES = 64
FULL_SECONDS = 6
HOW_TO_INSTALL = "no libfaketime: apt-get install libfaketime (Debian, Ubuntu)"


def clock_jumps(stage: Stage) -> Comparison:
    """The clock jumps an hour ahead, an hour behind, and is right again while Turnout swaps; then it is restarted."""
    folder = stage.new_folder()
    clock = folder / "clock"
    clock.write_text("+0\n")
    world = World(folder, stage.kafka)
    world.process.command = ["env", *_faked(clock), sys.executable, str(Path(faked.__file__))]
    with world:
        world.producer.resume()
        for moment, join in (("+3600", "inner"), ("-3600", "full"), ("+0", "left")):
            time.sleep(LOAD_SECONDS)
            clock.write_text(f"{moment}\n")
            time.sleep(LOAD_SECONDS)
            _believes(world, int(moment))
            answer = world.control.post({"joinType": join})
            # librdkafka waits by the system's clock: set back, it may be silent for so long, which has to be told.
            told = moment.startswith("-") and answer.get("error", {}).get("code") == "kafka_unreachable"
            assert told or answer.get("outcome") == "applied", f"at {moment} s: {answer}; log:\n{world.turnout.log()}"
        # What librdkafka still holds back, acknowledgements too, comes with a restart.
        world.process.stop()
        began = time.monotonic()
        world.process.start()
        return world.recover(began)


def _believes(world: World, ahead_seconds: int) -> None:
    """Turnout's own clock is as far off as it should be: the fault is real."""
    told = world.turnout.status()["time"]
    off = datetime.fromisoformat(told).timestamp() - time.time()
    assert abs(off - ahead_seconds) < 60, f"the clock is {off:.0f} s off, not {ahead_seconds}"


def _faked(clock: Path) -> list[str]:
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if not found:
        raise NotPossibleError(HOW_TO_INSTALL)
    return [
        f"LD_PRELOAD={found[0]}",
        f"FAKETIME_TIMESTAMP_FILE={clock}",
        "FAKETIME_CACHE_DURATION=1",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "FAKETIME_FORCE_MONOTONIC_FIX=0",  # with it, every timed wait of the JVM ends at once
    ]


def disk_full(stage: Stage) -> Comparison:
    """The disk of the data folder is full for a while; that is told, and reading goes on when there is room."""
    if os.geteuid() != 0:
        raise NotPossibleError("a small file system has to be mounted: run as root")
    folder = stage.new_folder()
    with (
        small_disk(folder / "disk", DISK_MEGABYTES) as disk,
        World(folder, stage.kafka, data_dir=str(disk / "data")) as world,
    ):
        world.producer.resume()
        time.sleep(LOAD_SECONDS)
        fill(disk / "filler")
        values = (f'{{"userId": "u{n}", "name": "{"x" * 500}"}}'.encode() for n in range(5000))
        bulk.write(world.bootstrap, world.topics.users, values)
        wait_until(lambda: "No space left on device" in world.turnout.reason(), what="it to be told")
        fill(disk / "filler")
        world.control.send({"joinType": "inner"})
        time.sleep(FULL_SECONDS)
        (disk / "filler").unlink()
        return world.recover(time.monotonic())
