"""Tools for tests against a real Kafka, for Turnout's own tests and for those of its users.

``EmbeddedBroker`` brings the broker; the functions here make topics, produce records and wait for conditions.
Limits are there to end a hang, not to measure: TEST_PATIENCE=3 in the environment makes each three times as long.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from turnout.config import KafkaSettings
from turnout.kafka.clients import TopicAdmin
from turnout.local.broker import EmbeddedBroker

__all__ = ["EmbeddedBroker", "Record", "create_topic", "delete_topic", "patience", "produce", "wait_until"]

Value = Mapping[str, Any] | str | bytes | None

HANG_SECONDS = 300.0
"""Whatever takes longer on an ordinary machine hangs."""
LONGEST_SECONDS = 3600.0
"""Kafka's client takes no longer limit."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record; a mapping as value is written as JSON, ``None`` is a tombstone."""

    value: Value
    key: str | bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Mapping[str, str | bytes] | None = None


def patience(seconds: float = HANG_SECONDS) -> float:
    """A limit for this machine: ``seconds`` times TEST_PATIENCE, at most an hour."""
    return min(seconds * float(os.environ.get("TEST_PATIENCE") or 1), LONGEST_SECONDS)


def wait_until(
    predicate: Callable[[], object],
    timeout: float = HANG_SECONDS,
    interval: float = 0.05,
    what: str | Callable[[], str] = "the condition",
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Return when ``predicate`` is true; ``TimeoutError`` when it stays false, with ``what`` and what was seen last.

    ``timeout`` is in seconds of an ordinary machine; see ``patience``. A function ``what`` is called at the end.
    ``pause`` waits between two looks, and may end the wait by a ``TimeoutError`` of its own.
    """
    limit = patience(timeout)
    deadline = time.monotonic() + limit
    why = f"not within {limit:g} s"
    while not predicate():
        try:
            if time.monotonic() < deadline:
                pause(interval)
                continue
        except TimeoutError as error:
            why = str(error)
        true, seen = _look(predicate)
        if true:
            return
        raise TimeoutError(f"{what() if callable(what) else what}: {why}{seen}")


def _look(predicate: Callable[[], object]) -> tuple[bool, str]:
    """Ask once more, and note what the functions returned that ``predicate`` called itself."""
    seen: list[str] = []
    code = getattr(predicate, "__code__", None)

    def note(frame: FrameType, event: str, value: object) -> None:
        if event == "return" and frame.f_back is not None and frame.f_back.f_code is code:
            seen.append(f"{frame.f_code.co_qualname} gave {value!r:.500}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        true = bool(predicate())
    finally:
        sys.setprofile(before)
    return true, "".join(f"; {one}" for one in seen[-5:])


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None, *, replicas: int = 1
) -> None:
    """Create a topic and return when every partition has a leader, so that it can be used at once."""
    admin = TopicAdmin(KafkaSettings(bootstrap_servers=bootstrap), "testing", patience())
    admin.create(name, partitions, config or {}, replicas)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic and return when the broker does not list it any more."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(patience())
    wait_until(lambda: name not in admin.list_topics(timeout=patience(60)).topics, what=f"topic {name} is gone")


def produce(bootstrap: str, topic: str, records: Iterable[Value | Record | tuple[Any, ...]]) -> int:
    """Write ``records`` in their order and return their count when the broker has all of them.

    A record is a value, a ``Record``, or a tuple of a ``Record``'s fields in their order: ``(value, key)``.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1,
            # Keeps the order when a request is repeated. Idempotence would too, and costs each producer 0.5 s.
            "max.in.flight.requests.per.connection": 1,
            "topic.metadata.propagation.max.ms": 1000,  # an unknown topic fails now, not after 30 s
        }
    )
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)

    count = 0
    for record in records:
        count += 1
        arguments = _arguments(Record(*record) if isinstance(record, tuple) else record)
        while True:
            try:
                producer.produce(topic, on_delivery=delivered, **arguments)
                break
            except BufferError:  # the client's queue is full: let it drain
                producer.poll(0.1)
        producer.poll(0)
    limit = patience()
    left = producer.flush(limit)
    if errors:
        raise KafkaException(errors[0])
    if left:
        raise TimeoutError(f"{left} of {count} records to {topic} were not delivered within {limit:g} s")
    return count


def _arguments(record: Value | Record) -> dict[str, Any]:
    record = record if isinstance(record, Record) else Record(record)
    given = {
        "value": json.dumps(record.value) if isinstance(record.value, Mapping) else record.value,
        "key": record.key,
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "headers": list(record.headers.items()) if record.headers is not None else None,
    }
    return {name: value for name, value in given.items() if value is not None}
