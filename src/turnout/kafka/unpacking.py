"""Batches of records that the client cannot unpack: which errors tell of them, and where such a batch ends.

Kafka compresses records in batches, and the client unpacks a batch as a whole. It gives the same error for ever where
the data are damaged, or where zstd makes more than `MOST_MEGABYTES` of them: a decompression bomb has a few kilobytes.
Workers on a cluster get this module by value, so it imports nothing of Turnout.
"""

from __future__ import annotations

import time

import confluent_kafka as kafka  # not its classes: they do not say where they come from, and cannot be sent

MOST_MEGABYTES = 100
"""As much may a batch be when it is unpacked: librdkafka's `receive.message.max.bytes`."""

NOT_UNPACKED = (
    kafka.KafkaError._BAD_COMPRESSION,
    kafka.KafkaError._BAD_MSG,
    kafka.KafkaError._NOT_IMPLEMENTED,  # a codec that the client does not know
)
"""The codes of errors that come from the records, so that trying again does not help."""

ANSWER_SECONDS = 15.0
"""How long Kafka may take to answer one question."""
_POLL_SECONDS = 0.1


def reason(first: int, behind: int) -> str:
    """Why the records from `first` up to, not with, `behind` are not there, in words for people."""
    which = f"the record at offset {first}" if behind - first == 1 else f"the batch of offsets {first} to {behind - 1}"
    return f"{which} cannot be unpacked: it is damaged, or more than {MOST_MEGABYTES} MB"


def end_of_batch(client: kafka.Consumer, topic: str, partition: int, first: int) -> int:
    """The offset behind the batch that begins at `first`, which cannot be unpacked.

    An error tells the first offset of its batch only. So other offsets are tried, ever further away and then halfway:
    those of the same batch give the same error. The client is left with another assignment. KafkaException where Kafka
    does not answer.
    """
    _, behind = client.get_watermark_offsets(kafka.TopicPartition(topic, partition), timeout=ANSWER_SECONDS)
    inside, step, found = first, 1, False
    while inside + 1 < behind:
        tried = (inside + behind) // 2 if found else min(inside + step, behind - 1)
        if _is_of_batch(client, topic, partition, tried, first):
            inside, step = tried, 2 * step
        else:
            behind, found = tried, True
    return inside + 1


def _is_of_batch(client: kafka.Consumer, topic: str, partition: int, offset: int, first: int) -> bool:
    """Whether a record is of the batch that begins at `first` and cannot be unpacked."""
    until = time.monotonic() + ANSWER_SECONDS
    client.assign([kafka.TopicPartition(topic, partition, offset)])
    while time.monotonic() < until:
        message = client.poll(_POLL_SECONDS)
        error = message.error() if message is not None else None
        if message is None or (error is not None and message.partition() != partition):
            continue
        if error is None or error.code() == kafka.KafkaError._PARTITION_EOF:
            return False
        if error.code() in NOT_UNPACKED:
            return message.offset() == first
    raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
