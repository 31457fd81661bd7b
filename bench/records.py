"""The records that all systems read, written once in large batches.

The newest account of each key has a unique account type (`NEWEST`), so that one filter finds in any system whether the
join is complete: every user row is joined with that type. Records have their key also as Kafka's message key; Turnout
and Deephaven do not use it, but without it Kafka Streams would have to repartition all records.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Producer
from rich.progress import Progress

from turnout.testing import create_topic

PARTITIONS = 2
NEWEST = "newest"
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Pair:
    """Two topics with `records` records each, for `records / updates` keys."""

    users: str
    accounts: str
    records: int
    updates: int = 1

    @property
    def keys(self) -> int:
        return self.records // self.updates

    @property
    def topics(self) -> tuple[str, str]:
        return self.users, self.accounts


def write(bootstrap: str, pair: Pair, progress: Progress) -> float:
    """Create and fill the topics; return the seconds. The records of a key are in one partition, in order."""
    started = time.monotonic()
    for topic in pair.topics:
        create_topic(bootstrap, topic, PARTITIONS)
    task = progress.add_task(f"producing {pair.users}, {pair.accounts}", total=2 * pair.records)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "acks": 1,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 512 << 10,
        }
    )
    for update in range(pair.updates):
        kind = NEWEST if update == pair.updates - 1 else f"update-{update}"
        for begin in range(0, pair.keys, _BATCH):
            keys = range(begin, min(begin + _BATCH, pair.keys))
            for partition in range(PARTITIONS):
                own = [key for key in keys if key % PARTITIONS == partition]
                _send(producer, pair.users, partition, [(key, _user(key, update)) for key in own])
                _send(producer, pair.accounts, partition, [(key, _account(key, kind)) for key in own])
            progress.advance(task, 2 * len(keys))
            while len(producer) > 1_000_000:
                producer.poll(0.05)
    if left := producer.flush(120):
        raise TimeoutError(f"the broker did not accept {left} records of {pair.users}, {pair.accounts} within 120 s")
    progress.remove_task(task)
    return time.monotonic() - started


def _send(producer: Producer, topic: str, partition: int, values: list[tuple[int, bytes]]) -> None:
    records = [{"key": b"user-%d" % key, "value": value} for key, value in values]
    taken = producer.produce_batch(topic, records, partition=partition)
    if taken != len(values):
        raise RuntimeError(f"the client accepted {taken} of {len(values)} records for {topic}")


def _user(key: int, update: int) -> bytes:
    return b'{"userId":"user-%d","name":"Name %d.%d","email":"user%d@example.com","age":%d}' % (
        *(key, key, update),
        *(key, key % 90),
    )


def _account(key: int, kind: str) -> bytes:
    return b'{"userId":"user-%d","accountType":"%s","balance":%d.25}' % (key, kind.encode(), key % 100_000)
