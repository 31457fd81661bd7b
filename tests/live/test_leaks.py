"""Swaps leave nothing behind: neither in this process nor in Spark's JVM."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from in_process_orchestrator import Orchestrated, orchestrated
from lengths import LEAK_SWAPS, LONG
from turnout.local.broker import EmbeddedBroker
from turnout.plan.control import Outcome
from turnout.testing import create_topic, wait_until
from turnout_process import ASKED_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERY = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
_SESSION = "org.apache.spark.sql.classic.SparkSession"

_GROWING_POOLS = re.compile(r"block-manager-(ask|storage-async)-thread-pool-")
"""Spark starts a thread of these for each task up to 128, even if others are idle, and ends it after a minute."""

HEAP_MB = 0.1
"""How much more of the heap a swap may hold: what Spark counts, such as its histograms, fills up with time."""


@dataclass(frozen=True, slots=True)
class Held:
    """What is held when nothing lingers, after a collection of both sides."""

    files: int
    java_files: int
    threads: int
    java_threads: int
    classes: int
    queries: int
    sessions: int
    heap_mb: float

    @classmethod
    def of(cls, spark: SparkSession) -> Held:
        gc.collect()
        jvm: Any = spark.sparkContext._jvm
        beans = jvm.java.lang.management.ManagementFactory
        counts = _instances(spark)
        names = [info.getThreadName() for info in beans.getThreadMXBean().dumpAllThreads(False, False)]
        java = psutil.Process(int(jvm.java.lang.ProcessHandle.current().pid()))
        return cls(
            files=psutil.Process().num_fds(),
            java_files=java.num_fds(),
            threads=psutil.Process().num_threads(),
            java_threads=sum(not _GROWING_POOLS.match(name) for name in names),
            classes=int(beans.getClassLoadingMXBean().getLoadedClassCount()),
            queries=counts.get(_QUERY, 0),
            sessions=counts.get(_SESSION, 0),
            heap_mb=beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() / 2**20,
        )

    def least(self, other: Held) -> Held:
        """The smaller of each: what is on its way out at one moment is gone at another."""
        return Held(*map(min, astuple(self), astuple(other)))


def _instances(spark: SparkSession) -> dict[str, int]:
    """How many objects of each class there are, after a full collection."""
    gateway: Any = spark.sparkContext._gateway
    jvm = gateway.jvm
    # What finalizers let go in one collection is free in the next, which is that of the histogram.
    jvm.java.lang.System.gc()
    jvm.java.lang.System.runFinalization()
    beans = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    commands = jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand")

    def array(kind: Any, *values: Any) -> Any:
        made = gateway.new_array(kind, len(values))
        for number, value in enumerate(values):
            made[number] = value
        return made

    text, many = jvm.java.lang.String, "[Ljava.lang.String;"
    taken = [commands, "gcClassHistogram", array(jvm.java.lang.Object, array(text)), array(text, many)]
    # By the interface: the class itself belongs to a module that lets nobody in.
    names = ("javax.management.ObjectName", "java.lang.String", "[Ljava.lang.Object;", many)
    types = array(jvm.java.lang.Class, *(jvm.java.lang.Class.forName(name) for name in names))
    invoke = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethod("invoke", types)
    found = str(invoke.invoke(beans, array(jvm.java.lang.Object, *taken)))
    return {name: int(count) for count, name in re.findall(r"^ *\d+: +(\d+) +\d+ +(\S+)", found, re.MULTILINE)}


def settled(spark: SparkSession, others: int) -> Held:
    """What is held once nothing lingers; `others` are queries that Spark remembers of tests before this one."""
    wait_until(lambda: len(spark.streams.active) == 1, interval=ASKED_SECONDS, what="an end of lingering")
    found: list[Held] = []

    def alone() -> bool:
        found.append(Held.of(spark))
        return found[-1].queries <= 1 + others

    wait_until(alone, interval=1, what="no query but that of the generation")
    held = found[-1]
    for _ in range(3 if LONG else 1):  # each is two collections of the JVM's whole heap
        held = held.least(Held.of(spark))
    return held


def swap(running: Orchestrated, pairs: list[tuple[str, str]], numbers: range) -> None:
    for number in numbers:
        users, accounts = pairs[(number + 1) % 2]
        answer = running.send(usersTopic=users, accountsTopic=accounts, start="latest")
        assert answer.outcome is Outcome.APPLIED, answer


def test_swaps_between_empty_topics_leave_nothing_in_either_process(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    pairs = [(topic_name("users"), topic_name("accounts")) for _ in range(2)]
    control = topic_name("control")
    for topic in (*pairs[0], *pairs[1], control):
        create_topic(broker.bootstrap_servers, topic, 1)
    columns = {"userId": "string", "name": "string"}
    users = {"topic": pairs[0][0], "table": "users_ui", "key": "userId", "columns": columns}
    columns = {"userId": "string", "balance": "double"}
    accounts = {"topic": pairs[0][1], "table": "accounts_ui", "key": "userId", "columns": columns}
    sections = {
        "sources": {"users": users, "accounts": accounts},
        "control": {"topic": control},
        "start": "latest",
        "swap": {"linger_seconds": 0.1, "max_linger_generations": 1},
    }
    first, last = LEAK_SWAPS
    others = _instances(spark).get(_QUERY, 0)
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections) as running:
        swap(running, pairs, range(first))
        before = settled(spark, others)
        swap(running, pairs, range(first, last))
        after = settled(spark, others)
    print(f"after {first} swaps {before}, after {last} {after}")
    more = last - first
    grown = Held(*(now - then for now, then in zip(astuple(after), astuple(before), strict=True)))
    assert (after.queries <= 1 + others, grown.sessions <= 1) == (True, True), (before, after)
    # One more a swap would be `more` of them; pools and caches have some, or some less.
    counted = (grown.files, grown.java_files, grown.threads, grown.java_threads)
    assert max(counted) < more / 2, (before, after)
    # The first swaps load some classes late: by reflection, which the JVM compiles when it is used often.
    assert grown.classes < (0 if LONG else 500) + more / 2, (before, after)
    assert grown.heap_mb < 10 + HEAP_MB * more, (before, after)
