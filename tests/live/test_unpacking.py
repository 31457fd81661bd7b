"""Records of a few kilobytes that unpack to hundreds of megabytes, in every place that reads Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from control_topic_reader import reading
from decompression_bombs import send_bomb
from turnout.config import KafkaSettings, parse
from turnout.config.settings import SourceSettings
from turnout.config.tables import first_plan, layout_of
from turnout.errors import TurnoutError
from turnout.example.topic_example import look_at
from turnout.kafka.clients import bulk_properties
from turnout.kafka.topics import Topics, TopicSample
from turnout.plan.offsets import Offsets
from turnout.preflight.findings import Cluster, check_cluster
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.session import TaskSize
from turnout.testing import EmbeddedBroker, Record, create_topic, patience, produce, wait_until
from turnout_process import ASKED_SECONDS, RunningTurnout
from two_topics import USERS, account, sections, user, wait_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = patience()
MEGABYTE = 1 << 20
COLUMNS = {"userId": "string", "name": "string"}
# The broker takes a megabyte of what is compressed.
BOMBS = {"zstd": 150, "gzip": 150, "lz4": 150, "snappy": 18}


@pytest.fixture
def kafka(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


def padded(user_id: str, megabytes: float) -> bytes:
    """A user whose record has about this size."""
    return json.dumps({"userId": user_id, "name": "x" * int(megabytes * MEGABYTE)}).encode()


@pytest.mark.parametrize("records", [1, 5])
def test_control_reader_rejects_a_batch_that_cannot_be_unpacked_and_reads_on(kafka: str, records: int) -> None:
    topic = f"control-bomb-{records}"
    create_topic(kafka, topic, partitions=2)
    produce(kafka, topic, [Record("before", partition=0)])
    send_bomb(kafka, topic, "zstd", b"x" * (150 << 20), records)
    produce(kafka, topic, [Record("after", partition=0), Record("beside", partition=1)])
    which = "record at offset 1" if records == 1 else f"batch of offsets 1 to {records}"
    unreadable = f"the {which} cannot be unpacked: it is damaged, or more than 100 MB"
    # From the start, after a restart before the batch, in it, and behind it.
    for after, bomb in (({}, True), ({0: 1}, True), ({0: records}, True), ({0: records + 1}, False)):
        with reading(kafka, topic, after) as (received, reader):
            assert reader.caught_up.wait(SECONDS)
            found = [record for record in received.records if record.partition == 0]
            read = [b"before"] * (not after) + [None] * bomb + [b"after"]
            assert [record.value for record in found] == read
            assert [(one.offset, one.unreadable) for one in found if one.unreadable] == [(records, unreadable)] * bomb
            assert [record.value for record in received.records if record.partition == 1] == [b"beside"]
            assert len(received.warnings) == len(received.news) == bomb
            assert reader.trouble is None


def test_bulk_read_refuses_what_cannot_be_unpacked_or_is_too_large_and_reads_all_else(
    spark: SparkSession, kafka: str, topic_name: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnout.spark.read.arrivals import KafkaReaders

    topic = topic_name("t")
    create_topic(kafka, topic, 1)
    produce(kafka, topic, [user(1)])
    for number, (codec, megabytes) in enumerate(BOMBS.items()):
        send_bomb(kafka, topic, codec, padded("bomb", megabytes))
        produce(kafka, topic, [user(2 + number)])
    send_bomb(kafka, topic, "zstd", b"x" * 150 * MEGABYTE, records=6)
    send_bomb(kafka, topic, "zstd", padded("large", 15))
    produce(kafka, topic, [user(6)])
    source = {"topic": topic, "table": "users_ui", "key": "userId", "columns": COLUMNS}
    settings = parse({"sources": {"users": source}, "views": {}}, tmp_path, {})
    decoder = RecordDecoder(layout_of(settings, first_plan(settings)).sources)
    properties = bulk_properties(KafkaSettings(bootstrap_servers=kafka), anywhere=False)
    reader = KafkaReaders(spark, "g1", decoder, lambda: properties, dict)
    place, end = (topic, 0), 17
    # Ranges begin and end in the batch of six.
    monkeypatch.setattr("turnout.spark.read.bulk.SMALLEST_TASK", 6)
    monkeypatch.setattr("turnout.spark.read.arrivals.TASK_RECORDS", TaskSize(6, 6))
    monkeypatch.setattr("turnout.spark.read.arrivals.FEW_RECORDS", 0)
    for chosen in (reader, reader.with_care()):
        found = chosen.read(Offsets({place: 0}), Offsets({place: end}))
        assert sorted(found.rows[0]["userId"].to_pylist()) == ["large", *(f"u{n}" for n in range(1, 7))]
        assert found.faults is not None
        told = {fault["_id"]: fault["reason"] for fault in found.faults.to_pylist()}
        assert len(found.faults) == len(told) == 5
        assert told[1] == "the record at offset 1 cannot be unpacked: it is damaged, or more than 100 MB"
        for offset, codec in ((3, "gzip"), (5, "lz4"), (7, "snappy")):
            size = len(padded("bomb", BOMBS[codec]))
            assert told[offset] == (
                f"record too large: {size:,} bytes, more than kafka.max_record_megabytes (16) allows"
            )
        assert told[14] == "the batch of offsets 9 to 14 cannot be unpacked: it is damaged, or more than 100 MB"
        assert found.faults.nbytes < 100_000


def test_stream_goes_on_behind_a_record_that_ends_the_jvm(
    kafka: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    users, accounts = topic_name("users"), topic_name("accounts")
    for topic in (users, accounts, f"{users}-control"):
        create_topic(kafka, topic, 1)
    produce(kafka, users, [user(1)])
    produce(kafka, accounts, [account(1)])
    with RunningTurnout(tmp_path, kafka, **sections(users, accounts, spark={"driver_memory": "512m"})) as turnout:

        def shown(table: str) -> list[str]:
            return sorted(row["userId"] for row in turnout.rows(table))

        send_bomb(kafka, users, "zstd", padded("bomb", 300))
        wait_reason(turnout, "Spark's JVM", "ended with code 52")
        produce(kafka, users, [user(2)])
        produce(kafka, accounts, [account(2)])
        wait_until(lambda: shown("users_ui") == ["u1", "u2"], interval=ASKED_SECONDS, what="what is behind the bomb")
        wait_until(lambda: shown("accounts_ui") == ["u1", "u2"], interval=ASKED_SECONDS, what="other topics")
        turnout.wait_ready()
        assert [(row["topic"], row["offset"]) for row in turnout.rows("bad_records")] == [(users, 1)]
        assert "cannot be unpacked" in turnout.rows("bad_records")[0]["reason"]
        # The stream itself goes on, and a record that is only too large ends nothing.
        send_bomb(kafka, users, "gzip", padded("large", 20))
        produce(kafka, users, [user(3)])
        wait_until(lambda: shown("users_ui") == ["u1", "u2", "u3"], interval=ASKED_SECONDS, what="the next record")
        assert sorted(row["offset"] for row in turnout.rows("bad_records")) == [1, 3]
        assert shown("final_ui") == ["u1", "u2", "u3"]
        log = turnout.log()
    assert log.count("it is started again") == 1, log


def test_samples_pass_over_what_cannot_be_unpacked_or_is_too_large_and_tell_of_it(
    kafka: str, topic_name: Callable[[str], str]
) -> None:
    topic, only = topic_name("t"), topic_name("only")
    for name in (topic, only):
        create_topic(kafka, name, 2)
        send_bomb(kafka, name, "zstd", b"x" * 150 * MEGABYTE, records=3)
    produce(kafka, topic, [Record(json.dumps(user(n)), partition=n % 2) for n in range(6)])
    send_bomb(kafka, topic, "lz4", padded("large", 20))
    settings = KafkaSettings(bootstrap_servers=kafka)
    damaged = "partition 0: the batch of offsets 0 to 2 cannot be unpacked: it is damaged, or more than 100 MB"
    with closing(Topics(settings)) as topics:
        sample = topics.look(topic, 50)
        assert sorted(json.loads(value or "")["userId"] for _, value in sample.records) == [f"u{n}" for n in range(6)]
        size = len(padded("large", 20))
        large = f"partition 0: the record at offset 6 has {size:,} bytes (kafka.max_record_megabytes)"
        assert sample.unreadable == (damaged, large)
        assert topics.look(only, 50) == TopicSample(2, 3, (), (damaged,))
    with pytest.raises(TurnoutError) as raised:
        look_at(only, parse({"kafka": {"bootstrap_servers": kafka}}, Path(), {}), 50)
    assert (raised.value.code, raised.value.message) == (
        "bad_example",
        f"topic {only!r} has no records ({damaged})",
    )
    source = SourceSettings.model_validate({"topic": topic, "table": "t", "key": "userId", "columns": USERS})
    cluster = Cluster("kafka", settings, {"source users": topic})
    found = [finding.text for finding in check_cluster(cluster, {"users": source}) if finding.level == "warning"]
    assert found == [f"topic {topic}, {damaged}", f"topic {topic}, {large}"]
