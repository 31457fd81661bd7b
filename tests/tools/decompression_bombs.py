"""Decompression bombs: records of a few kilobytes that decompress to megabytes."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from turnout.testing import patience


def send_bomb(kafka: str, topic: str, codec: str, value: bytes, records: int = 1) -> int:
    """Write a compressed batch of `records` records to the first partition, with `value` divided among them.

    Return the offset of the last record.
    """
    errors: list[KafkaError] = []
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
        offsets.append(message.offset() or 0)

    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "compression.type": codec,
            # The limit of the uncompressed batch; the broker limits the compressed one.
            "message.max.bytes": 1_000_000_000,
            "batch.size": 1_000_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            "linger.ms": 60_000,  # everything before `flush` is one batch
        }
    )
    size = len(value) // records
    for number in range(records):
        producer.produce(topic, value[number * size : (number + 1) * size], partition=0, on_delivery=delivered)
    if producer.flush(patience()) or errors:
        raise KafkaException(errors[0])
    return max(offsets)
