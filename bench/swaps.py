"""Swaps: the time from the control message to a subscriber that has all tables of the new generation, during reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from context import Bench
from records import Pair
from turnout_side import TurnoutSide, running, swap_seconds

_PAUSE_SECONDS = 0.5


@dataclass(slots=True)
class Reads:
    """The results of a reader that requests `final_ui` repeatedly."""

    answers: int = 0
    errors: int = 0
    incomplete: int = 0


def measure(bench: Bench) -> dict[str, Any]:
    """Measure swaps that start at the latest record, and swaps that must catch up."""
    one, other = (bench.pair(f"swap-{name}", bench.sizes.swap_rows) for name in ("a", "b"))
    with (
        bench.own_folder("swaps") as folder,
        running(folder, bench.bootstrap, one.topics) as side,
        httpx.Client(base_url=f"http://127.0.0.1:{side.port}", timeout=10) as http,
    ):
        results: dict[str, Any] = {"rows": bench.sizes.swap_rows}
        for name, start, count in (
            ("earliest", "earliest", max(3, bench.sizes.swaps // 2)),
            ("latest", "latest", bench.sizes.swaps),
        ):
            bench.say(f"swap, start: {name}, {count} times")
            reads = Reads()
            # With `latest` the new tables are empty as requested, so only errors are counted. With `earliest` a
            # reader must never see fewer than all rows.
            complete = bench.sizes.swap_rows if start == "earliest" else 0
            with reading(http, complete, reads):
                results[name] = [paused_swap(side, other if turn % 2 == 0 else one, start) for turn in range(count)]
            results[f"{name} reads"] = {"answers": reads.answers, "errors": reads.errors}
            if complete:
                results[f"{name} reads"]["incomplete"] = reads.incomplete
        return results


def paused_swap(side: TurnoutSide, pair: Pair, start: str) -> float:
    """Measure a swap after a short pause."""
    time.sleep(_PAUSE_SECONDS)
    return swap_seconds(side, pair, start=start)


@contextmanager
def reading(http: httpx.Client, complete: int, reads: Reads) -> Iterator[None]:
    """Request rows continuously during a `with` block; count errors and answers with fewer than `complete` rows."""
    stopped = threading.Event()

    def ask() -> None:
        while not stopped.wait(0.02):
            try:
                response = http.get("/api/tables/final_ui/rows", params={"limit": 10})
                response.raise_for_status()
                reads.answers += 1
                reads.incomplete += response.json()["total"] < complete
            except httpx.HTTPError:
                reads.errors += 1

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
