"""Viewers that come and go, by the Python client over WebSockets, and a probe that times records on their way."""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

import turnout
from turnout.testing import patience
from turnout_client import Changes, ChangesSubscription, Client, State, WindowSubscription

TABLES = ("users_ui", "accounts_ui", "final_ui")
SORTS = ("userId", "-userId", "")
PROBE_SECONDS = 2.0
PROBE_TIMEOUT_SECONDS = 10.0
PROBE_PREFIX = "probe-"


class Viewer:
    """One client with one subscription, for so long."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self.client: Client = turnout.connect(url, name="soak")
        self.until = time.monotonic() + chance.uniform(15, 60)
        table = self.client.table(chance.choice(TABLES))
        self.subscription: ChangesSubscription | WindowSubscription
        if chance.random() < 0.5:
            self.subscription = table.changes()
        else:
            self.subscription = table.window(sort=chance.choice(SORTS), limit=chance.choice([10, 50, 100]))
        self._feeder = threading.Thread(target=self._consume, name="viewer", daemon=True)
        self.events = 0
        self._feeder.start()

    def _consume(self) -> None:
        try:
            for _ in self.subscription:
                self.events += 1
        except turnout.TurnoutError:
            return  # `trouble` tells it

    @property
    def trouble(self) -> str:
        return f"{self.subscription!r}" if self.subscription.state is State.REFUSED else ""

    def close(self) -> None:
        self.client.close()
        self._feeder.join(patience())


class Viewers:
    """So many at a time; `tick` sends away those whose time is over, and lets others in."""

    def __init__(self, url: str, count: int, seed: int = 1) -> None:
        self._url = url
        self._count = count
        self._chance = random.Random(seed)
        self._open: list[Viewer] = []
        self.came = 0
        self.events = 0
        self.troubles: list[str] = []

    def tick(self) -> None:
        for viewer in [one for one in self._open if one.trouble or time.monotonic() > one.until]:
            self._close(viewer)
        while len(self._open) < self._count:
            self._open.append(Viewer(self._url, self._chance))
            self.came += 1

    def copies(self) -> list[ChangesSubscription]:
        """The subscriptions that hold a copy of their table."""
        return [one.subscription for one in self._open if isinstance(one.subscription, ChangesSubscription)]

    def close(self) -> None:
        for viewer in list(self._open):
            self._close(viewer)

    def _close(self, viewer: Viewer) -> None:
        self._open.remove(viewer)
        if viewer.trouble:
            self.troubles.append(viewer.trouble)
        viewer.close()
        self.events += viewer.events


class Probe:
    """Writes a user now and then, and times how long it takes until a viewer has its row."""

    def __init__(self, url: str, bootstrap: str, topic: Callable[[], str]) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._client = turnout.connect(url, name="soak")
        self._seen: set[str] = set()
        self._came = threading.Condition()
        self._recent: list[float] = []
        self._stopping = threading.Event()
        self._subscription = self._client.table("users_ui").subscribe(self._take)
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self.latencies_ms: list[float] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when Kafka has everything that was written."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush(patience())
        self._client.close()

    def latency_ms(self) -> float | None:
        """The median since this was asked for last; None where nothing came."""
        with self._came:
            recent, self._recent = self._recent, []
        return round(statistics.median(recent), 1) if recent else None

    def _take(self, event: Changes) -> None:
        if event.snapshot:
            return  # a row that comes with a swap says nothing about the way of one record
        found = {row["userId"] for row in event.inserted.values() if str(row["userId"]).startswith(PROBE_PREFIX)}
        if found:
            with self._came:
                self._seen |= found
                self._came.notify_all()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(PROBE_SECONDS):
            number += 1
            self._time_one(f"{PROBE_PREFIX}{number}")

    def _time_one(self, key: str) -> None:
        value: dict[str, Any] = {"userId": key, "name": "probe", "email": None, "age": 1}
        began = time.monotonic()
        self._producer.produce(self._topic(), json.dumps(value), partition=0)
        self._producer.poll(0)
        with self._came:
            if self._came.wait_for(lambda: key in self._seen, patience(PROBE_TIMEOUT_SECONDS)):
                taken = (time.monotonic() - began) * 1000
                self._recent.append(taken)
                self.latencies_ms.append(taken)
            self._seen.clear()
