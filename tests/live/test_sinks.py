"""Sinks on a real broker: what their topics fold to, and what they write of a batch, a swap and after a failure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from filling import Filling
from sunk import SunkTopic, bag, swaps
from turnout.config import Delivery, KafkaSettings, SinkSettings
from turnout.local.broker import EmbeddedBroker
from turnout.serve.formats import json_rows
from turnout.sink.sinks import Sinks
from turnout.sink.status import SinkState, SinkStatus
from turnout.store.database import Database
from turnout.store.query.windows import Window, read_window
from turnout.testing import create_topic, wait_until

COMPACTED = {"cleanup.policy": "compact"}


class Sunk:
    """A store that is filled by hand, and its sinks on a real broker."""

    def __init__(self, folder: Path, broker: EmbeddedBroker) -> None:
        self.database = Database.open(folder)
        self.filling = Filling(self.database)
        self.said: list[str] = []
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        self.sinks = Sinks(self.database, kafka, None, lambda level, text: self.said.append(text))

    def shown(self, table: str = "final_ui") -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(json_rows(read_window(self.database, Window(table)).rows))
        return rows

    def status(self) -> SinkStatus:
        [status] = self.sinks.status()
        return status

    def wait_written(self) -> None:
        wait_until(lambda: self._written(self.status()), what=lambda: f"the sink is done: {self.status()}")

    def _written(self, status: SinkStatus) -> bool:
        return status.state is SinkState.WRITING and status.waiting_versions == 0

    def close(self) -> None:
        self.sinks.stop()
        self.database.close()


@pytest.fixture
def topic(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> str:
    name = topic_name("out")
    create_topic(broker.bootstrap_servers, name, 2, COMPACTED)
    return name


@contextmanager
def sunk(folder: Path, broker: EmbeddedBroker) -> Iterator[Sunk]:
    running = Sunk(folder, broker)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def reading(broker: EmbeddedBroker, topic: str) -> Iterator[SunkTopic]:
    reader = SunkTopic(broker.bootstrap_servers, topic)
    try:
        yield reader
    finally:
        reader.close()


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": f"n{number}", "email": None, "age": number, **more}


@pytest.mark.parametrize("delivery", list(Delivery))
def test_sink_writes_batches_and_swaps_as_differences(
    tmp_path: Path, broker: EmbeddedBroker, topic: str, delivery: Delivery
) -> None:
    with sunk(tmp_path, broker) as running, reading(broker, topic) as reader:
        filling = running.filling
        filling.swap(users=[user(n) for n in range(10)])
        running.sinks.change({"out": SinkSettings(table="final_ui", topic=topic, delivery=delivery)})
        running.wait_written()
        first = reader.read()
        assert bag(reader.table.values()) == bag(running.shown())
        assert len(first) == 10
        assert sorted(swaps(first)) == ["begin", "end"]

        filling.batch(accounts=[{"userId": "u3", "accountType": "gold", "balance": 1.5}])
        running.wait_written()
        [changed] = reader.read()
        assert changed.value is not None
        assert (changed.value["userId"], changed.value["balance"]) == ("u3", 1.5)
        assert json.loads(changed.key) == {"key": "u3", "id": "3"}
        assert swaps([changed]) == []
        assert changed.version == (1, 3) or changed.version[0] == 1

        # The same rows, but for one that changes and one that goes.
        filling.swap(users=[user(n, name="x") if n == 5 else user(n) for n in range(9)])
        running.wait_written()
        difference = reader.read()
        assert bag(reader.table.values()) == bag(running.shown())
        print([(r.key, r.value) for r in difference])
