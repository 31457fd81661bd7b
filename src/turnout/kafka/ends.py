"""Waits for records that are new in Kafka, with far less work than Spark's own loop asks and plans with."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition

from turnout.config import KafkaSettings
from turnout.kafka.security import files_of
from turnout.kafka.topics import consumer_properties, set_up
from turnout.plan.offsets import Offsets

PROMPT_SECONDS = 0.02
"""How often ends are asked for while records come, and a while after."""
RESTING_SECONDS = 0.05
"""How often later."""
RESTS_AFTER_SECONDS = 3.0
LOOK_SECONDS = 2.0
"""How often it is asked whether topics were made or deleted, or got partitions."""

_QUESTION_SECONDS = 2.0
_AT_END = -1  # ListOffsets takes this in the place of a timestamp


class EndWatch:
    """Says when topics have more than was read; for any thread, one question at a time."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self._lock = threading.Lock()
        self._files = files_of(kafka)
        self._closed = False
        self._consumer = self._made()

    def wait_for_more(self, topics: Sequence[str], read: Offsets, stopped: threading.Event) -> None:
        """Return when a partition ends elsewhere than where it was read to, or partitions came or went.

        Also where Kafka does not answer: whoever reads then finds out why. And when `stopped` is set.
        """
        began = looked = time.monotonic()
        while not stopped.is_set() and not self._closed:
            try:
                if self._ends(read) != read.next:
                    return
                if time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    if self._partitions(topics) != set(read.next):
                        return
            except KafkaException:
                return
            resting = time.monotonic() - began > RESTS_AFTER_SECONDS
            stopped.wait(RESTING_SECONDS if resting else PROMPT_SECONDS)

    def close(self) -> None:
        self._closed = True
        with self._lock:
            self._consumer.close()

    def _ends(self, read: Offsets) -> Mapping[tuple[str, int], int]:
        asked = [TopicPartition(topic, partition, _AT_END) for topic, partition in read.next]
        with self._lock:
            answer = self._client().offsets_for_times(asked, timeout=_QUESTION_SECONDS)
        failed = next((part.error for part in answer if part.error is not None), None)
        if failed is not None:
            raise KafkaException(failed)
        return {(part.topic, part.partition): part.offset for part in answer}

    def _partitions(self, topics: Sequence[str]) -> set[tuple[str, int]]:
        with self._lock:
            found = self._client().list_topics(timeout=_QUESTION_SECONDS).topics
        return {(topic, number) for topic in topics if topic in found for number in found[topic].partitions}

    def _client(self) -> Consumer:
        if self._closed:
            raise KafkaException("closed")
        if (files := files_of(self._kafka)) != self._files:  # a client keeps what it read first
            self._consumer.close()
            self._consumer, self._files = self._made(), files
        return self._consumer

    def _made(self) -> Consumer:
        return set_up(Consumer, consumer_properties(self._kafka, "ends"))
