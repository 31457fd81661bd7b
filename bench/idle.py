"""Idle: the cores that all processes of Turnout use with 20 records a second in all, and without new records.

The broker is not counted. There are no subscribers; the measure `viewers` covers them.
"""

from __future__ import annotations

import time
from typing import Any

import processors
from context import Bench
from load import Load
from processes import tree_cpu_seconds
from turnout.testing import wait_until
from turnout_side import TurnoutSide, running

ROWS = 1_000
PER_SECOND = 10
SETTLE_SECONDS = 10.0


def measure(bench: Bench) -> dict[str, Any]:
    """Return the cores for each load, measured after a settling time."""
    pair = bench.pair("idle", ROWS)
    results: dict[str, Any] = {"seconds": bench.sizes.idle_seconds, "cores": {}, "processors": {}}
    with bench.own_folder("idle") as folder, running(folder, bench.bootstrap, pair.topics) as side:
        with Load(bench.bootstrap, pair.topics, PER_SECOND).running():
            time.sleep(bench.sizes.compile_seconds)
            _follow(bench, side, results, f"{2 * PER_SECOND} records/s in all")
        wait_until(lambda: side.status()["lag"] == 0, 60, what="all records are shown")
        time.sleep(min(SETTLE_SECONDS, bench.sizes.idle_seconds))
        _follow(bench, side, results, "no new records")
    return results


def _follow(bench: Bench, side: TurnoutSide, results: dict[str, Any], load: str) -> None:
    seconds = bench.sizes.idle_seconds
    bench.say(f"idle: {load}, for {seconds:g} s")
    began, before, begin = time.monotonic(), tree_cpu_seconds(side.pid), processors.snapshot(side.pid)
    time.sleep(seconds)
    used, usage = tree_cpu_seconds(side.pid) - before, processors.used(begin, processors.snapshot(side.pid))
    results["cores"][load] = used / (time.monotonic() - began)
    if usage:
        results["processors"][f"idle, {load}"] = {"Turnout": [usage]}
