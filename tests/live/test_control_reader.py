"""The reader of the control topic, and outcomes, on a real broker; `test_sink_faults.py` also restarts the broker."""

import itertools
import json
import os
import statistics
import threading
import time

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from background_work import beside
from control_topic_reader import Received, patient, reading
from turnout.config import KafkaSettings
from turnout.kafka.control_topic import Acknowledgements, ControlReader, ControlRecord
from turnout.kafka.topics import Topics
from turnout.testing import EmbeddedBroker, Record, create_topic, delete_topic, patience, produce, wait_until

SECONDS = patience()
"""The limit of all that is waited for."""


@pytest.fixture(autouse=True)
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


def delete_before(kafka: str, topic: str, offset: int) -> None:
    admin, place = AdminClient({"bootstrap.servers": kafka}), TopicPartition(topic, 0, offset)
    admin.delete_records([place])[place].result(SECONDS)


def numbers(first: int, last: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(first, last)]


def test_control_reader_reads_from_the_earliest_record_in_partition_order(kafka: str) -> None:
    create_topic(kafka, "control-order", partitions=3)
    produce(kafka, "control-order", [Record(str(n), partition=n % 3, timestamp_ms=1_000_000 + n) for n in range(1500)])
    with reading(kafka, "control-order") as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        assert len(received.records) == 1500
        for partition in range(3):
            offsets = [record.offset for record in received.records if record.partition == partition]
            assert offsets == list(range(500))
        assert {record.timestamp_ms for record in received.records} == set(range(1_000_000, 1_001_500))
        assert received.warnings == received.news == []


def test_control_reader_reads_on_after_the_remembered_offsets(kafka: str) -> None:
    create_topic(kafka, "control-after", partitions=2)
    produce(kafka, "control-after", [Record(str(n), partition=0) for n in range(10)])
    produce(kafka, "control-after", [Record(None, key="k", partition=1)])
    with reading(kafka, "control-after", {0: 7}) as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        assert sorted(received.values, key=str) == sorted([*numbers(7, 10), None], key=str)
    with reading(kafka, "control-after", {0: 10, 1: 1}) as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        produce(kafka, "control-after", [Record("new", partition=0)])
        wait_until(lambda: received.values == [b"new"], what="the new record")


def test_control_reader_is_as_prompt_as_a_client_that_does_nothing_else(kafka: str) -> None:
    create_topic(kafka, "control-prompt")
    arrived: dict[bytes | None, float] = {}

    def read(ended: threading.Event) -> None:
        plain = Consumer({"bootstrap.servers": kafka, "group.id": "plain"})
        plain.assign([TopicPartition("control-prompt", 0, 0)])
        while not ended.is_set():
            message = plain.poll(0.2)
            if message is not None and message.error() is None:
                arrived[message.value()] = time.monotonic()
        plain.close()

    with reading(kafka, "control-prompt") as (received, reader), beside(read):
        assert reader.caught_up.wait(SECONDS)
        first = itertools.count(step=15)

        def seconds_later() -> float:
            """How much later fifteen records come to the reader, half of them."""
            sent = numbers(begin := next(first), begin + 15)
            for value in sent:
                produce(kafka, "control-prompt", [value])
                wait_until(lambda value=value: value in received.arrived and value in arrived, interval=0.002)  # type: ignore[misc]
            return statistics.median(received.arrived[value] - arrived[value] for value in sent)

        # On a busy machine either of the two may have to wait for its turn; one that is late by itself is always late.
        wait_until(lambda: seconds_later() < 0.05, what="records as soon as another client has them")


def test_control_reader_idle_uses_hardly_any_cpu(kafka: str) -> None:
    create_topic(kafka, "control-idle")
    others = {thread.id for thread in psutil.Process().threads()}

    def used_seconds() -> float:
        own = [thread for thread in psutil.Process().threads() if thread.id not in others]
        return sum(thread.user_time + thread.system_time for thread in own)

    with reading(kafka, "control-idle") as (_, reader):
        assert reader.caught_up.wait(SECONDS)
        before, began = used_seconds(), time.monotonic()
        wait_until(lambda: time.monotonic() - began > 2, interval=0.1)
        assert used_seconds() - before < 0.5


def test_control_reader_catches_up_behind_transaction_markers(kafka: str) -> None:
    create_topic(kafka, "control-markers")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "control-markers"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("control-markers", "kept")
    producer.commit_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce("control-markers", "aborted")
    producer.flush(SECONDS)
    producer.abort_transaction(SECONDS)
    with reading(kafka, "control-markers") as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        assert received.values == [b"kept"]


def test_control_reader_waits_for_a_topic_that_does_not_exist_yet(kafka: str) -> None:
    with reading(kafka, "control-later") as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        wait_until(lambda: received.warnings, what="the warning")
        create_topic(kafka, "control-later")
        produce(kafka, "control-later", ["1", "2"])
        wait_until(lambda: received.values == [b"1", b"2"], what="the records")
        assert len(received.warnings) == 1
        assert "'control-later' does not exist" in received.warnings[0] and "create it" in received.warnings[0]
        wait_until(lambda: received.news == ["control topic 'control-later' is read"], what="the news")


def test_control_reader_picks_up_new_partitions(kafka: str) -> None:
    create_topic(kafka, "control-grows")
    produce(kafka, "control-grows", ["1"])
    with reading(kafka, "control-grows") as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        admin = AdminClient({"bootstrap.servers": kafka})
        admin.create_partitions([NewPartitions("control-grows", 2)])["control-grows"].result(SECONDS)
        wait_until(lambda: _produced(kafka, "control-grows", Record("2", partition=1)), what="the partition is there")
        produce(kafka, "control-grows", [Record("3", partition=0)])
        wait_until(lambda: set(received.values) >= {b"1", b"2", b"3"}, what="the records")
        assert len({(record.partition, record.offset) for record in received.records}) == len(received.records)
        assert received.warnings == []


def _produced(kafka: str, topic: str, record: Record) -> bool:
    try:
        return produce(kafka, topic, [record]) == 1
    except KafkaException:
        return False


def test_control_reader_goes_on_at_the_earliest_record_when_its_place_is_gone(kafka: str) -> None:
    create_topic(kafka, "control-cut")
    produce(kafka, "control-cut", [str(n) for n in range(10)])
    delete_before(kafka, "control-cut", 6)
    with reading(kafka, "control-cut", {0: 2}) as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        assert received.values == numbers(6, 10)
        assert len(received.warnings) == 1 and "offsets 2 to 5 are lost" in received.warnings[0]
    with reading(kafka, "control-cut", {0: 99}) as (received, reader):
        wait_until(lambda: received.values == numbers(6, 10), what="all that is there")
        assert len(received.warnings) == 1 and "read up to offset 99, and now holds 6 to 10" in received.warnings[0]


def test_control_reader_notices_records_that_go_while_it_reads(kafka: str) -> None:
    create_topic(kafka, "control-falls")
    produce(kafka, "control-falls", ["0"])
    received = Received()
    held, go_on = threading.Event(), threading.Event()

    def deliver(records: list[ControlRecord]) -> None:
        held.set()
        go_on.wait(2 * SECONDS)
        received.deliver(records)

    little = KafkaSettings(bootstrap_servers=kafka, librdkafka_properties={"queued.max.messages.kbytes": "1024"})
    reader = ControlReader(little, "control-falls", {}, deliver, received.say)
    reader.start()
    try:
        assert held.wait(SECONDS)
        # More than the client fetches ahead, so that it comes back for records that are gone.
        produce(kafka, "control-falls", [os.urandom(500_000) for _ in range(40)])
        delete_before(kafka, "control-falls", 41)
        go_on.set()
        wait_until(lambda: received.warnings, what="the loss is told")
        produce(kafka, "control-falls", ["after"])
        wait_until(lambda: received.values[-1:] == [b"after"], what="reading goes on")
        assert "(retention); reading continues at 41" in received.warnings[0]
    finally:
        reader.stop()


def test_control_reader_reads_a_topic_that_was_made_anew_from_its_start(kafka: str) -> None:
    create_topic(kafka, "control-anew")
    produce(kafka, "control-anew", ["old 1", "old 2"])
    with reading(kafka, "control-anew") as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        delete_topic(kafka, "control-anew")
        create_topic(kafka, "control-anew")
        produce(kafka, "control-anew", ["new 1", "new 2", "new 3"])  # more than before: offsets alone would hide it
        wait_until(lambda: len(received.records) >= 5, what="the new records")
        assert received.values == [b"old 1", b"old 2", b"new 1", b"new 2", b"new 3"]
        wait_until(lambda: any("was created again" in text for text in received.warnings), what="the warning")


def test_control_reader_delivers_again_what_was_not_taken(kafka: str) -> None:
    create_topic(kafka, "control-again")
    with reading(kafka, "control-again") as (received, reader):
        assert reader.caught_up.wait(SECONDS)
        received.failures = [OSError("disk full"), OSError("disk full")]
        produce(kafka, "control-again", ["1", "2"])
        wait_until(lambda: len(received.records) >= 2, what="the records")
        produce(kafka, "control-again", ["3"])
        wait_until(lambda: len(received.records) >= 3, what="the next record")
        assert received.values == [b"1", b"2", b"3"]
        assert len(received.warnings) == 1 and "disk full" in received.warnings[0]


def test_control_reader_stops_while_deliver_blocks(kafka: str) -> None:
    create_topic(kafka, "control-blocks")
    produce(kafka, "control-blocks", ["1"])
    held, go_on = threading.Event(), threading.Event()

    def deliver(records: list[ControlRecord]) -> None:
        held.set()
        go_on.wait(2 * SECONDS)

    reader = ControlReader(KafkaSettings(bootstrap_servers=kafka), "control-blocks", {}, deliver, print)
    reader.start()
    assert held.wait(SECONDS)
    reader.stop()
    assert reader._thread is not None and reader._thread.is_alive() and not go_on.is_set(), (
        "it blocks, and is left alone"
    )
    go_on.set()
    reader._thread.join(SECONDS)


def test_control_reader_starts_without_a_broker_and_stops_soon() -> None:
    with reading("127.0.0.1:1", "control") as (received, reader):
        wait_until(lambda: received.warnings, what="the warning")
        assert "Connection refused" in received.warnings[0]
        assert not reader.caught_up.is_set()


def _read_all(kafka: str, topic: str, count: int) -> list[tuple[bytes | None, object]]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, timeout=SECONDS)
    consumer.close()
    return [(message.key(), json.loads(message.value() or b"null")) for message in found]


def test_acknowledgements_are_json_under_the_request_id(kafka: str) -> None:
    create_topic(kafka, "control-outcomes")
    warnings: list[str] = []
    outcomes = Acknowledgements(
        KafkaSettings(bootstrap_servers=kafka), "control-outcomes", lambda _, text: warnings.append(text)
    )
    outcomes.send("r-1", {"outcome": "applied", "text": "snøre"})
    outcomes.send(None, {"outcome": "rejected"})
    assert outcomes.flush(SECONDS)
    outcomes.close()
    outcomes.close()
    assert _read_all(kafka, "control-outcomes", 2) == [
        (b"r-1", {"outcome": "applied", "text": "snøre"}),
        (None, {"outcome": "rejected"}),
    ]
    assert warnings == []


def test_acknowledgements_to_a_missing_topic_warn_once_and_recover(kafka: str) -> None:
    warnings: list[str] = []
    outcomes = Acknowledgements(
        KafkaSettings(bootstrap_servers=kafka), "control-outcomes-later", lambda _, text: warnings.append(text)
    )
    outcomes.send("r-1", {"n": 1})
    wait_until(lambda: warnings, what="the failure is told")
    outcomes.send("r-2", {"n": 2})
    create_topic(kafka, "control-outcomes-later")

    def written() -> bool:
        outcomes.send("r-3", {"n": 3})
        outcomes.flush(1)
        return _end(kafka, "control-outcomes-later") > 0

    wait_until(written, interval=0.5, what="an outcome is written")
    outcomes.close()
    assert len(warnings) == 1 and "'control-outcomes-later'" in warnings[0] and "control.ack_topic" in warnings[0]


def _end(kafka: str, topic: str) -> int:
    topics = Topics(KafkaSettings(bootstrap_servers=kafka), timeout_seconds=SECONDS)
    end = sum(topics.end_offsets([topic]).next.values())
    topics.close()
    return end


def test_acknowledgements_without_a_broker_neither_raise_nor_wait() -> None:
    warnings: list[str] = []
    outcomes = Acknowledgements(
        KafkaSettings(bootstrap_servers="127.0.0.1:1"), "control-outcomes", lambda _, text: warnings.append(text)
    )
    outcomes.send("r-1", {"n": 1})
    outcomes.send("\ud800", {"odd": object()})
    assert warnings == [], "nobody waited for Kafka"
    outcomes.close()
    assert len(warnings) == 1 and "stopped before Kafka took" in warnings[0]
