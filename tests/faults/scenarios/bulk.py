"""Many records at once, written as fast as the client can."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from turnout.testing import patience


def users(bootstrap: str, topic: str, count: int) -> None:
    """So many users, each with a key of its own, over two partitions."""
    values = (f'{{"userId": "u{n}", "name": "n{n}", "email": "e", "age": {n % 90}}}'.encode() for n in range(count))
    write(bootstrap, topic, values)


def write(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    """Return when Kafka has all of them."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=number % 2)
            except BufferError:
                producer.poll(0.05)
            else:
                break
    assert producer.flush(patience()) == 0
