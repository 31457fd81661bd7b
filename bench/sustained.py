"""Sustained: 50,000 records a second for a minute, measured by a window of the newest account."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

import processors
from context import Bench
from latency import fresh_topics, of_window, quantiles, wait_flowing
from load import Load
from turnout_side import TurnoutSide, running

PER_SECOND = 50_000
DRAIN_SECONDS = 60


def measure(bench: Bench) -> dict[str, Any]:
    """Return p50 and p99, the lag of each second, and the seconds until there is no lag after the end."""
    topics = fresh_topics(bench.bootstrap, "sustained")
    seconds = bench.sizes.sustained_seconds
    with bench.own_folder("sustained") as folder, running(folder, bench.bootstrap, topics, "latest") as side:
        bench.say(f"sustained: {PER_SECOND:,} records a second for {seconds:g} s")
        with Load(bench.bootstrap, topics, 200, first_user=1_000_000_000).running():
            wait_flowing(side)
        with Load(bench.bootstrap, topics, PER_SECOND // 2, first_user=2_000_000_000).running():
            time.sleep(bench.sizes.compile_seconds)
        _drained(side)
        before = side.status()["records"]
        with lags(side) as lag:
            with Load(bench.bootstrap, topics, PER_SECOND // 2).running():
                started, begin = time.monotonic(), processors.snapshot(side.pid)
                ages = of_window(side, seconds)
                lasted, usage = time.monotonic() - started, processors.used(begin, processors.snapshot(side.pid))
            during = list(lag)
            drained = _drained(side)
        records = side.status()["records"] - before
    return {
        **quantiles(ages),
        "asked_per_second": PER_SECOND,
        "records_per_second": records / lasted,
        "lag": during,
        "lag_at_end": during[-1],
        "drain_seconds": drained,
        "processors": {f"sustained, {PER_SECOND:,} records/s": {"Turnout": [usage]}} if usage else {},
    }


def bounded(lag: list[int]) -> bool:
    """Whether the lag in the last third is not clearly larger than in the second third."""
    third = len(lag) // 3
    return third > 0 and max(lag[-third:]) <= 1.1 * max(lag[third : 2 * third]) + PER_SECOND


@contextmanager
def lags(side: TurnoutSide) -> Iterator[list[int]]:
    """Record the lag of the published tables once a second during a `with` block."""
    stopped = threading.Event()
    seen: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{side.port}", timeout=10) as http:
            while not stopped.wait(1.0):
                seen.append(int(http.get("/api/status").json()["lag"] or 0))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
    finally:
        stopped.set()
        thread.join()


def _drained(side: TurnoutSide) -> float | None:
    began = time.monotonic()
    while time.monotonic() < began + DRAIN_SECONDS:
        time.sleep(0.5)
        if side.status()["lag"] == 0:
            return time.monotonic() - began
    return None
