"""Topics that change under whoever reads them, and partitions whose leader goes away."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from faults.kafkas import Cluster
from faults.stage import Stage
from faults.world import Comparison, World
from kafka_log import read_all
from turnout.testing import create_topic, delete_topic, patience, wait_until


def topics_made_anew(stage: Stage) -> Comparison:
    """Each topic is deleted, with all in it shown, and created again; old rows stay until newer ones come."""
    world = stage.world()
    time.sleep(stage.load_seconds)
    world.settle()
    world.forget(read_all(world.bootstrap, world.topics.pair))
    for topic in world.topics.pair:  # one after the other: while no topic is there, Spark has no batch to tell it in
        delete_topic(world.bootstrap, topic)
        wait_until(partial(world.said, f"topic '{topic}' partition 0 is gone"), what="the deletion to be told")
        create_topic(world.bootstrap, topic, 2)
    world.producer.resume()
    time.sleep(stage.load_seconds)
    return world.recover(time.monotonic())


def partitions_added(stage: Stage) -> Comparison:
    """Both topics get more partitions while they are read."""
    world = stage.world()
    time.sleep(stage.load_seconds)
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    for made in admin.create_partitions([NewPartitions(topic, 5) for topic in world.topics.pair]).values():
        made.result(patience())
    world.producer.pause()
    world.producer.write_to(world.topics.pair, 5)
    world.producer.resume()
    time.sleep(stage.load_seconds)
    return world.recover(time.monotonic())


def retention(stage: Stage) -> Comparison:
    """Records are removed before Turnout, cut off from Kafka, could read them: the loss is told, the rest is there."""
    world = stage.world()
    time.sleep(stage.load_seconds)
    world.settle()
    shown = read_all(world.bootstrap, [world.topics.users])
    read = max(record.offset for record in shown if record.partition == 0)
    stage.kafka.proxy.cut()
    world.producer.resume()
    time.sleep(stage.load_seconds)
    world.producer.pause()
    place = TopicPartition(world.topics.users, 0, read + 50)
    admin = AdminClient({"bootstrap.servers": world.bootstrap})  # a request dies with its client
    admin.delete_records([place])[place].result(patience())
    world.forget([record for record in shown if record.partition == 0])
    stage.kafka.proxy.heal()
    found = world.recover(time.monotonic())
    told = f"topic '{world.topics.users}' partition 0 lost offsets {read + 1} to {read + 49}"
    assert world.said(told), f"not told: {told}"
    return found


def leader_change(stage: Stage) -> Comparison:
    """On three nodes the leader of a partition is killed with kill -9; another takes over, and later it comes back."""
    folder = stage.new_folder()
    with Cluster(folder / "kafka") as cluster, World(folder, cluster) as world:
        world.producer.resume()
        time.sleep(stage.load_seconds)
        leader = cluster.leaders(world.topics.users)[0]
        cluster.kill(leader)
        killed = time.monotonic()
        world.control.send({"joinType": "inner"})
        wait_until(lambda: cluster.leaders(world.topics.users)[0] not in (leader, -1), what="another leader")
        while_gone = world.recover(killed)
        cluster.nodes[leader - 1].start()
        world.producer.resume()
        time.sleep(stage.load_seconds)
        after = world.recover(time.monotonic())
        # The first tells how long the fault was felt.
        return replace(after, seconds=while_gone.seconds) if while_gone.equal else while_gone
