"""Writes a sink's records to its topic: all of one call in one Kafka transaction, or each until it is delivered.

After any failure the writer is closed and another one made: its first call to Kafka ends what was under way, and the
topic then tells what was committed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from turnout.config import Delivery, KafkaSettings
from turnout.kafka.clients import SILENT, client_properties, set_up
from turnout.kafka.security import files_of

Header = tuple[str, str | bytes | None]

CALL_SECONDS = 2.0
"""One call to Kafka; it is repeated until `PATIENCE_SECONDS`, or until the sink stops."""
PATIENCE_SECONDS = 60.0
TRANSACTION_SECONDS = 300
_STOPPED = KafkaError(KafkaError._DESTROY, "the sink is stopping")
_POLLED = 5_000


@dataclass(frozen=True, slots=True)
class Record:
    """One record for the topic; without a value the row is gone."""

    key: str
    value: bytes | str | None
    headers: list[Header]


def transactional_id(topic: str) -> str:
    """One for each topic: another process that writes the same topic fences this one, and the other way round."""
    return f"turnout-sink-{topic}"


class TopicWriter:
    """A producer of one topic. It raises KafkaException; then it is of no more use."""

    def __init__(self, kafka: KafkaSettings, topic: str, delivery: Delivery, stopping: Callable[[], bool]) -> None:
        self._kafka = kafka
        self._topic = topic
        self._stopping = stopping
        self._transactional = delivery is Delivery.EXACTLY_ONCE
        self._failed: KafkaError | None = None
        self._files = files_of(kafka)
        properties = {
            "compression.type": "lz4",
            # As Java's clients spread keys.
            "partitioner": "murmur2_random",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            **client_properties(kafka, "sinks"),
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
            "linger.ms": 5,
            "topic.metadata.refresh.interval.ms": 30_000,
            "logger": SILENT,
        }
        if self._transactional:
            properties["transactional.id"] = transactional_id(topic)
        else:
            properties.pop("transaction.timeout.ms")
            properties["message.timeout.ms"] = int(PATIENCE_SECONDS * 1000)
        self._producer = set_up(Producer, properties)

    @property
    def outdated(self) -> bool:
        """Whether files that it was set up with have changed, such as a renewed certificate."""
        return files_of(self._kafka) != self._files

    def open(self) -> None:
        """End what another writer of this topic left: afterwards the topic tells all that is committed."""
        if self._transactional:
            self._repeated(self._producer.init_transactions)

    def write(self, records: Iterable[Record], before_commit: Callable[[], None]) -> None:
        """Write all records; they are committed, or delivered, when this returns.

        `before_commit` is called when Kafka has them; where it raises, they are not committed.
        """
        if self._transactional:
            self._producer.begin_transaction()
        try:
            for number, record in enumerate(records):
                self._produce(record)
                if number % _POLLED == 0:
                    self._check()
            self._flush()
            before_commit()
            if self._transactional:
                self._repeated(self._producer.commit_transaction)
        except BaseException:
            self._abort()
            raise

    def close(self) -> None:
        """Drop what is under way, and end the client: it knows this object, so nothing else would for long."""
        with contextlib.suppress(KafkaException):
            self._producer.purge()
            self._producer.poll(0)
        del self._producer

    def _produce(self, record: Record) -> None:
        while True:
            try:
                self._producer.produce(self._topic, record.value, record.key, headers=record.headers)
            except BufferError:
                self._check(0.1)
            else:
                return

    def _check(self, seconds: float = 0.0) -> None:
        self._producer.poll(seconds)  # calls _delivered
        if self._stopping():
            raise KafkaException(_STOPPED)
        if self._failed is not None:
            raise KafkaException(self._failed)

    def _flush(self) -> None:
        """Not by the client's own `flush`: it waits by the system's clock."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self._producer):
            self._check(0.01)
            if time.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        self._check()

    def _abort(self) -> None:
        """Free the readers of committed records from waiting for this transaction, as far as Kafka answers."""
        if self._transactional:
            with contextlib.suppress(KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(CALL_SECONDS)

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
                self._producer.poll(0.1)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        # A transaction that failed drops what waits; the commit then says why.
        if error is not None and error.code() != KafkaError._PURGE_QUEUE and self._failed is None:
            self._failed = error
