"""Sinks on a real broker: what their topics fold to, and what they write of a batch, a swap and after a failure."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

import killed_sinks
from background_work import beside
from child_processes import ending_with_us
from filled_store import Filling
from lengths import SINK_ROUNDS
from scripted_registry import scripted
from sink_reader import SunkRecord, SunkTopic, bag, fold, swaps
from turnout.config import Delivery, KafkaSettings, RegistrySettings, SinkSettings
from turnout.local.broker import EmbeddedBroker
from turnout.plan.answers import SinkState, SinkStatus
from turnout.preflight.findings import Finding, check_sink
from turnout.serve.responses import json_rows
from turnout.sink.avro_values import schema_of
from turnout.sink.sink import Sinks
from turnout.sink.topic_channel import TopicWriter, sink_id
from turnout.store.database import Database
from turnout.store.query.windows import Window, list_tables, read_window
from turnout.testing import create_topic, delete_topic, patience, wait_until
from turnout_client.column_types import ColumnType

COMPACTED = {"cleanup.policy": "compact"}
COLUMNS = {
    "userId": "string",
    "name": "string",
    "email": "string",
    "age": "int64",
    "accountType": "string",
    "balance": "double",
}


class Sunk:
    """A store that is filled by hand, and its sinks on a real broker."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, registry: str | None) -> None:
        self.database = Database.open(folder)
        self.filling = Filling(self.database)
        self.said: list[str] = []
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        schemas = None if registry is None else RegistrySettings(url=registry)
        self.sinks = Sinks(self.database, kafka, schemas, lambda level, text: self.said.append(text))

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
def sunk(folder: Path, broker: EmbeddedBroker, registry: str | None = None) -> Iterator[Sunk]:
    running = Sunk(folder, broker, registry)
    try:
        yield running
    finally:
        running.close()


@contextmanager
def reading(
    broker: EmbeddedBroker, topic: str, decode: Callable[[bytes], dict[str, Any]] = json.loads
) -> Iterator[SunkTopic]:
    reader = SunkTopic(broker.bootstrap_servers, topic, decode)
    try:
        yield reader
    finally:
        reader.close()


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": f"n{number}", "email": None, "age": number, **more}


def settings_of(topic: str, **more: Any) -> dict[str, SinkSettings]:
    return {"out": SinkSettings(table="final_ui", topic=topic, **more)}


@pytest.mark.parametrize("delivery", list(Delivery))
def test_sink_writes_batches_as_changes_and_swaps_as_differences(
    tmp_path: Path, broker: EmbeddedBroker, topic: str, delivery: Delivery
) -> None:
    with sunk(tmp_path, broker) as running, reading(broker, topic) as reader:
        filling = running.filling
        filling.swap(users=[user(n) for n in range(10)])
        running.sinks.change(settings_of(topic, delivery=delivery))
        running.wait_written()
        first = reader.read()
        assert bag(reader.table.values()) == bag(running.shown())
        assert len(first) == 10
        assert sorted(swaps(first)) == ["begin", "end"]

        filling.batch(accounts=[{"userId": "u3", "accountType": "gold", "balance": 1.5}])
        running.wait_written()
        [changed] = reader.read()
        assert changed.value == user(3) | {"accountType": "gold", "balance": 1.5}
        assert json.loads(changed.key) == {"key": "u3", "id": "3"}
        [version] = [table.version for table in list_tables(running.database) if table.name == "final_ui"]
        assert changed.headers == {"turnout.generation": "1", "turnout.version": str(version), "turnout.offsets": "{}"}

        filling._offset = 0  # the same places in another generation, but for one that changes and one that goes
        filling.swap(users=[user(n, name="x") if n == 5 else user(n) for n in range(9)])
        running.wait_written()
        difference = reader.read()
        assert {json.loads(record.key)["key"] for record in difference} == {"u3", "u5", "u9"}
        assert [record.value for record in difference if "u9" in record.key] == [None]
        assert sorted(swaps(difference)) == ["begin", "end"]
        filling._offset = 0
        filling.swap(users=[user(n, name="x") if n == 5 else user(n) for n in range(8)])
        running.wait_written()
        assert swaps(reader.read()) == ["only"]
        assert bag(reader.table.values()) == bag(running.shown())
        assert running.status().records == len(reader.records)
        assert running.said == []


def test_sink_that_starts_again_reads_its_topic_instead_of_writing_it_anew(
    tmp_path: Path, broker: EmbeddedBroker, topic: str
) -> None:
    with reading(broker, topic) as reader:
        with sunk(tmp_path, broker) as running:
            running.filling.swap(users=[user(n) for n in range(5)])
            running.sinks.change(settings_of(topic))
            running.wait_written()
            running.sinks.change({})
            assert running.sinks.status() == []
            running.filling.batch(users=[user(7)])
            running.sinks.change(settings_of(topic))
            running.wait_written()
            assert len(reader.read()) == 6, "five, and one that is new"
        # With another data folder, in which other rows are shown.
        with sunk(tmp_path / "other", broker) as running:
            running.filling.swap(users=[user(n) for n in range(2, 6)])
            running.sinks.change(settings_of(topic))
            running.wait_written()
            assert reader.rows() == bag(running.shown())
            assert None in [record.value for record in reader.records]


def test_sink_without_a_topic_waits_for_it_and_stops_nobody(
    tmp_path: Path, broker: EmbeddedBroker, topic_name: Callable[[str], str]
) -> None:
    name = topic_name("late")
    with sunk(tmp_path, broker) as running:
        running.filling.swap(users=[user(1)])
        running.sinks.change(settings_of(name, max_waiting_rows=10))
        wait_until(lambda: running.status().state is SinkState.FAILING, what="a failure")
        assert f"topic '{name}' does not exist" in str(running.status().error)
        assert f"turnout topic create {name} --compact" in str(running.status().error)
        for number in range(15):
            running.filling.batch(users=[user(number)])
        assert running.status().waiting_rows == 16
        [said] = running.said
        assert said.startswith("sink out does not write: ")
        create_topic(broker.bootstrap_servers, name, 1)
        running.wait_written()
        policy, again = running.said[1:]
        assert "cleanup.policy=delete" in policy
        assert again == f"sink out writes to topic '{name}' again"
        with reading(broker, name) as reader:
            assert reader.rows() == bag(running.shown())
            assert len(reader.records) == 16


class Replaced:
    """The topic of a sink that is deleted and created again, and what it must fold to afterwards."""

    def __init__(self, running: Sunk, broker: EmbeddedBroker, topic: str) -> None:
        self.running = running
        self._broker = broker
        self._topic = topic
        self._batches = itertools.count(100)

    def delete(self) -> None:
        delete_topic(self._broker.bootstrap_servers, self._topic)

    def create(self) -> None:
        create_topic(self._broker.bootstrap_servers, self._topic, 2, COMPACTED)

    def make_anew(self) -> None:
        self.delete()
        self.create()

    def batch(self) -> None:
        self.running.filling.batch(users=[user(next(self._batches))])

    def wait_equal(self) -> None:
        wait_until(self._equal, what=lambda: f"all rows: {self.running.status()}")
        self.running.wait_written()

    def _equal(self) -> bool:
        """A new reader each time: the topic may be made anew while one reads."""
        with reading(self._broker, self._topic) as reader:
            equal: bool = reader.rows() == bag(self.running.shown())
            return equal


@pytest.mark.parametrize("delivery", list(Delivery))
def test_sink_fills_a_topic_that_is_made_anew_at_any_moment(
    tmp_path: Path, broker: EmbeddedBroker, topic: str, delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sunk(tmp_path, broker) as running:
        replaced = Replaced(running, broker, topic)
        running.filling.swap(users=[user(n) for n in range(50)])
        running.sinks.change(settings_of(topic, delivery=delivery))
        running.wait_written()

        replaced.make_anew()  # while nothing comes
        replaced.wait_equal()
        assert f"sink out does not write: topic '{topic}' was deleted and created again" in running.said[0]
        assert running.said[1] == f"sink out writes to topic '{topic}' again"
        replaced.make_anew()
        replaced.batch()  # before or after the sink has looked
        replaced.wait_equal()

        def load(ended: threading.Event) -> None:
            while not ended.wait(0.02):
                replaced.batch()

        with beside(load):
            for _ in range(3):
                replaced.make_anew()
                written = running.status().records
                wait_until(lambda known=written: running.status().records > known, what="something is written")  # type: ignore[misc]
        replaced.wait_equal()

        moments = {"before": True, "after": True}
        flush = TopicWriter._flush

        def flush_and_replace(writer: TopicWriter) -> None:
            """When the records of a transaction are under way, and when Kafka has them."""
            if moments.pop("before", False):
                replaced.make_anew()
            flush(writer)
            if moments.pop("after", False):
                replaced.make_anew()

        monkeypatch.setattr(TopicWriter, "_flush", flush_and_replace)
        for _ in list(moments):
            replaced.batch()
            replaced.wait_equal()
        assert not moments


@pytest.mark.parametrize("written", [False, True])
def test_sink_tells_of_a_topic_that_is_deleted(
    tmp_path: Path, broker: EmbeddedBroker, topic: str, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By itself Kafka's client notices in half a minute, and a record has a minute to be written.
    monkeypatch.setattr("turnout.sink.topic_channel.PATIENCE_SECONDS", 10 * patience())
    usual, never = TopicWriter._properties, {"topic.metadata.refresh.interval.ms": 3_600_000}
    monkeypatch.setattr(TopicWriter, "_properties", lambda self, kafka: usual(self, kafka) | never)
    with sunk(tmp_path, broker) as running:
        replaced = Replaced(running, broker, topic)
        running.filling.swap(users=[user(n) for n in range(5)])
        running.sinks.change(settings_of(topic))
        running.wait_written()
        if written:
            before_writing(replaced.delete, monkeypatch)
            replaced.batch()
        else:
            replaced.delete()
        wait_until(lambda: running.status().state is SinkState.FAILING, what="a failure")
        assert f"topic '{topic}' does not exist" in str(running.status().error)
        replaced.create()
        replaced.wait_equal()


def before_writing(act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Act once, after the sink has looked for its topic."""
    write, left = TopicWriter.write, [act]

    def act_and_write(writer: TopicWriter, *given: Any, **more: Any) -> None:
        if left:
            left.pop()()
        write(writer, *given, **more)

    monkeypatch.setattr(TopicWriter, "write", act_and_write)


def test_second_writer_of_a_topic_fences_the_first(tmp_path: Path, broker: EmbeddedBroker, topic: str) -> None:
    with sunk(tmp_path / "a", broker) as first, sunk(tmp_path / "b", broker) as second:
        for running in (first, second):
            running.filling.swap(users=[user(1)])
        first.sinks.change(settings_of(topic))
        first.wait_written()
        second.sinks.change(settings_of(topic))
        second.wait_written()
        first.filling.batch(users=[user(2)])
        fenced = "another process writes topic"
        wait_until(lambda: any(fenced in line for line in first.said), what="the first is fenced")


def test_transactions_that_are_not_allowed_are_named_with_their_remedy(
    tmp_path: Path, broker: EmbeddedBroker, topic: str
) -> None:
    name = ResourceType.TRANSACTIONAL_ID, sink_id(topic), ResourcePatternType.LITERAL
    deny = AclBinding(*name, "User:ANONYMOUS", "*", AclOperation.ALL, AclPermissionType.DENY)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_acls([deny])[deny].result(patience())
    with sunk(tmp_path, broker) as running:
        running.filling.swap(users=[user(1)])
        running.sinks.change(settings_of(topic))
        wait_until(lambda: running.status().state is SinkState.FAILING, what="a failure")
        error = str(running.status().error)
        assert "transactions are not allowed" in error
        assert "delivery: at_least_once" in error
        running.sinks.change(settings_of(topic, delivery=Delivery.AT_LEAST_ONCE))
        running.wait_written()
        with reading(broker, topic) as reader:
            assert reader.rows() == bag(running.shown())


def test_topic_that_may_not_be_written_is_named_by_the_sink_and_by_the_check(
    tmp_path: Path, broker: EmbeddedBroker, topic: str
) -> None:
    name = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    [sink] = settings_of(topic).values()
    assert check_sink("out", sink, kafka) == Finding("sink out", "ok", f"topic {topic}: partitions 2, exactly_once")
    rights = [
        AclBinding(*name, "User:ANONYMOUS", "*", operation, AclPermissionType.ALLOW)
        for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    ]
    for done in admin.create_acls(rights).values():
        done.result(patience())
    wait_until(lambda: check_sink("out", sink, kafka).level == "fault", what="the right to be gone")
    assert check_sink("out", sink, kafka).text.endswith("may not be used with Turnout's Kafka identity (no WRITE)")
    with sunk(tmp_path, broker) as running:
        running.filling.swap(users=[user(1)])
        running.sinks.change(settings_of(topic))
        wait_until(lambda: running.status().state is SinkState.FAILING, what="a failure")
        assert f"topic '{topic}' may not be written and read" in str(running.status().error)
        write = AclBinding(*name, "User:ANONYMOUS", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
        admin.create_acls([write])[write].result(patience())
        running.wait_written()


def test_check_tells_of_a_topic_that_is_missing_or_not_compacted(
    broker: EmbeddedBroker, topic_name: Callable[[str], str]
) -> None:
    name = topic_name("plain")
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    sink = SinkSettings(table="final_ui", topic=name)
    missing = check_sink("out", sink, kafka)
    assert (missing.level, missing.text) == ("fault", f"topic '{name}' does not exist")
    create_topic(broker.bootstrap_servers, name)
    plain = check_sink("out", sink, kafka)
    assert (plain.level, plain.hint) == ("warning", "set cleanup.policy=compact on the topic")


def test_avro_is_written_by_a_registered_schema(tmp_path: Path, broker: EmbeddedBroker, topic: str) -> None:
    answers = {f"/subjects/{topic}-value/versions": (200, {"id": 77})}
    with scripted(answers) as registry, sunk(tmp_path, broker, registry.url) as running:
        running.filling.swap(users=[user(n) for n in range(4)])
        running.sinks.change(settings_of(topic, format="avro"))
        running.wait_written()
        with reading(broker, topic, read_avro) as reader:
            assert reader.rows() == bag(running.shown())
        # What the topic holds is known by a header, since the values do not tell.
        running.sinks.change({})
        running.sinks.change(settings_of(topic, format="avro"))
        running.wait_written()
        assert running.status().records == 0
        # In another form every row is another record.
        running.sinks.change(settings_of(topic))
        running.wait_written()
        assert running.status().records == 4


def read_avro(value: bytes) -> dict[str, Any]:
    assert value[:5] == b"\0\0\0\0M", "the registry's wire format, with the id of the schema"
    columns = {name: ColumnType.parse(kind) for name, kind in COLUMNS.items()}
    found: Any = fastavro.schemaless_reader(BytesIO(value[5:]), fastavro.parse_schema(schema_of("t", columns)), None)
    return dict(found)


class Killed(NamedTuple):
    """A store whose process was killed at every point, and the topic of its sink."""

    folder: Path
    topic: str


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, broker: EmbeddedBroker) -> dict[Delivery, Killed]:
    """One for each delivery, by one program: to import all that it uses takes longer than to run."""
    stores = {one: Killed(tmp_path_factory.mktemp("killed"), f"killed-sink-{one.value}") for one in Delivery}
    for _, topic in stores.values():
        create_topic(
            broker.bootstrap_servers, topic, 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
        )
    script = [sys.executable, killed_sinks.__file__, str(SINK_ROUNDS), broker.bootstrap_servers]
    script += [f"{folder}={topic}={delivery.value}" for delivery, (folder, topic) in stores.items()]
    ended = subprocess.run(script, check=False, capture_output=True, **ending_with_us())
    assert ended.returncode == 0, ended.stderr.decode()
    return stores


@pytest.mark.parametrize("delivery", list(Delivery))
def test_kill_at_every_point_loses_and_doubles_nothing(
    broker: EmbeddedBroker, killed: dict[Delivery, Killed], delivery: Delivery
) -> None:
    folder, topic = killed[delivery]
    states: dict[tuple[int, int], Counter[str]] = {}
    database = Database.open(folder / "store")
    place, rows = killed_sinks.shown(database)
    states[place] = bag(rows)
    database.close()
    lines = (folder / "shown.jsonl").read_text().splitlines()
    states |= {(place[0], place[1]): bag(rows) for place, rows in map(json.loads, lines)}
    with reading(broker, topic) as reader:
        with sunk(folder / "store", broker) as running:
            running.sinks.change(settings_of(topic, delivery=delivery))
            running.wait_written()
            assert reader.rows() == bag(running.shown())
        assert_only_shown_states(reader.records, states, exactly=delivery is Delivery.EXACTLY_ONCE)


def assert_only_shown_states(
    records: list[SunkRecord], states: dict[tuple[int, int], Counter[str]], *, exactly: bool
) -> None:
    """After the last record of each version the topic folds to the table as it was shown with that version."""
    table: dict[str, dict[str, Any]] = {}
    seen: set[tuple[int, int]] = set()
    for version, group in itertools.groupby(records, key=lambda record: record.version):
        own = list(group)
        if exactly:
            assert version not in seen, "a version in two pieces"
            assert all(table.get(record.key) != record.value for record in own), "written twice"
        seen.add(version)
        fold(table, own)
        if exactly:
            assert bag(table.values()) == states[version], version
    assert len(seen) > 5
