"""Start: from the command `turnout run` to the first row over HTTP, with the jars in the cache."""

from __future__ import annotations

import time
from typing import Any

import httpx

from context import Bench
from turnout_side import BUILD_SECONDS, running

ROWS = 1_000


def measure(bench: Bench) -> dict[str, Any]:
    """Seconds of some starts, each with an empty data folder."""
    pair = bench.pair("start", ROWS)
    taken = []
    for number in range(bench.sizes.runs):
        bench.say(f"start, run {number + 1} of {bench.sizes.runs}")
        with (
            bench.own_folder(f"start-{number}") as folder,
            running(folder, bench.bootstrap, pair.topics, ready=False) as side,
        ):
            began = time.monotonic()
            while not _has_rows(side.http):
                if time.monotonic() > began + BUILD_SECONDS:
                    raise TimeoutError(f"no row within {BUILD_SECONDS} s; log:\n{side.log()}")
                time.sleep(0.05)
            taken.append(time.monotonic() - began)
    return {"seconds": taken}


def _has_rows(http: httpx.Client) -> bool:
    try:
        response = http.get("/api/tables/final_ui/rows", params={"limit": 1})
        return response.is_success and bool(response.json()["rows"])
    except httpx.HTTPError:
        return False
