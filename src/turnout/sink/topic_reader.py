"""Reads a sink's topic: which one it is, where it ends, and its committed records from some offsets on.

Its records only at the start of a sink and after a failure, to learn what the topic holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import md5

import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from turnout.config import KafkaSettings
from turnout.kafka.clients import TopicAdmin, consumer_properties, set_up
from turnout.sink.topic_state import TopicIdentity

FINGERPRINT = "turnout.fingerprint"
"""The header of a record whose value does not tell its fingerprint."""
VERSION = "turnout.version"
_ROLE = "sinks"
_TIMEOUT_SECONDS = 10.0
_CHUNK = 20_000
_RIGHTS = ("READ", "WRITE")
_RECORDS = pa.schema([("record", pa.string()), ("fingerprint", pa.string())])


@dataclass(frozen=True, slots=True)
class FoundTopic:
    identity: TopicIdentity
    partitions: tuple[int, ...]
    missing_rights: tuple[str, ...]
    """What Turnout's identity may not do with it; empty where the broker does not tell."""


class TopicReader:
    """Looks at one topic, for one thread; raises KafkaException where Kafka does not answer."""

    def __init__(self, kafka: KafkaSettings, topic: str, stopping: Callable[[], bool]) -> None:
        self.kafka = kafka
        self.topic = topic
        self.stopping = stopping
        self._admin: TopicAdmin | None = None

    @property
    def admin(self) -> TopicAdmin:
        """Made at the first question: an error in its settings is the sink's, which tries again."""
        if self._admin is None:
            self._admin = TopicAdmin(self.kafka, _ROLE, _TIMEOUT_SECONDS)
        return self._admin

    def find(self, timeout_seconds: float = _TIMEOUT_SECONDS) -> FoundTopic:
        topic = self.admin.describe(self.topic, timeout_seconds, rights=True)
        identity = TopicIdentity(self.topic, str(topic.topic_id))
        rights = {right.name for right in topic.authorized_operations or ()}
        missing = tuple(right for right in _RIGHTS if right not in rights) if rights else ()
        return FoundTopic(identity, tuple(sorted(part.id for part in topic.partitions)), missing)

    def ends(self, partitions: tuple[int, ...]) -> dict[int, int]:
        """The offset after the last record of each partition that is committed."""
        return self.admin.committed_ends(self.topic, partitions)

    def read(self, start: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[tuple[pa.Table, dict[int, int]]]:
        """The records of Turnout from `start` up to `ends`, in chunks, and the offsets after each chunk."""
        left = {partition for partition, end in ends.items() if start.get(partition, 0) < end}
        read = {partition: start.get(partition, 0) for partition in ends}
        if not left:
            return
        consumer = self._consumer()
        try:
            places = [TopicPartition(self.topic, p, start.get(p, OFFSET_BEGINNING)) for p in sorted(left)]
            consumer.assign(places)
            while left and not self.stopping():
                records: list[tuple[str, str | None]] = []
                for message in consumer.consume(_CHUNK, timeout=0.2):
                    partition = message.partition() or 0
                    error = message.error()
                    if error is None:
                        read[partition] = (message.offset() or 0) + 1
                        records += _record(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        read[partition] = max(read[partition], message.offset() or 0)
                    elif not error.retriable() and error.code() not in (
                        KafkaError._TRANSPORT,
                        KafkaError._ALL_BROKERS_DOWN,
                    ):
                        raise KafkaException(error)
                    if read[partition] >= ends[partition]:
                        left.discard(partition)
                yield _table(records), dict(read)
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        properties = {
            **consumer_properties(self.kafka, _ROLE),
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "queued.min.messages": 100_000,
            "fetch.message.max.bytes": 1 << 20,
        }
        return set_up(Consumer, properties)


def policy_complaint(topic: str, policy: str | None) -> tuple[str, str] | None:
    """What is wrong with a topic's cleanup.policy, and what to do; None where nothing is, or it is not known."""
    if policy is None or "compact" in policy.split(","):
        return None
    what = f"topic {topic!r} has cleanup.policy={policy}, so Kafka removes rows that do not change for long"
    return what, "set cleanup.policy=compact on the topic"


def _record(message: Message) -> list[tuple[str, str | None]]:
    """Key and fingerprint of a record that Turnout wrote; nothing for one of somebody else."""
    headers, key, value = message.headers(), message.key(), message.value()
    named = dict(headers) if headers else {}
    if key is None or not named.keys() & {VERSION, FINGERPRINT}:
        return []
    if value is None:
        return [(_text(key), None)]
    given = named.get(FINGERPRINT)
    return [
        (
            _text(key),
            _text(given)
            if given
            else str(int.from_bytes(md5(_bytes(value), usedforsecurity=False).digest(), "little")),
        )
    ]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _table(records: list[tuple[str, str | None]]) -> pa.Table:
    keys, prints = [record[0] for record in records], [record[1] for record in records]
    return pa.table([pa.array(keys, pa.string()), pa.array(prints, pa.string())], schema=_RECORDS)
