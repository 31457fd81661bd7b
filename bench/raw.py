"""The upper limit of any reader: librdkafka reads and counts the same records without decoding them."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException

TIMEOUT_SECONDS = 120


def seconds(bootstrap: str, topics: tuple[str, str], count: int) -> float:
    """Return the seconds from the first to the last record, without the time to join the consumer group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{time.time()}",
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 1_000_000,
        }
    )
    try:
        started = first = time.monotonic()
        consumer.subscribe(list(topics))
        seen = 0
        while seen < count:
            messages = consumer.consume(10_000, 1.0)
            if not seen and messages:
                first = time.monotonic()
            for message in messages[:1]:
                if message.error():
                    raise KafkaException(message.error())
            seen += len(messages)
            if time.monotonic() > started + TIMEOUT_SECONDS:
                raise TimeoutError(f"{seen} of {count} records within {TIMEOUT_SECONDS} s")
        return time.monotonic() - first
    finally:
        consumer.close()
