"""The Kafkas that faults happen to: one node, perhaps behind a proxy, and a cluster of three."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from confluent_kafka.admin import AdminClient

from faults.proxy import Proxy
from turnout.local.broker import HOST, EmbeddedBroker, free_port
from turnout.testing import patience, wait_until

CLUSTER_ID = "AGZhdWx0cy1jbHVzdGVyMQ"


class Kafka(Protocol):
    """A Kafka as the tests reach it, and as Turnout does."""

    replicas: int

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def turnout_servers(self) -> str: ...


class OneBroker:
    """One node with two doors: a direct one for the tests, and one for Turnout that leads through `proxy`."""

    replicas = 1

    def __init__(self, data: Path) -> None:
        direct, behind, controller = free_port(), free_port(), free_port()
        self.proxy = Proxy(behind)
        doors = f"PLAINTEXT://{HOST}:{direct},PROXIED://{HOST}"
        self.broker = EmbeddedBroker(
            data,
            direct,
            {
                "listeners": f"{doors}:{behind},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": f"{doors}:{self.proxy.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "controller.quorum.voters": f"1@{HOST}:{controller}",
                "message.max.bytes": str(4 * 1024 * 1024),
            },
        )

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def turnout_servers(self) -> str:
        return f"{HOST}:{self.proxy.port}"

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            opened.enter_context(self.proxy)
            opened.enter_context(self.broker)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)


class Cluster:
    """Three nodes that are brokers and controllers; each record is on all of them, and two are enough to go on."""

    replicas = 3

    def __init__(self, data: Path) -> None:
        self.ports = [free_port() for _ in range(self.replicas)]
        controllers = [free_port() for _ in range(self.replicas)]
        self.nodes = [self._node(data / f"node-{n + 1}", n, controllers) for n in range(self.replicas)]

    def _node(self, data: Path, number: int, controllers: list[int]) -> EmbeddedBroker:
        properties = {
            "cluster.id": CLUSTER_ID,
            "node.id": str(number + 1),
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[number]},CONTROLLER://{HOST}:{controllers[number]}",
            "controller.quorum.voters": ",".join(f"{n + 1}@{HOST}:{port}" for n, port in enumerate(controllers)),
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            # A node that was killed is found out sooner than after the usual nine seconds.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        return EmbeddedBroker(data, self.ports[number], properties, java_options=["-Xmx256m"])

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    turnout_servers = bootstrap_servers

    def leaders(self, topic: str) -> dict[int, int]:
        """The node that leads each partition."""
        found = AdminClient({"bootstrap.servers": self.bootstrap_servers}).list_topics(topic, timeout=patience())
        return {number: part.leader for number, part in found.topics[topic].partitions.items()}

    def kill(self, node: int) -> None:
        """As a power cut would: no chance to hand over."""
        broker = self.nodes[node - 1]
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: not broker.running, what=f"node {node} to be gone")
        broker.stop()

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.launch()
            for node in self.nodes:
                node.wait_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        for number, node in enumerate(self.nodes, start=1):
            if node.running:
                self.kill(number)  # in order, the last ones would wait for a quorum that is gone
