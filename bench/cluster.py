"""Cluster: catch-up on a standalone Spark cluster of separate processes, with one and with two worker cores.

The executors are warm. Everything runs on this machine, also the driver with its store and the broker, so a second
worker core is not an additional core.
"""

from __future__ import annotations

import sys
from typing import Any

from context import Bench
from processes import tree_cpu_seconds
from spark_cluster import SparkCluster, loopback
from turnout_side import TurnoutSide, running, swap_seconds

MOST_RECORDS = 300_000
CORES = (1, 2)
MOST_RUNS = 2
MEMORY = "1g"
JOINS = ("natural", "left")
"""Two joins with the same rows, so that each swap is a change; `start` makes it read all records again."""


def measure(bench: Bench) -> dict[str, Any]:
    """Return seconds from the control record to a subscriber that has all tables, by the number of worker cores.

    Also return the processor time of the executors, which a cluster distributes, and of the driver, which it does not.
    """
    pair = bench.pair("cluster", min(bench.sizes.records, MOST_RECORDS))
    taken: dict[str, list[float]] = {}
    used: dict[str, list[dict[str, float]]] = {}
    for cores in CORES:
        with (
            bench.own_folder(f"cluster-{cores}") as folder,
            SparkCluster(folder / "spark", loopback(["master", "one", "two"], "the broker is on loopback")) as cluster,
        ):
            cluster.start_workers(1, MEMORY, ("one", "two")[:cores])
            conf = cluster.conf | {"spark.pyspark.python": sys.executable, "spark.executor.memory": MEMORY}
            spark = {"master": cluster.master, "conf": conf}
            with running(folder, bench.bootstrap, pair.topics, spark=spark) as side:
                bench.say(f"cluster, {cores} worker cores: the first build is done")
                runs = min(MOST_RUNS, bench.sizes.runs)
                for number in range(runs):
                    before = _used(cluster, side)
                    seconds = swap_seconds(side, pair, joinType=JOINS[number % 2], start="earliest")
                    bench.say(f"cluster, {cores} worker cores, run {number + 1} of {runs}: {seconds:.1f} s")
                    taken.setdefault(str(cores), []).append(seconds)
                    after = _used(cluster, side)
                    used.setdefault(str(cores), []).append({part: after[part] - before[part] for part in after})
    return {"records": pair.records, "seconds": taken, "cpu_seconds": used}


def _used(cluster: SparkCluster, side: TurnoutSide) -> dict[str, float]:
    """Return the processor seconds of the executors and the driver since their start."""
    workers = (tree_cpu_seconds(worker.process.pid) for worker in cluster.workers.values())
    driver_jvm = tree_cpu_seconds(side.java().pid)
    return {
        "executors": sum(workers),
        "driver, JVM": driver_jvm,
        "driver, store and server": tree_cpu_seconds(side.pid) - driver_jvm,
    }
