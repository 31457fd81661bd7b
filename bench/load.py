"""A load of records that contain their produce time, at a steady rate in both topics, from a separate process.

Each user is new and has the time in `age`; each account belongs to an earlier user and has the time in `balance`. Both
are milliseconds since 1970.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Event

from confluent_kafka import Producer

_TURNS_A_SECOND = 100
STOP_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Load:
    """A steady load of `per_second` records in each topic."""

    bootstrap: str
    topics: tuple[str, str]
    per_second: int
    first_user: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        context = get_context("spawn")
        stopped = context.Event()
        process = context.Process(target=_produce, args=(self, stopped), daemon=True)
        process.start()
        try:
            yield
        finally:
            stopped.set()
            process.join(STOP_SECONDS)
            if process.is_alive():
                process.kill()


def _produce(load: Load, stopped: Event) -> None:
    producer = Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "linger.ms": 1,
            "acks": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    users, accounts = load.topics
    number, started, sent = load.first_user, time.monotonic(), 0
    while not stopped.wait(max(0.0, started + (sent + 1) / load.per_second - time.monotonic(), 1 / _TURNS_A_SECOND)):
        due = int((time.monotonic() - started) * load.per_second) - sent
        moment = int(time.time() * 1000)
        for _ in range(due):
            number += 1
            owner = random.randrange(load.first_user, number)
            producer.produce(users, b'{"userId":"live-%d","name":"N","email":"e","age":%d}' % (number, moment))
            producer.produce(accounts, b'{"userId":"live-%d","accountType":"live","balance":%d}' % (owner + 1, moment))
        producer.poll(0)
        sent += due
    producer.flush(STOP_SECONDS / 2)
