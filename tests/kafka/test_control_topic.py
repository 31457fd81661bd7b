"""The reader of the control topic, without Kafka: what it reports."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from turnout.config import KafkaSettings
from turnout.kafka.control_topic import ControlReader
from turnout.testing import wait_until


class LateClient(AdminClient):
    """A client whose answers do not come, not even that they are late."""

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[Any]]:  # type: ignore[override]
        return {"control": Future()}


def test_a_client_that_is_late_itself_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.kafka.clients.AdminClient", LateClient)
    monkeypatch.setattr("turnout.kafka.control_topic.LOOK_TIMEOUT_SECONDS", 0.05)
    warnings: list[str] = []
    reader = ControlReader(
        KafkaSettings(bootstrap_servers="127.0.0.1:1"),
        "control",
        {},
        lambda _: None,
        lambda level, text: warnings.append(text),
    )
    reader.start()
    try:
        wait_until(lambda: warnings, what="the outage to be reported")
        assert "Kafka at 127.0.0.1:1 cannot be reached" in warnings[0]
        assert reader.trouble == warnings[0]
    finally:
        reader.stop()
