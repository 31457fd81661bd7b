"""Writes a sink's records to its topic: all of one call in one Kafka transaction, or each until it is delivered.

After any failure the writer is closed and another one made: its first call to Kafka ends what was under way, and the
topic then tells what was committed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from turnout.config import Delivery, KafkaSettings
from turnout.kafka.clients import Header, TopicProducer, client_properties

CALL_SECONDS = 2.0
"""One call to Kafka; it is repeated until `PATIENCE_SECONDS`, or until the sink stops."""
PATIENCE_SECONDS = 60.0
TRANSACTION_SECONDS = 300
_STOPPED = KafkaError(KafkaError._DESTROY, "the sink is stopping")
_POLLED = 5_000


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record for the topic; without a value the row is gone."""

    key: str
    value: bytes | str | None
    headers: list[Header]


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Which topic is written and how; a second process with one transactional id fences the first."""

    topic: str
    transactional_id: str
    delivery: Delivery = Delivery.EXACTLY_ONCE


def sink_id(topic: str) -> str:
    """The transactional id of a sink, one for each topic: another process that writes it fences this one."""
    return f"turnout-sink-{topic}"


class TopicWriter:
    """A producer of one topic. It raises KafkaException; then it is of no more use."""

    def __init__(self, kafka: KafkaSettings, writing: WriterSettings, stopping: Callable[[], bool]) -> None:
        self._kafka = kafka
        self._transactional_id = writing.transactional_id
        self._stopping = stopping
        self._transactional = writing.delivery is Delivery.EXACTLY_ONCE
        self._failed: KafkaError | None = None
        self._producer = TopicProducer(kafka, writing.topic, self._properties, self._delivered)

    def _properties(self) -> dict[str, Any]:
        properties = {
            "compression.type": "lz4",
            # As Java's clients spread keys.
            "partitioner": "murmur2_random",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            **client_properties(self._kafka, "sinks"),
            "delivery.report.only.error": True,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 30_000,
        }
        if self._transactional:
            return {**properties, "transactional.id": self._transactional_id}
        properties.pop("transaction.timeout.ms")
        return {**properties, "message.timeout.ms": int(PATIENCE_SECONDS * 1000)}

    @property
    def outdated(self) -> bool:
        """Whether files that it was set up with have changed, such as a renewed certificate."""
        return self._producer.outdated

    def open(self) -> None:
        """End what another writer of this topic left: afterwards the topic tells all that is committed."""
        if self._transactional:
            self._repeated(self._producer.client.init_transactions)

    def write(self, records: Iterable[SinkRecord], before_commit: Callable[[], None]) -> None:
        """Write all records; they are committed, or delivered, when this returns.

        `before_commit` is called when Kafka has them; where it raises, they are not committed.
        """
        if self._transactional:
            self._producer.client.begin_transaction()
        try:
            for number, record in enumerate(records):
                self._produce(record)
                if number % _POLLED == 0:
                    self._check()
            self._flush()
            before_commit()
            if self._transactional:
                self._repeated(self._producer.client.commit_transaction)
        except BaseException:
            self._abort()
            raise

    def close(self) -> None:
        """Drop what is under way, and free the producer."""
        with contextlib.suppress(KafkaException):
            self._producer.client.purge()
            self._producer.client.poll(0)
        self._producer.close()

    def _produce(self, record: SinkRecord) -> None:
        while True:
            try:
                self._producer.produce(record.key, record.value, record.headers)
            except BufferError:
                self._check(0.1)
            else:
                return

    def _check(self, seconds: float = 0.0) -> None:
        self._producer.client.poll(seconds)  # calls _delivered
        if self._stopping():
            raise KafkaException(_STOPPED)
        if self._failed is not None:
            raise KafkaException(self._failed)

    def _flush(self) -> None:
        if not self._producer.flush(PATIENCE_SECONDS, self._check):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._check()

    def _abort(self) -> None:
        """Free the readers of committed records from waiting for this transaction, as far as Kafka answers."""
        if self._transactional:
            with contextlib.suppress(KafkaException):
                self._producer.client.purge()
                self._producer.client.abort_transaction(CALL_SECONDS)

    def _repeated(self, call: Callable[[float], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            if self._stopping():  # one that follows may write already, and must not be fenced
                raise KafkaException(_STOPPED)
            try:
                call(CALL_SECONDS)
            except KafkaException as exception:
                if not exception.args[0].retriable() or time.monotonic() >= deadline:
                    raise
                self._producer.client.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None) -> None:
        if self._failed is None:
            self._failed = error
