"""Starved: latency and swaps beside two busy loops, compared with the same process alone.

The ratio shows how Turnout performs on a machine that other programs use.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from context import Bench
from latency import PER_SECOND, fresh_topics, of_changes, quantiles, wait_flowing
from load import Load
from records import Pair
from swaps import paused_swap
from turnout_side import TurnoutSide, running

LOOPS = 2
# The loop ends after 5 minutes, so that nothing keeps running if the bench is killed.
_LOOP = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: pass"
_SWAPS = {"latest": 5, "earliest": 3}


def measure(bench: Bench) -> dict[str, Any]:
    """Return p50, p99 and seconds of swaps, alone and starved."""
    one, other = (bench.pair(f"swap-{name}", bench.sizes.swap_rows) for name in ("a", "b"))
    topics = fresh_topics(bench.bootstrap, "starved")
    results: dict[str, Any] = {"loops": LOOPS, "rows": bench.sizes.swap_rows, "alone": {}, "starved": {}}
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {"alone": nullcontext, "starved": busy_loops}
    with bench.own_folder("starved") as folder, running(folder, bench.bootstrap, topics, "latest") as side:
        with Load(bench.bootstrap, topics, PER_SECOND).running():
            wait_flowing(side)
            time.sleep(bench.sizes.compile_seconds)
            for way, beside in ways.items():
                bench.say(f"starved: latency, {way}")
                with beside():
                    results[way]["latency"] = [quantiles(of_changes(side, bench.sizes.seconds))]
        paused_swap(side, one, "earliest")  # the first swap of a process is measured elsewhere
        for way, beside in ways.items():
            bench.say(f"starved: swaps, {way}")
            with beside():
                results[way] |= {start: _swaps(side, (other, one), start, times) for start, times in _SWAPS.items()}
    return results


def _swaps(side: TurnoutSide, pairs: tuple[Pair, Pair], start: str, times: int) -> list[float]:
    return [paused_swap(side, pairs[turn % 2], start) for turn in range(times)]


@contextmanager
def busy_loops() -> Iterator[None]:
    """Run two busy loops during a `with` block."""
    loops: list[subprocess.Popen[bytes]] = []
    try:
        loops += [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(LOOPS)]
        yield
    finally:
        for loop in loops:
            loop.kill()
        for loop in loops:
            loop.wait()
