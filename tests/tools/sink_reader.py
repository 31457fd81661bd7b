"""A reader of a sink's topic: its committed records, and the table that they produce."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from turnout.testing import patience


@dataclass(frozen=True, slots=True)
class SunkRecord:
    """A record of a sink's topic."""

    key: str
    value: dict[str, Any] | None
    headers: Mapping[str, str]

    @property
    def version(self) -> tuple[int, int]:
        return int(self.headers["turnout.generation"]), int(self.headers["turnout.version"])


class SunkTopic:
    """A reader of committed records that continues at its last position."""

    def __init__(self, bootstrap: str, topic: str, decode: Callable[[bytes], dict[str, Any]] = json.loads) -> None:
        self._topic = topic
        self._decode = decode
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"sunk-{uuid.uuid4()}",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        found = self._consumer.list_topics(topic, timeout=patience()).topics[topic]
        self._next = dict.fromkeys(found.partitions, 0)
        self.records: list[SunkRecord] = []
        self.table: dict[str, dict[str, Any]] = {}
        """The rows by key after applying all records."""

    def read(self) -> list[SunkRecord]:
        """Return the records committed since the last call."""
        self._consumer.assign([TopicPartition(self._topic, p, offset) for p, offset in self._next.items()])
        left, found = set(self._next), []
        while left:
            for message in self._consumer.consume(1000, timeout=0.1):
                partition, error = message.partition() or 0, message.error()
                if error is None:
                    self._next[partition] = (message.offset() or 0) + 1
                    found.append(self._record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)
        self._consumer.unassign()
        self.records += found
        fold(self.table, found)
        return found

    def _record(self, message: Message) -> SunkRecord:
        value, key = message.value(), message.key()
        assert isinstance(key, bytes)
        assert value is None or isinstance(value, bytes)
        headers = {name: text.decode() for name, text in _headers(message)}
        return SunkRecord(key.decode(), None if value is None else self._decode(value), headers)

    def rows(self) -> Counter[str]:
        """Return the rows of the table, for comparisons."""
        self.read()
        return bag(self.table.values())

    def close(self) -> None:
        self._consumer.close()


def fold(table: dict[str, dict[str, Any]], records: Iterable[SunkRecord]) -> None:
    for record in records:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value


def bag(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Return rows as a multiset of JSON texts, which compares all digits."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def _headers(message: Message) -> list[tuple[str, bytes]]:
    found: Any = message.headers()
    return list(found or ())


def swaps(records: Sequence[SunkRecord]) -> list[str]:
    """Return the swap marks in order."""
    return [record.headers["turnout.swap"] for record in records if "turnout.swap" in record.headers]
