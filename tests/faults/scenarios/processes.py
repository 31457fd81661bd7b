"""Processes that are killed, or asked to end, in the middle of their work."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil

import killed_turnout
from callback_attack import attacked
from faults.scenarios import bulk
from faults.stage import Stage
from faults.world import Comparison, World
from turnout.testing import wait_until

LOAD_SECONDS = 2
CATCH_UP_RECORDS = 400_000
ATTACKS = 5
KEEPING = {"validating": "inner", "copying": "anti", "views": "full", "publishing": "semi", "live": "right"}
"""The points of a build at which Turnout is killed, and the join that is asked for then."""
CANDIDATES = (
    ("joinType", "anti", "candidate"),
    ("action", "discard", "applied"),
    ("joinType", "full", "candidate"),
    ("action", "publish", "applied"),
)
"""The field, value and outcome of messages about candidates; Turnout is killed in each of them, at two points."""
KEPT_ROWS = 500
"""How many rows more of the users are shown before each of these kills."""


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


def kill_keeping(stage: Stage) -> Comparison:
    """kill -9 of Turnout in builds of other joins, which keep all rows, under load; it is started again each time."""
    world = World(stage.new_folder(), stage.kafka)
    flag = world.process.folder / "flag"
    world.process.command = [sys.executable, str(Path(killed_turnout.__file__)), str(flag)]
    with world:
        for point, join in KEEPING.items():
            world.producer.resume()
            _wait_more_users(world, KEPT_ROWS)
            flag.write_text(point)
            request = world.control.send({"joinType": join})
            world.process.wait_killed()
            flag.unlink()
            started = time.monotonic()
            world.process.start()
            found = world.recover(started)
            assert world.control.outcome(request) == "applied", f"killed at {point}: {world.turnout.log()}"
            assert world.turnout.status()["joinType"] == join, f"killed at {point}"
            if not found.equal:
                return replace(found, details=(f"killed at {point}", *found.details))
        _assert_all_kept(world, len(KEEPING))
        return found


def kill_candidate(stage: Stage) -> Comparison:
    """kill -9 of Turnout while a candidate is made, discarded and published, under load; started again each time."""
    world = World(stage.new_folder(), stage.kafka)
    flag = world.process.folder / "flag"
    world.process.command = [sys.executable, str(Path(killed_turnout.__file__)), str(flag)]
    with world:
        for point in killed_turnout.OF_CANDIDATES:
            for name, value, outcome in CANDIDATES:
                world.producer.resume()
                _wait_more_users(world, KEPT_ROWS // 10)
                shown, told = world.turnout.status(), f"killed at {point} of {value}"
                flag.write_text(point)
                request = world.control.send({name: value} | ({} if name == "action" else {"publish": False}))
                world.process.wait_killed()
                flag.unlink()
                started = time.monotonic()
                world.process.start()
                found = world.recover(started)
                assert world.control.outcome(request) == outcome, f"{told}: {world.turnout.log()}"
                status = world.turnout.status()
                assert (status["candidate"] is not None) == (outcome == "candidate"), told
                assert (status["joinType"] == shown["joinType"]) == (value != "publish"), told
                if not found.equal:
                    return replace(found, details=(told, *found.details))
            assert world.control.post({"joinType": "left"})["outcome"] == "applied"
        return found


def _wait_more_users(world: World, rows: int) -> None:
    before = world.turnout.total("users_ui")
    wait_until(lambda: world.turnout.total("users_ui") >= before + rows, what=f"{rows} rows more")


def _assert_all_kept(world: World, swaps: int) -> None:
    """The last swaps have kept the rows of every source."""
    origins = [json.loads(row["sources"]) for row in world.turnout.rows("swaps", sort="ts")[-swaps:]]
    assert all(origin["kept"] > 0 for sources in origins for origin in sources.values()), origins


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
