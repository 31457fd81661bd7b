"""Sources through the whole path: dead letters, evicted rows, tombstones, and sources that are not the default ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from in_process_orchestrator import Orchestrated, orchestrated
from kafka_log import read_all
from turnout.local.broker import EmbeddedBroker
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.checkpoints import folder_at
from turnout.spark.read.arrivals import KafkaReaders, LiveStream
from turnout.testing import Record, create_topic, patience, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = {"userId": "string", "name": "string", "email": "string", "age": "int64"}
ACCOUNTS = {"userId": "string", "accountType": "string", "balance": "double"}


def user(number: int, **more: Any) -> dict[str, Any]:
    return {"userId": f"k{number}", "name": f"n{number}", "email": "e", "age": number, **more}


def two_sources(users: str, accounts: str, control: str, **users_settings: Any) -> dict[str, Any]:
    return {
        "sources": {
            "users": {"topic": users, "table": "users_ui", "key": "userId", "columns": USERS, **users_settings},
            "accounts": {"topic": accounts, "table": "accounts_ui", "key": "userId", "columns": ACCOUNTS},
        },
        "control": {"topic": control},
        "start": "earliest",
    }


def create(broker: EmbeddedBroker, topic_name: Callable[[str], str], *names: str) -> list[str]:
    topics = [topic_name(name) for name in names]
    for topic in topics:
        create_topic(broker.bootstrap_servers, topic, 1)
    return topics


def lines(running: Orchestrated) -> list[str]:
    return [row["msg"] for row in running.rows("orchestrator_logs")]


@pytest.mark.parametrize("number", ["../1", "1", -1, 1.0, True, None])
def test_batch_that_has_no_number_is_refused(spark: SparkSession, tmp_path: Path, number: Any) -> None:
    """Its number names a file."""

    def never(*_: object) -> Any:
        raise AssertionError

    readers = KafkaReaders(spark, "g1", RecordDecoder(()), never, never)
    stream = LiveStream(readers, never, never, never)
    stream._checkpoint = folder_at(spark, tmp_path)
    with pytest.raises(ValueError, match="a batch has a number, got "):
        stream._on_batch(spark.range(1), number)


def test_bad_records_go_to_the_dead_letter_topic_as_they_came(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    users, accounts, control, dead = create(broker, topic_name, "users", "accounts", "control", "dead")
    raw = b'{"userId": "\xff'
    produce(broker.bootstrap_servers, users, [user(1), Record(raw, key=b"its key"), None, user(2, age="old")])
    sections = two_sources(users, accounts, control) | {"dead_letter_topic": dead}
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections) as running:
        assert [(row["userId"], row["age"]) for row in running.rows("users_ui")] == [("k1", 1), ("k2", None)]
        bad = {(row["offset"], row["field"], row["reason"]) for row in running.rows("bad_records")}
        assert bad == {(1, None, "not valid JSON"), (2, None, "null value"), (3, "age", 'expected int64, got "old"')}
    letters = read_all(broker.bootstrap_servers, [dead])
    assert [(letter.key, letter.value) for letter in letters] == [(b"its key", raw), (None, None)]
    headers = headers_of(broker.bootstrap_servers, dead)
    assert headers == {
        "turnout.topic": users.encode(),
        "turnout.partition": b"0",
        "turnout.offset": b"1",
        "turnout.reason": b"not valid JSON",
    }


def test_dead_letter_that_kafka_refuses_is_reported_with_the_reason(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    users, accounts, control = create(broker, topic_name, "users", "accounts", "control")
    small = topic_name("small")
    create_topic(broker.bootstrap_servers, small, config={"max.message.bytes": "1000"})
    sections = two_sources(users, accounts, control) | {"dead_letter_topic": small}
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections) as running:
        produce(broker.bootstrap_servers, users, [b"no JSON" * 1000])
        reason = f"bad records cannot be written to topic {small!r} (dead_letter_topic): "
        wait_until(lambda: any(reason in line for line in lines(running)), what="the reason")
        [line] = {line for line in lines(running) if reason in line}
        assert "larger than the max message size" in line


def headers_of(bootstrap: str, topic: str) -> dict[str, bytes]:
    """The headers of the first record."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "headers"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    [message] = consumer.consume(1, patience())
    consumer.close()
    headers: Any = message.headers()
    return dict(headers)


def test_max_rows_evicts_the_oldest_rows_and_says_so(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    users, accounts, control = create(broker, topic_name, "users", "accounts", "control")
    produce(broker.bootstrap_servers, users, [user(number) for number in range(8)])
    with orchestrated(
        tmp_path, spark, broker.bootstrap_servers, **two_sources(users, accounts, control, max_rows=5)
    ) as running:
        assert [row["userId"] for row in running.rows("users_ui")] == ["k3", "k4", "k5", "k6", "k7"]
        produce(broker.bootstrap_servers, users, [user(8), user(9)])
        wait_until(lambda: running.rows("users_ui")[-1]["userId"] == "k9", what="the new rows")
        for table in ("users_ui", "final_ui"):
            assert [row["userId"] for row in running.rows(table)] == ["k5", "k6", "k7", "k8", "k9"], table
        assert any("users_ui: 3 oldest rows evicted (max_rows)" in line for line in lines(running))


def test_tombstone_removes_the_row_of_its_key_and_its_place_in_the_view(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    users, accounts, control = create(broker, topic_name, "users", "accounts", "control")
    produce(broker.bootstrap_servers, users, [user(1), user(2), user(1, name="later")])
    with orchestrated(
        tmp_path, spark, broker.bootstrap_servers, **two_sources(users, accounts, control, rows="latest")
    ) as running:
        assert {row["name"] for row in running.rows("users_ui")} == {"later", "n2"}
        produce(broker.bootstrap_servers, users, [Record(None, key=b"k1")])
        wait_until(lambda: len(running.rows("users_ui")) == 1, what="the row to go")
        assert [row["userId"] for row in running.rows("final_ui")] == ["k2"]
        assert running.rows("bad_records") == []


def test_other_sources_and_columns_need_no_change_in_the_code(
    broker: EmbeddedBroker, topic_name: Callable[[str], str], spark: SparkSession, tmp_path: Path
) -> None:
    orders, goods, control, other = create(broker, topic_name, "orders", "goods", "control", "orders2")
    produce(broker.bootstrap_servers, orders, [{"sku": 7, "at": "2026-01-02T03:04:05Z", "label": "first"}])
    produce(broker.bootstrap_servers, goods, [{"sku": 7, "price": 12.5, "label": "bolt", "day": "2026-01-02"}])
    produce(broker.bootstrap_servers, other, [{"sku": 8, "at": "2026-01-02T03:04:05Z", "label": "second"}])
    sections = {
        "sources": {
            "orders": {
                "topic": orders,
                "table": "orders_live",
                "key": "sku",
                "columns": {"sku": "int64", "at": "timestamp", "label": "string"},
            },
            "goods": {
                "topic": goods,
                "table": "goods_live",
                "key": "sku",
                "columns": {"sku": "int64", "price": "decimal(8,2)", "label": "string", "day": "date"},
                "rows": "latest",
            },
        },
        "views": {"priced": {"left": "orders", "right": "goods", "on": "sku"}},
        "control": {"topic": control},
        "start": "earliest",
    }
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections) as running:
        [row] = running.rows("priced")
        assert list(row) == ["sku", "at", "label", "price", "goods_label", "day"]
        assert (row["label"], str(row["price"]), row["goods_label"], str(row["day"])) == (
            "first",
            "12.50",
            "bolt",
            "2026-01-02",
        )
        answer = running.send(ordersTopic=other)
        assert answer.generation == 2
        assert [row["label"] for row in running.rows("priced")] == ["second"]
        assert running.orchestrator.status()["ordersTopic"] == other


def test_generation_whose_batch_is_not_stored_yet_is_not_idle(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from turnout.spark.writing import Writer

    users, accounts, control = create(broker, topic_name, "users", "accounts", "control")
    stored, began, may_store = Writer.store, threading.Event(), threading.Event()

    def store_late(self: Writer, arrival: Any) -> None:
        # A partition that Spark sees for the first time makes a batch without a record.
        if arrival.decoded.records:
            began.set()
            assert may_store.wait(patience())
        stored(self, arrival)

    monkeypatch.setattr(Writer, "store", store_late)
    sections = two_sources(users, accounts, control)
    with orchestrated(tmp_path, spark, broker.bootstrap_servers, **sections) as running:
        running.wait_ready()
        live = running.orchestrator._lifecycle.live
        assert live is not None and live.query is not None and live.query._stream is not None
        query, stream = live.query, live.query._stream
        produce(broker.bootstrap_servers, users, [user(1)])
        assert began.wait(patience())
        wait_until(lambda: stream.held, what="the stream to wait for more")
        assert not query.idle, "the JVM may still end by this batch"
        may_store.set()
        wait_until(lambda: query.idle, what="the end of the batch")
        assert len(running.rows("users_ui")) == 1
