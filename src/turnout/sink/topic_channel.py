"""A topic that is written exactly once: the producer, what the topic is known to hold, and which topic it is.

After a start and after any failure the committed records since the last known ones are read, so it does not matter when
a process was killed, or whether an answer to a commit was lost. One thread uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaException

from turnout.config import KafkaSettings
from turnout.kafka.clients import is_missing
from turnout.plan.position import Position
from turnout.sink.failures import replaced
from turnout.sink.topic_reader import FoundTopic, TopicReader
from turnout.sink.topic_state import TopicState
from turnout.sink.topic_writer import CALL_SECONDS, SinkRecord, TopicWriter, WriterSettings

IDLE_SECONDS = 1.0
"""How long a writer of a topic rests without news; it then looks whether its topic is still the same one."""
NOTE_SECONDS = 60.0
"""How often the end of the topic is noted: a start reads the topic from there."""


class TopicChannel:
    """Writes records to one topic. It raises KafkaException and TurnoutError; then it has to be closed."""

    def __init__(
        self, kafka: KafkaSettings, writing: WriterSettings, state: TopicState, stopping: Callable[[], bool]
    ) -> None:
        self._kafka = kafka
        self._writing = writing
        self._stopping = stopping
        self._state = state
        self._reader = TopicReader(kafka, writing.topic, stopping)
        self._writer: TopicWriter | None = None
        self._topic: FoundTopic | None = None
        self._checked_at = 0.0
        self._noted_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def outdated(self) -> bool:
        """Whether files that it was set up with have changed, such as a renewed certificate."""
        return self._writer is not None and self._writer.outdated

    def open(self) -> Position:
        """End what was under way, learn what the topic holds, and return how far it was written."""
        found = self._reader.find()
        writer = TopicWriter(self._kafka, self._writing, self._stopping)
        try:
            writer.open()
            ends = self._reader.ends(found.partitions)
            written, read = self._state.open(found.identity)
            if any(ends.get(partition, 0) < offset for partition, offset in read.items()):
                self._state.clear()  # its records are gone: it was made anew, or lost some of them
                written, read = self._state.open(found.identity)
            for records, read_to in self._reader.read(read, ends):
                self._state.fold(records, read_to)
        except BaseException:
            writer.close()
            raise
        self._writer, self._topic = writer, found
        self._checked_at = time.monotonic()
        return written

    def write(self, records: Iterable[SinkRecord]) -> None:
        """Write all records; they are committed, or delivered, when this returns."""
        assert self._writer is not None
        self._writer.write(records, before_commit=self._check_topic)

    def _check_topic(self) -> None:
        """Make sure that the topic is the one whose records are known: a producer writes to any of that name."""
        assert self._topic is not None
        if self._reader.find(CALL_SECONDS).identity != self._topic.identity:
            raise replaced(self._topic.identity.name)
        self._checked_at = time.monotonic()

    def notice_missing_topic(self) -> None:
        """Fail where the topic is gone, asking once a second; an outage of Kafka is reported by the next write."""
        if time.monotonic() - self._checked_at < IDLE_SECONDS:
            return
        try:
            self._check_topic()
        except KafkaException as error:
            if is_missing(error):
                raise

    def cleanup_policy(self) -> str | None:
        """How Kafka removes old records of the topic; None where it does not say."""
        return self._reader.admin.cleanup_policy(self._reader.topic)

    def end_to_note(self) -> dict[int, int] | None:
        """Where the topic ends, now and then."""
        now = time.monotonic()
        if now - self._noted_at < NOTE_SECONDS:
            return None
        self._noted_at = now
        return self._reader.ends(self._topic.partitions if self._topic else ())

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
