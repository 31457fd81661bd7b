"""A reader of a control topic for a test, with the records and warnings that it delivered."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from turnout.config import KafkaSettings
from turnout.kafka.control_topic import ControlReader, ControlRecord
from turnout.testing import patience, wait_until


class Received:
    """The records, warnings and failures that a reader of a control topic delivered."""

    def __init__(self) -> None:
        self.records: list[ControlRecord] = []
        self.batches = 0
        self.warnings: list[str] = []
        self.news: list[str] = []
        self.arrived: dict[bytes | None, float] = {}
        self.failures: list[Exception] = []

    def deliver(self, records: list[ControlRecord]) -> None:
        self.batches += 1
        if self.failures:
            raise self.failures.pop(0)
        self.records += records
        self.arrived.update((record.value, time.monotonic()) for record in records)

    def say(self, level: str, text: str) -> None:
        (self.news if level == "INFO" else self.warnings).append(text)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengthen the time after which a missing answer is reported as an outage, for tests that count warnings."""
    monkeypatch.setattr("turnout.kafka.control_topic.LOOK_TIMEOUT_SECONDS", patience(2))


@contextmanager
def reading(kafka: str, topic: str, after: Mapping[int, int] | None = None) -> Iterator[tuple[Received, ControlReader]]:
    received = Received()
    reader = ControlReader(KafkaSettings(bootstrap_servers=kafka), topic, after or {}, received.deliver, received.say)
    reader.start()
    try:
        yield received, reader
    finally:
        reader.stop()
        thread = reader._thread
        assert thread is not None
        wait_until(lambda: not thread.is_alive(), what="the end of the reader")
