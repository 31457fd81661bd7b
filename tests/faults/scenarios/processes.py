"""Processes that are killed, or asked to end, in the middle of their work."""

from __future__ import annotations

import signal
import time

import psutil

from callback_attack import attacked
from faults.scenarios import bulk
from faults.stage import Stage
from faults.world import Comparison, World
from turnout.testing import wait_until

LOAD_SECONDS = 2
CATCH_UP_RECORDS = 400_000
ATTACKS = 5


def kill_turnout(stage: Stage) -> Comparison:
    """kill -9 of Turnout under load, with a message on its way; it is started again."""
    world = stage.world()
    time.sleep(LOAD_SECONDS)
    world.control.send({"joinType": "inner"})
    world.process.kill()
    time.sleep(LOAD_SECONDS)
    started = time.monotonic()
    world.process.start()
    return world.recover(started)


def kill_spark(stage: Stage) -> Comparison:
    """kill -9 of Spark's JVM under load; Turnout starts another one by itself."""
    world = stage.world()
    time.sleep(LOAD_SECONDS)
    java = world.process.java()
    java.kill()
    killed = time.monotonic()
    wait_until(lambda: f"Spark's JVM (process {java.pid}) was killed" in world.turnout.reason(), what="it to be told")
    world.control.send({"joinType": "inner"})
    return world.recover(killed)


def kill_worker(stage: Stage) -> Comparison:
    """kill -9 of Spark's Python workers while a build catches up."""
    world = stage.world()
    world.producer.pause()
    large = world.make_topics()
    bulk.users(world.bootstrap, large.users, CATCH_UP_RECORDS)
    java = world.process.java()
    request = world.control.send({"usersTopic": large.users, "accountsTopic": large.accounts})
    workers: list[psutil.Process] = []

    def found() -> bool:
        workers[:] = [worker for child in java.children() if _is_daemon(child) for worker in child.children()]
        return bool(workers)

    wait_until(found, interval=0.01, what="a Python worker")
    for worker in workers:
        worker.kill()
    killed = time.monotonic()
    wait_until(lambda: world.control.outcome(request), what="an outcome")
    assert world.control.outcome(request) == "applied", world.turnout.rows("control_raw", sort="-ts", limit=1)
    world.follow(large)
    return world.recover(killed)


def _is_daemon(process: psutil.Process) -> bool:
    """Whether this is what starts Python workers; not one that has ended, which may stay in the list of processes."""
    try:
        return "daemon" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def terminate(stage: Stage) -> Comparison:
    """SIGTERM under load, in a swap; it ends in order, is started again, and applies the swap."""
    world = stage.world()
    time.sleep(LOAD_SECONDS)
    request = world.control.send({"joinType": "full"})
    wait_until(lambda: world.turnout.status()["state"] != "live", interval=0.01, what="the swap to begin")
    assert world.process.stop(signal.SIGTERM) == 0, world.turnout.log()
    time.sleep(LOAD_SECONDS)
    started = time.monotonic()
    world.process.start()
    found = world.recover(started)
    assert world.control.outcome(request) == "applied", "an end in order is no reason to give a swap up"
    return found


def callback_port(stage: Stage) -> Comparison:
    """Another user sends what Spark's JVM would, to every port of Turnout's process, under load; it stays ready."""
    world = stage.world()
    open_ports = psutil.Process(world.process.pid).net_connections("tcp")
    ports = sorted({one.laddr.port for one in open_ports if one.status == psutil.CONN_LISTEN})
    before = _stops(world)
    for _ in range(ATTACKS):
        time.sleep(LOAD_SECONDS)
        assert attacked(ports) == 0, "commands that were carried out"
        assert world.turnout.answer("/readyz") == 200, world.turnout.reason()
    found = world.recover(time.monotonic())
    assert _stops(world) == before, world.turnout.log()
    return found


def _stops(world: World) -> int:
    """How often a generation has stopped reading, faults before this one included."""
    return sum("stopped reading" in line["msg"] for line in world.turnout.rows("orchestrator_logs"))
