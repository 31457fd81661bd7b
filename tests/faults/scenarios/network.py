"""Kafka that is away, slow, or cannot be heard."""

from __future__ import annotations

import time

from faults.stage import Stage
from faults.world import Comparison, World
from turnout.testing import wait_until

OUTAGE_SECONDS = 8


def broker_stopped(stage: Stage) -> Comparison:
    """The broker is stopped, that is told, and it is started again."""
    world = stage.world()
    _flow(world)
    stage.kafka.broker.stop()
    _told(world)
    _pass_time(OUTAGE_SECONDS)
    stage.kafka.broker.start()
    healed = time.monotonic()
    world.control.send({"joinType": "inner"})
    return world.recover(healed)


def broker_restarted(stage: Stage) -> Comparison:
    """The broker is stopped and started at once, with a swap on its way."""
    world = stage.world()
    _flow(world)
    world.control.send({"joinType": "full"})
    stage.kafka.broker.stop()
    stage.kafka.broker.start()
    return world.recover(time.monotonic())


def broker_slow(stage: Stage) -> Comparison:
    """Every piece from or to the broker takes 200 ms more, and no more than 200 kB/s come through."""
    world = stage.world()
    _flow(world)
    stage.kafka.proxy.slow(0.2, 200_000)
    world.control.send({"joinType": "semi"})
    _pass_time(OUTAGE_SECONDS)
    stage.kafka.proxy.heal()
    return world.recover(time.monotonic())


def network_cut(stage: Stage) -> Comparison:
    """Connections are dropped and refused, while records and messages go on coming into Kafka."""
    world = stage.world()
    _flow(world)
    stage.kafka.proxy.cut()
    world.control.send({"joinType": "inner"})
    _told(world)
    stage.kafka.proxy.heal()
    return world.recover(time.monotonic())


def network_black_hole(stage: Stage) -> Comparison:
    """Connections stay, and nothing comes through them."""
    world = stage.world()
    _flow(world)
    stage.kafka.proxy.black_hole()
    world.control.send({"joinType": "anti"})
    _told(world)
    _pass_time(OUTAGE_SECONDS)
    stage.kafka.proxy.heal()
    return world.recover(time.monotonic())


def _flow(world: World) -> None:
    """Return when rows come in."""
    wait_until(lambda: world.turnout.total("users_ui") > 200, what="rows")


def _told(world: World) -> None:
    """Return when Turnout says that Kafka is away; it must answer all the while."""
    wait_until(
        lambda: "cannot be reached" in world.turnout.reason(),
        what=lambda: f"Turnout to say that Kafka cannot be reached; it says {world.turnout.reason()!r}",
    )
    assert world.turnout.answer("/healthz") == 200


def _pass_time(seconds: float) -> None:
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end)
