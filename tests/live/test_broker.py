"""The embedded broker is a real one, keeps its data over a restart, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from child_processes import ending_with_us, living_in
from shared_broker import formatted
from turnout.errors import TurnoutError
from turnout.java.jars import resolve
from turnout.local.broker import EmbeddedBroker, broker_archive, train
from turnout.testing import Record, create_topic, delete_topic, patience, produce, wait_until


def consume(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        messages = consumer.consume(count, timeout=patience())
    finally:
        consumer.close()
    assert [message.error() for message in messages] == [None] * count
    return messages


def topics(bootstrap: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return set(admin.list_topics(timeout=patience()).topics)


def test_produce_writes_every_form_of_record(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> None:
    forms, values = topic_name("forms"), topic_name("values")
    create_topic(broker.bootstrap_servers, forms, partitions=2)
    full = Record(b"full", key="k", partition=1, timestamp_ms=1_700_000_000_000, headers={"from": "test"})
    assert produce(broker.bootstrap_servers, forms, [full]) == 1
    [message] = consume(broker.bootstrap_servers, forms, 1, partition=1)
    assert (message.value(), message.key(), message.timestamp()[1]) == (b"full", b"k", 1_700_000_000_000)
    assert message.headers() == [("from", b"test")]

    create_topic(broker.bootstrap_servers, values)
    produce(broker.bootstrap_servers, values, [{"userId": "u1"}, "text", b"bytes", None, (None, "key")])
    messages = consume(broker.bootstrap_servers, values, 5)
    assert [message.value() for message in messages] == [b'{"userId": "u1"}', b"text", b"bytes", None, None]
    assert messages[4].key() == b"key"


def test_produce_to_an_unknown_topic_fails_because_topics_are_not_made_by_themselves(
    broker: EmbeddedBroker,
) -> None:
    with pytest.raises(KafkaException):
        produce(broker.bootstrap_servers, "never-made", ["x"])
    assert "never-made" not in topics(broker.bootstrap_servers)


def test_delete_topic_removes_it(broker: EmbeddedBroker) -> None:
    create_topic(broker.bootstrap_servers, "short-lived", config={"retention.ms": "60000"})
    delete_topic(broker.bootstrap_servers, "short-lived")
    assert "short-lived" not in topics(broker.bootstrap_servers)


def test_broker_on_a_busy_port_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(TurnoutError) as caught:
        EmbeddedBroker(tmp_path, port=taken.getsockname()[1]).start()
    assert caught.value.code == "broker_port_busy"


def test_broker_that_cannot_format_its_folder_shows_the_end_of_its_log(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, properties={"log.retention.hours": "soon"})
    with pytest.raises(TurnoutError, match="could not be formatted") as caught:
        broker.start()
    assert "log.retention.hours" in str(caught.value)
    assert not broker.running


def test_broker_that_ends_while_starting_shows_the_end_of_its_log(broker: EmbeddedBroker, tmp_path: Path) -> None:
    starting = EmbeddedBroker(formatted(broker, tmp_path), properties={"num.io.threads": "0"})
    with pytest.raises(TurnoutError, match=r"ended with exit code 1 before it was ready") as caught:
        starting.start()
    assert caught.value.code == "broker_failed"
    assert "num.io.threads" in str(caught.value)
    assert str(starting.log_file) in str(caught.value)
    assert not starting.running


def test_broker_that_is_never_ready_times_out_and_is_ended(broker: EmbeddedBroker, tmp_path: Path) -> None:
    starting = EmbeddedBroker(formatted(broker, tmp_path))
    starting.launch()
    session = starting.pid
    assert session is not None
    with pytest.raises(TurnoutError, match=r"not ready within 0\.2 s"):
        starting.wait_ready(0.2)
    assert not starting.running
    wait_until(lambda: not living_in(session), what="no process of the broker lives")


def assert_maps_the_archive_of_its_classes(java: psutil.Process) -> None:
    assert str(broker_archive(resolve("broker")).file) in {file.path for file in java.memory_maps()}


def assert_listens_on_loopback_only(java: psutil.Process) -> None:
    listening = [c for c in java.net_connections() if c.status == psutil.CONN_LISTEN]
    assert len(listening) == 2
    assert all(c.laddr.ip.endswith("127.0.0.1") for c in listening)


def assert_folder_is_refused_to_another(folder: Path) -> None:
    with pytest.raises(TurnoutError) as caught:
        EmbeddedBroker(folder).start()
    assert caught.value.code == "broker_folder_busy"


SERVE = "import sys, pathlib; from turnout.local.broker import serve; serve(0, pathlib.Path(sys.argv[1]))"


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    """A process that serves a broker on a folder, with the broker's address and its session, of which nothing stays."""
    command = [sys.executable, "-u", "-c", SERVE, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **ending_with_us()) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Kafka is ready at 127.0.0.1:")
        [session] = {os.getsid(child.pid) for child in psutil.Process(process.pid).children(recursive=True)}
        try:
            yield process, line.split()[4], session
        except BaseException:
            process.kill()
            raise
    wait_until(lambda: not living_in(session), what="no process of the broker lives")


def test_broker_does_not_outlive_its_process_however_that_ends_and_keeps_port_and_records(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    broker_archive(resolve("broker")).make(train)  # `make setup` did, as a rule
    left = formatted(broker, tmp_path) / "tmp" / "left-by-a-kill"
    left.mkdir(parents=True)
    with served(tmp_path) as (process, first, session):
        assert not left.exists()
        java = psutil.Process(session)
        assert f"-Djava.io.tmpdir={tmp_path / 'tmp'}" in java.cmdline()
        assert_maps_the_archive_of_its_classes(java)
        assert_listens_on_loopback_only(java)
        assert_folder_is_refused_to_another(tmp_path)
        assert topics(first) == set()
        create_topic(first, "kept")
        produce(first, "kept", ["one", "two"])
        assert living_in(session)
        process.kill()
    kept = [b"one", b"two"]
    for sign in (signal.SIGINT, signal.SIGTERM):
        kept.append(sign.name.encode())
        with served(tmp_path) as (process, address, _):
            assert address == first
            produce(first, "kept", [sign.name])
            assert [message.value() for message in consume(first, "kept", len(kept))] == kept
            process.send_signal(sign)
            assert process.wait(patience()) == 0
        assert not (tmp_path / "tmp").exists()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(first.partition(":")[2])), timeout=patience())
