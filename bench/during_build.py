"""Latency of the published generation while another generation catches up on the large topics."""

from __future__ import annotations

import threading
import time
from typing import Any

from context import Bench
from latency import PER_SECOND, fresh_topics, of_changes, quantiles, wait_flowing
from load import Load
from records import Pair
from turnout.testing import wait_until
from turnout_side import BUILD_SECONDS, SHORT_LINGER, TurnoutSide, running

MOST_RUNS = 2


def measure(bench: Bench) -> dict[str, Any]:
    """Return p50 and p99 of each run, without and during a build, and the seconds of the builds."""
    pair = bench.pair("catch-up-1", bench.sizes.records)
    topics = fresh_topics(bench.bootstrap, "beside")
    results: dict[str, Any] = {"alone": [], "beside": [], "build_seconds": []}
    with (
        bench.own_folder("beside") as folder,
        running(folder, bench.bootstrap, topics, "latest", swap=SHORT_LINGER) as side,
        Load(bench.bootstrap, topics, PER_SECOND).running(),
    ):
        wait_flowing(side)
        time.sleep(bench.sizes.compile_seconds)
        runs = min(MOST_RUNS, bench.sizes.runs)
        for number in range(runs):
            bench.say(f"a build beside it, run {number + 1} of {runs}")
            results["alone"].append(quantiles(of_changes(side, bench.sizes.seconds)))
            ages, seconds = _while_building(side, pair)
            results["beside"].append(quantiles(ages))
            results["build_seconds"].append(seconds)
            _go_back(side, topics)
    return results


def _while_building(side: TurnoutSide, pair: Pair) -> tuple[list[float], float]:
    """Return the latencies of the old generation until the new one is published, and the seconds of the build."""
    shown = side.status()["generation"]
    published = threading.Event()

    def watch() -> None:
        while side.status()["generation"] == shown and time.monotonic() < began + BUILD_SECONDS:
            time.sleep(0.05)
        published.set()

    began = side.ask(usersTopic=pair.users, accountsTopic=pair.accounts, start="earliest")
    watcher = threading.Thread(target=watch)
    watcher.start()
    ages = of_changes(side, BUILD_SECONDS, 0.0, table=f"final_ui@{shown}", ended=published)
    watcher.join()
    return ages, time.monotonic() - began


def _go_back(side: TurnoutSide, topics: tuple[str, str]) -> None:
    shown = side.status()["generation"]
    side.ask(usersTopic=topics[0], accountsTopic=topics[1], start="latest")
    wait_until(lambda: side.status()["generation"] > shown, BUILD_SECONDS, what="the swap back")
    wait_until(lambda: not side.status()["lingering"], 60, what="the large generation is retired")
