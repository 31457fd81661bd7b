"""Idle: how much of a core all processes of Turnout take with 20 records a second in all, and with none.

The broker is not one of them. Nobody is subscribed: what viewers cost is a measure of its own.
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
    """Cores by load, after it has flowed, or rested, for a while."""
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
