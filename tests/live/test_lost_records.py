"""Gaps in topics: retention is told, compaction is not, and a Kafka that does not answer hides nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest

from turnout.errors import TurnoutError
from turnout.kafka.lost_records import MOST_WAITING, LostRecords
from turnout.kafka.topics import Topics
from turnout.plan.offsets import Lost
from turnout.testing import patience, wait_until


class Broker:
    """Knows first offsets; while it is `away`, a question ends with an error once it may."""

    def __init__(self, **first: int) -> None:
        self.first = first
        self.away = False
        self.answers = threading.Event()
        self.answers.set()
        self.asked = 0
        self.closed = False

    def low_watermark(self, topic: str, partition: int) -> int | None:
        self.answers.wait(patience())
        self.asked += 1
        if self.away:
            raise TurnoutError(code="kafka_unreachable", message="no answer", status=503)
        return self.first.get(topic)

    def close(self) -> None:
        self.closed = True
        self.answers.set()


@pytest.fixture
def broker() -> Broker:
    return Broker(taken=50, compacted=0)


@pytest.fixture
def gaps(broker: Broker) -> Iterator[LostRecords]:
    made = LostRecords(lambda: cast(Topics, broker), retry_seconds=0.01)
    yield made
    made.stop()
    assert broker.closed or not broker.asked


def test_only_what_retention_took_is_told(gaps: LostRecords) -> None:
    told: list[Lost] = []
    places = [("compacted", 3, 9), ("gone", 1, 2), ("taken", 10, 60), ("taken", 10, 40), ("taken", 55, 60)]
    gaps.check([(topic, 0, start, end) for topic, start, end in places], told.append)
    wait_until(lambda: len(told) == 2, what="the losses to be told")
    assert told == [Lost("taken", 0, 10, 50), Lost("taken", 0, 10, 40)]


def test_a_loss_is_told_once_kafka_answers_again(broker: Broker, gaps: LostRecords) -> None:
    told: list[Lost] = []
    broker.away = True
    gaps.check([("taken", 0, 10, 60)], told.append)
    wait_until(lambda: broker.asked >= 3, what="Kafka to be asked again and again")
    assert told == []
    broker.away = False
    wait_until(lambda: bool(told), what="the loss to be told")
    assert told == [Lost("taken", 0, 10, 50)]


def test_asking_never_waits_for_kafka(broker: Broker, gaps: LostRecords) -> None:
    told: list[Lost] = []
    broker.answers.clear()
    gaps.check([("taken", 0, 10, 60)], told.append)
    gaps.check([("compacted", 0, 0, 1)] * (2 * MOST_WAITING), told.append)
    assert told == []
    broker.answers.set()
    wait_until(lambda: bool(told), what="the loss to be told")


def test_a_listener_that_fails_ends_nothing(gaps: LostRecords) -> None:
    told: list[Lost] = []

    def fail(lost: Lost) -> None:
        raise ValueError("no")

    gaps.check([("taken", 0, 10, 60)], fail)
    gaps.check([("taken", 1, 10, 60)], told.append)
    wait_until(lambda: bool(told), what="the loss to be told")


def test_a_client_that_cannot_be_made_at_first_is_made_later(broker: Broker) -> None:
    told: list[Lost] = []
    refused = iter([True])

    def connect() -> Topics:
        if next(refused, False):
            raise TurnoutError(code="bad_config", message="the certificate is being replaced", status=500)
        return cast(Topics, broker)

    gaps = LostRecords(connect, retry_seconds=0.01)
    gaps.check([("taken", 0, 10, 60)], told.append)
    wait_until(lambda: bool(told), what="the loss to be told")
    gaps.stop()
