"""A producer that writes all the time: new keys, changed ones, tombstones, and records that are wrong."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import Producer

from turnout.testing import Record, patience, wait_until

TURN_SECONDS = 0.05
NOT_OBJECTS = (b"{nope", b"[1, 2]", b"", b"\xff\xfe{}", b'{"userId": "cut', b"null", b"12")


class Records:
    """Random records of users and accounts over keys that grow in number up to `most_keys`; a seed gives the same."""

    def __init__(self, seed: int, most_keys: int | None = None) -> None:
        self._random = random.Random(seed)
        self._most_keys = most_keys
        self._keys = 0

    def user(self, partitions: int) -> Record:
        return self._record(partitions, self._user)

    def account(self, partitions: int) -> Record:
        return self._record(partitions, self._account)

    def _record(self, partitions: int, value: Callable[[str], dict[str, Any]]) -> Record:
        partition, chance = self._random.randrange(partitions), self._random.random()
        if chance < 0.02:
            return Record(self._random.choice(NOT_OBJECTS), partition=partition)
        key = self._key()
        if chance < 0.05:
            return Record(None, key=key, partition=partition)
        found = value(key)
        if chance < 0.07:
            found[self._random.choice(["age", "balance"])] = "much"
        elif chance < 0.08:
            found["userId"] = None
        return Record(found, key=key, partition=partition)

    def _key(self) -> str:
        if self._random.random() < 0.4 and self._keys != self._most_keys:
            self._keys += 1
            return f"k{self._keys}"
        return f"k{self._random.randint(0, self._keys)}"

    def _user(self, key: str) -> dict[str, Any]:
        return {
            "userId": key,
            "name": f"name {self._random.random()}",
            "email": "e@x",
            "age": self._random.randrange(99),
        }

    def _account(self, key: str) -> dict[str, Any]:
        kind = self._random.choice(["gold", "basic"])
        return {"userId": key, "accountType": kind, "balance": self._random.randrange(10**6) / 100}


class SteadyProducer:
    """Writes `per_second` records in all, half of them users, while it is not paused.

    It never gives a record up: what cannot be written while Kafka is away is written when it is back.
    """

    def __init__(self, bootstrap: str, per_second: int, seed: int = 1, most_keys: int | None = None) -> None:
        self.per_second = per_second
        self.partitions = 1
        self._records = Records(seed, most_keys)
        self._topics = ("", "")
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "message.timeout.ms": 0, "acks": "all", "log_level": 0}
        )
        self._error: Exception | None = None
        self._writing = threading.Event()
        self._idle = threading.Event()
        self._closed = threading.Event()
        self._idle.set()
        self._thread = threading.Thread(target=self._run, name="steady-producer", daemon=True)
        self._thread.start()

    def write_to(self, topics: tuple[str, str], partitions: int) -> None:
        """Go on with these topics; only while paused."""
        assert not self._writing.is_set(), "pause the producer first"
        self._topics, self.partitions = topics, partitions
        for topic in topics:  # the client has its own picture of a topic, which it would refresh every five minutes
            wait_until(partial(self._sees, topic, partitions), what=f"{partitions} partitions of {topic}")

    def _sees(self, topic: str, partitions: int) -> bool:
        return len(self._producer.list_topics(topic, timeout=patience()).topics[topic].partitions) >= partitions

    def resume(self) -> None:
        self._idle.clear()
        self._writing.set()

    def pause(self) -> None:
        """Stop writing, and return when Kafka has everything."""
        self._writing.clear()
        self._idle.wait()
        if self._error is not None:
            raise self._error
        left = self._producer.flush(patience())
        assert left == 0, f"{left} records could not be written"

    def close(self) -> None:
        self._closed.set()
        self._writing.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(5)

    def _run(self) -> None:
        while self._error is None and not self._closed.is_set():
            self._writing.wait()
            try:
                self._write()
            except Exception as error:  # told by `pause`
                self._error = error
            self._idle.set()

    def _write(self) -> None:
        began, written = time.monotonic(), 0
        while self._writing.is_set() and not self._closed.is_set():
            due = int((time.monotonic() - began) * self.per_second)
            for number in range(written, due):
                self._write_one(number % 2)
            written = due
            self._producer.poll(0)
            self._closed.wait(TURN_SECONDS)

    def _write_one(self, source: int) -> None:
        record = (self._records.user, self._records.account)[source](self.partitions)
        value = json.dumps(record.value) if isinstance(record.value, Mapping) else record.value
        assert record.partition is not None
        self._producer.produce(self._topics[source], value, key=record.key, partition=record.partition)
