"""What goes wrong with Kafka: a broker that is away, topics that are deleted. Turnout says so, and goes on."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from in_process_turnout import ServedTurnout
from lengths import LONG
from shared_broker import formatted
from turnout.local.broker import EmbeddedBroker, free_port
from turnout.testing import create_topic, delete_topic, patience, produce, wait_until
from turnout_process import RunningTurnout
from two_topics import (
    TopicName,
    account,
    assert_ends_soon,
    assert_tables_are_exact,
    ended,
    sections,
    user,
    wait_reason,
    wait_said,
    wait_total,
    watched,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTAGE_SECONDS = 12


def test_start_without_broker_or_topics_and_a_broker_that_restarts_lose_and_double_nothing(
    tmp_path: Path, broker: EmbeddedBroker, spark: SparkSession
) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    topics = ("users", "accounts")
    if LONG:  # the short form ends a process whose broker is away in test_cluster.py
        end_while_it_waits_for_its_broker(tmp_path / "process", address, topics)
    turnout = ServedTurnout(tmp_path / "turnout", spark, address, **sections(*topics))
    with closing(turnout), BrokerLater(formatted(broker, tmp_path / "broker"), port) as own:
        turnout.start(ready=False)
        wait_reason(turnout, address, "cannot be reached")
        assert turnout.answer("/healthz") == 200
        assert turnout.rows("final_ui") == []
        assert address in turnout.log()
        own.start()
        wait_reason(turnout, "topic 'accounts' does not exist; create it")
        create_topic(address, "accounts", partitions=2)
        wait_reason(turnout, "topic 'users' does not exist; create it")
        create_topic(address, "users", partitions=2)
        produce(address, "users", [user(n) for n in range(100)])
        turnout.wait_ready()
        wait_total(turnout, "final_ui", 100)

        with watched(turnout):
            own.stop()
            stopped = time.monotonic()
            wait_reason(turnout, address, "cannot be reached")
            print(f"noticed after {time.monotonic() - stopped:.1f} s")
            wait_until(lambda: time.monotonic() - stopped > OUTAGE_SECONDS)
            own.start()
            began = time.monotonic()
            produce(address, "users", [user(n) for n in range(100, 150)])
            produce(address, "accounts", [account(n) for n in range(50)])
            wait_total(turnout, "final_ui", 150)
            print(f"new records after {time.monotonic() - began:.1f} s")
            turnout.wait_ready()
        assert_tables_are_exact(turnout, address, topics)


def end_while_it_waits_for_its_broker(folder: Path, address: str, topics: tuple[str, str]) -> None:
    process = RunningTurnout(folder, address, **sections(*topics))
    with ended(process):
        process.start(ready=False)
        process.wait_answer()
        wait_said(process, address, "cannot be reached")
        assert_ends_soon(process, signal.SIGTERM)


class BrokerLater(EmbeddedBroker):
    """A broker that the test starts; it is stopped at the end."""

    def __enter__(self) -> BrokerLater:
        return self


def test_deleted_topics_and_records_lost_to_retention_are_told_and_reading_goes_on(
    tmp_path: Path, broker: EmbeddedBroker, spark: SparkSession, topic_name: TopicName
) -> None:
    address = broker.bootstrap_servers
    users, accounts = topic_name("users"), topic_name("accounts")
    for topic in (users, accounts):
        create_topic(address, topic)
    produce(address, users, [user(n) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": address})
    with ServedTurnout(tmp_path, spark, address, **sections(users, accounts)) as turnout:
        wait_total(turnout, "users_ui", 10)
        delete_topic(address, users)
        produce(address, accounts, [account(n) for n in range(3)])
        wait_total(turnout, "accounts_ui", 3)
        wait_said(turnout, f"topic '{users}' partition 0 is gone", "offset 10")
        create_topic(address, users)
        produce(address, users, [user(n) for n in range(100, 104)])
        wait_total(turnout, "users_ui", 14)
        turnout.wait_ready()

        # Between two batches one topic is deleted and created again, so that its offsets go back, and records of the
        # other are gone before they were read.
        turnout.close()
        delete_topic(address, users)
        create_topic(address, users)
        produce(address, users, [user(200)])
        produce(address, accounts, [account(n) for n in range(10, 30)])
        place = TopicPartition(accounts, 0, 18)
        admin.delete_records([place])[place].result(patience())
        turnout.start()
        wait_total(turnout, "users_ui", 15)
        wait_total(turnout, "accounts_ui", 8)
        wait_said(turnout, f"topic '{users}' partition 0 was deleted and created again", "offset 4", "ends at 1")
        wait_said(turnout, f"topic '{accounts}' partition 0 lost offsets 3 to 17")
        produce(address, users, [user(201)])
        produce(address, accounts, [account(30)])
        wait_total(turnout, "users_ui", 16)
        wait_total(turnout, "accounts_ui", 9)
