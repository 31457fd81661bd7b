"""Bulk reads: ranges of real topics, read by Spark's tasks, hold what a plain consumer and the decoder see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_log import read_all
from oracle import Sent
from turnout.config import KafkaSettings, parse
from turnout.config.tables import first_plan, layout_of
from turnout.decode.decoder import Decoded
from turnout.decode.shape import RAW
from turnout.errors import TurnoutError
from turnout.kafka.clients import bulk_properties
from turnout.local.broker import EmbeddedBroker
from turnout.plan.offsets import EARLIEST, OFFSET_BITS, Offsets
from turnout.schemas.record_decoder import RecordDecoder
from turnout.spark.jvm.session import TaskSize
from turnout.testing import Record, create_topic, delete_topic, patience, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turnout.spark.read.arrivals import KafkaReaders

GOOD = [b'{"userId":"k%d","name":"n%d","age":%d}' % (n % 7, n, n) for n in range(300)]
ODD = [
    None,
    b"",
    b"nope",
    b"[]",
    b'{"userId":"k1","age":"x"}',
    b'{"userId":"\xff"}',
    b'{"userId":7.50,"age":-0}',
    b'{"userId":"a","userId":"b"}',
    b'{"age":99999999999999999999}',
]
# Records of 1970 stay: the broker would remove them within minutes, which a slow run takes.
ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}


def decoder_of(topic: str, folder: Path) -> RecordDecoder:
    columns = {"userId": "string", "name": "string", "age": "int64"}
    source = {"topic": topic, "table": "users_ui", "key": "userId", "columns": columns, "rows": "latest"}
    settings = parse({"sources": {"users": source}, "views": {}}, folder, {})
    return RecordDecoder(layout_of(settings, first_plan(settings)).sources)


def reader_of(spark: SparkSession, bootstrap: str, decoder: RecordDecoder) -> KafkaReaders:
    from turnout.spark.read.arrivals import KafkaReaders

    kafka = KafkaSettings(bootstrap_servers=bootstrap)
    options = {"kafka.bootstrap.servers": bootstrap}
    return KafkaReaders(spark, "g1", decoder, lambda: bulk_properties(kafka, anywhere=False), lambda: options)


def plainly(decoder: RecordDecoder, records: Sequence[Sent]) -> Decoded:
    columns = [
        [0] * len(records),
        [r.partition << OFFSET_BITS | r.offset for r in records],
        [r.timestamp_ms for r in records],
        [r.key for r in records],
        [r.value for r in records],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW, strict=True)]
    return decoder.decode(pa.table(arrays, schema=RAW))


def seen(decoded: Decoded) -> tuple[list[str], list[str], int]:
    """Every row and every fault, in an order of its own."""
    rows = [repr(row) for row in decoded.rows[0].to_pylist()] if decoded.rows else []
    faults = [repr(row) for row in decoded.faults.to_pylist()] if decoded.faults is not None else []
    return sorted(rows), sorted(faults), decoded.records


@pytest.fixture(params=["by tasks", "through Spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records are read through Spark's own source, unless it cannot give them as they are."""
    if request.param == "by tasks":
        monkeypatch.setattr("turnout.spark.read.arrivals.FEW_RECORDS", 0)


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of partitions are split among tasks."""
    monkeypatch.setattr("turnout.spark.read.bulk.SMALLEST_TASK", 40)
    monkeypatch.setattr("turnout.spark.read.arrivals.TASK_RECORDS", TaskSize(40, 40))


@pytest.mark.usefixtures("small_tasks", "way")
def test_ranges_hold_what_a_plain_consumer_reads(
    spark: SparkSession, broker: EmbeddedBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("t")
    create_topic(broker.bootstrap_servers, topic, 3, ANY_TIME)
    times = [0, -1, -(2**62), 58844 * 31_556_952_000, 2**63 - 1, -(10**14)]
    values = [value for n, good in enumerate(GOOD) for value in (good, ODD[n % len(ODD)])]
    # librdkafka takes 0 for now; whatever the time became is read back.
    produce(
        broker.bootstrap_servers,
        topic,
        [Record(value, b"k%d" % (n % 9), n % 3, times[n % 40] if n % 40 < 6 else 5) for n, value in enumerate(values)],
    )
    records = read_all(broker.bootstrap_servers, [topic])
    assert {-(2**62), 2**63 - 1} <= {record.timestamp_ms for record in records}
    decoder = decoder_of(topic, tmp_path)
    reader = reader_of(spark, broker.bootstrap_servers, decoder)
    ends = Offsets({(topic, p): 200 for p in range(3)})
    whole = reader.read(Offsets(dict.fromkeys(ends.next, EARLIEST)), ends)
    assert seen(whole) == seen(plainly(decoder, records))
    middle = Offsets({(topic, 0): 17, (topic, 2): 90}), Offsets({(topic, 0): 18, (topic, 2): 181})
    some = [r for r in records if (r.partition == 0 and r.offset == 17) or (r.partition == 2 and 90 <= r.offset < 181)]
    assert seen(reader.read(*middle)) == seen(plainly(decoder, some))
    assert decoder.firsts(reader.read(*middle)) == {(topic, 0): 17, (topic, 2): 90}


@pytest.mark.usefixtures("small_tasks", "way")
def test_aborted_transactions_are_not_read_and_ranges_end_at_gaps(
    spark: SparkSession, broker: EmbeddedBroker, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_name("t")
    create_topic(broker.bootstrap_servers, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(60)
    for number in range(12):
        producer.begin_transaction()
        for value in GOOD[number * 10 : number * 10 + 10]:
            producer.produce(topic, value)
        producer.flush(60)
        producer.commit_transaction(60) if number % 3 else producer.abort_transaction(60)
    committed = [value for n in range(12) if n % 3 for value in GOOD[n * 10 : n * 10 + 10]]
    decoder = decoder_of(topic, tmp_path)
    reader = reader_of(spark, broker.bootstrap_servers, decoder)
    # Each transaction has a marker at its end, which has an offset and is no record.
    place = (topic, 0)
    found = reader.read(Offsets({place: 0}), Offsets({place: 132}))
    assert sorted(found.rows[0]["name"].to_pylist()) == sorted(f"n{GOOD.index(value)}" for value in committed)
    for end in (1, 10, 11, 12, 22, 33, 121, 131):
        part = reader.read(Offsets({place: 0}), Offsets({place: end}))
        expected = sum(1 for o in range(end) if (o // 11) % 3 and o % 11 < 10)
        assert part.records == expected, end


def test_what_is_gone_is_passed_over(
    spark: SparkSession,
    broker: EmbeddedBroker,
    topic_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Spark's source looks for a deleted topic for a minute before tasks are asked.
    monkeypatch.setattr("turnout.spark.read.arrivals.FEW_RECORDS", 0)
    topic = topic_name("t")
    create_topic(broker.bootstrap_servers, topic, 2)
    produce(broker.bootstrap_servers, topic, [(value, b"k", n % 2) for n, value in enumerate(GOOD)])
    decoder = decoder_of(topic, tmp_path)
    reader = reader_of(spark, broker.bootstrap_servers, decoder)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, 0, 100)]).values():
        done.result(patience())
    start, end = Offsets({(topic, 0): 20, (topic, 1): 140}), Offsets({(topic, 0): 150, (topic, 1): 150})
    assert decoder.firsts(reader.read(start, end)) == {(topic, 0): 100, (topic, 1): 140}
    delete_topic(broker.bootstrap_servers, topic)
    assert reader.read(start, end).records == 0
    # Made anew with lower offsets, which are of another life.
    create_topic(broker.bootstrap_servers, topic, 2)
    produce(broker.bootstrap_servers, topic, [(value, b"k", 0) for value in GOOD[:30]])
    assert decoder.firsts(reader.read(start, end)) == {(topic, 0): 20}


def test_kafka_that_is_not_there_is_said(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.spark.read.task.SILENCE_SECONDS", patience(1))
    # Workers of a local master import the module, and would not see what is patched here.
    from turnout.spark.read.task import KeptConsumer, Range, Unreadable, read_range

    properties = bulk_properties(KafkaSettings(bootstrap_servers="127.0.0.1:1"), anywhere=False)
    with pytest.raises(Unreadable, match=r"topic 't' partition 0.*(refused|down)"):
        list(read_range(KeptConsumer(properties), Range("t", 0, 0, 0, 5)))


def test_error_of_a_task_is_that_of_the_read() -> None:
    from turnout.spark.read.bulk import decoded_parts

    with pytest.raises(TurnoutError, match="no right"):
        decoded_parts([(b"", "no right"), (b"", "no right")])
