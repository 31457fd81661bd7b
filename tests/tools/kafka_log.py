"""All records in Kafka, in the format of the oracle."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from oracle import Sent
from turnout.decode.decoder import LARGEST_BYTES
from turnout.testing import patience


def read_all(bootstrap: str, topics: Sequence[str]) -> list[Sent]:
    """Return all records of `topics` up to the present end, except those that are too large to read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"oracle-{uuid.uuid4()}",
            "isolation.level": "read_uncommitted",
            "receive.message.max.bytes": 1_000_000_000,  # the limit after decompression
        }
    )
    try:
        metadata = consumer.list_topics(timeout=patience())
        places = [(topic, p) for topic in topics for p in metadata.topics[topic].partitions]
        ranges = {place: consumer.get_watermark_offsets(TopicPartition(*place), timeout=patience()) for place in places}
        consumer.assign([TopicPartition(topic, p, low) for (topic, p), (low, _) in ranges.items()])
        left = {place for place, (low, high) in ranges.items() if high > low}
        records: list[Sent] = []
        while left:
            for message in consumer.consume(10_000, timeout=0.1):
                assert message.error() is None, message.error()
                record = _sent(message)
                if len(message) <= LARGEST_BYTES:
                    records.append(record)
                place = (record.topic, record.partition)
                if record.offset + 1 >= ranges[place][1]:
                    left.discard(place)
        return records
    finally:
        consumer.close()


def _sent(message: Message) -> Sent:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Sent(topic, partition, offset, message.timestamp()[1], message.key(), message.value())
