"""Capacity: the memory and disk space of a million additional rows, from two first builds of different sizes."""

from __future__ import annotations

import time
from typing import Any

import psutil

from context import Bench
from turnout_side import first_build, running

SHARES = (0.1, 1.0)
SETTLE_SECONDS = 20.0
"""The time in which the JVM releases the memory of the catch-up and the store writes its file."""


def measure(bench: Bench) -> dict[str, Any]:
    """Return for each size the rows of all tables, the memory of Spark's JVM and of the server, and the file size."""
    taken = []
    for share in SHARES:
        pair = bench.pair(f"capacity-{share:g}", int(bench.sizes.records * share))
        with (
            bench.own_folder(f"capacity-{share:g}") as folder,
            running(folder, bench.bootstrap, pair.topics, ready=False) as side,
        ):
            seconds = first_build(side, pair).seconds
            time.sleep(min(SETTLE_SECONDS, 2 * bench.sizes.seconds))
            python = psutil.Process(side.pid).memory_info().rss / 2**20
            taken.append(
                {
                    "rows": sum(side.total(table) for table in ("users_ui", "accounts_ui", "final_ui")),
                    "seconds": seconds,
                    "store_mb": python,
                    "spark_mb": side.memory_mb - python,
                    "file_mb": sum(file.stat().st_size for file in side.data_dir.glob("*.duckdb*")) / 2**20,
                }
            )
            bench.say(f"capacity: {taken[-1]}")
    return {"builds": taken}
