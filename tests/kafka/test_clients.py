"""Clients of Kafka, without Kafka: how a producer waits."""

from __future__ import annotations

import pytest

from turnout.config import KafkaSettings
from turnout.kafka.clients import TopicProducer, client_properties


class SilentProducer:
    """A client whose own waiting never ends, as after a clock that is set back."""

    def __init__(self, polls: int) -> None:
        self._left = polls

    def __len__(self) -> int:
        return self._left

    def poll(self, timeout: float) -> int:
        assert timeout == 0, "it would not come back"
        self._left = max(0, self._left - 1)
        return 1

    def flush(self, timeout: float) -> int:
        raise AssertionError("it would not come back")


@pytest.mark.parametrize(("polls", "timeout", "done"), [(0, 0.0, True), (3, 5.0, True), (1_000_000, 0.05, False)])
def test_flush_waits_by_a_clock_that_does_not_jump(
    monkeypatch: pytest.MonkeyPatch, polls: int, timeout: float, done: bool
) -> None:
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    producer = TopicProducer(settings, "outcomes", lambda: client_properties(settings, "outcomes"), lambda _: None)
    monkeypatch.setattr(producer, "client", SilentProducer(polls))
    assert producer.flush(timeout) is done
