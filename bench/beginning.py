"""Start: the time from `turnout run` to the first row over HTTP, with cached jars; then the first swap.

The swap is like that of a first user of the demo: small topics, 20 records a second in all, a few seconds after the
start, and the first swap of its process.
"""

from __future__ import annotations

import time
from typing import Any

import httpx

from context import Bench
from load import Load
from turnout_side import BUILD_SECONDS, TurnoutSide, running, swap_seconds

ROWS = 1_000
PER_SECOND = 10
LOOK_SECONDS = 3.0


def measure(bench: Bench) -> dict[str, Any]:
    """Return the seconds of each start, with an empty data folder, and of its first swap."""
    pair, other = bench.pair("start", ROWS), bench.pair("start-other", ROWS)
    taken, swaps = [], []
    for number in range(bench.sizes.runs):
        bench.say(f"start, run {number + 1} of {bench.sizes.runs}")
        with (
            bench.own_folder(f"start-{number}") as folder,
            running(folder, bench.bootstrap, pair.topics, ready=False) as side,
        ):
            taken.append(_first_row(side))
            with Load(bench.bootstrap, pair.topics, PER_SECOND).running():
                time.sleep(LOOK_SECONDS)
                swaps.append(swap_seconds(side, other, start="latest"))
    return {"seconds": taken, "first_swap": swaps}


def _first_row(side: TurnoutSide) -> float:
    began = time.monotonic()
    while not _has_rows(side.http):
        if time.monotonic() > began + BUILD_SECONDS:
            raise TimeoutError(f"no row within {BUILD_SECONDS} s; log:\n{side.log()}")
        time.sleep(0.05)
    return time.monotonic() - began


def _has_rows(http: httpx.Client) -> bool:
    try:
        response = http.get("/api/tables/final_ui/rows", params={"limit": 1})
        return response.is_success and bool(response.json()["rows"])
    except httpx.HTTPError:
        return False
