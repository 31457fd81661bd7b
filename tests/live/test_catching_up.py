"""Catching up, exactly: random records in pieces, decoded in bulk, and views built in parts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from test_exactness import Case, Runner, cases, compare

from fed_generation import Course, Quiet
from kafka_log import read_all
from lengths import BULK_EXAMPLES, LONG, PART_ROWS
from oracle import Sent
from turnout.config import KafkaSettings
from turnout.kafka.clients import bulk_properties
from turnout.kafka.lag import QUESTION_SECONDS, wait_for_more
from turnout.kafka.topics import Topics
from turnout.local.broker import EmbeddedBroker
from turnout.plan.joins import Duplicates, Join
from turnout.plan.offsets import Offsets
from turnout.spark.jvm.session import TaskSize
from turnout.testing import create_topic, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turnout.spark.generation import GenerationQuery


class CatchingUp(Runner):
    """A generation that is fed pieces until it has caught up, then batches."""

    def feed(self, number: int, records: list[Sent], end: Offsets) -> None:
        if self.tables.progress().views_built:
            super().feed(number, records, end)
        else:
            decoded = self.decoder.decode(self.raw(records))
            self.writer.take(decoded, end, None, caught_up=end.reached(self.target))


@settings(max_examples=BULK_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_tables_equal_a_plain_computation_whatever_the_pieces(spark: SparkSession, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        # So that views of few rows, too, are built in parts; of keys that fall into no part there are some.
        patched.setattr("turnout.spark.writing.SMALL_BATCH", 0)
        patched.setattr("turnout.spark.writing.PART_ROWS", TaskSize(PART_ROWS, PART_ROWS // 3))
        CatchingUp(spark, case, Path(folder)).play(replays=False)


def stream_of(runner: Runner, spark: SparkSession, bootstrap: str, folder: Path) -> GenerationQuery:
    """What reads the topics of a runner from a real Kafka."""
    from turnout.spark.generation import GenerationQuery, Kafka
    from turnout.spark.jvm.checkpoints import LocalFolder
    from turnout.spark.writing import Reading

    kafka = KafkaSettings(bootstrap_servers=bootstrap)
    topics = Topics(kafka)
    reading = Reading(runner.start, runner.target, LocalFolder(folder / "stream"), 1000)
    access = Kafka(
        java=lambda: {"bootstrap.servers": bootstrap},
        librdkafka=lambda: bulk_properties(kafka, anywhere=False),
        ends=topics.end_offsets,
        wait_for_more=partial(wait_for_more, Topics(kafka, QUESTION_SECONDS)),
    )
    return GenerationQuery(spark, runner.tables, reading, access, Quiet())


@pytest.mark.parametrize(("many", "steady"), [(0, 0), (1_000_000, 1_000_000), (1_000_000, 10)])
def test_stream_gives_the_same_tables_in_bulk_and_through_spark(
    spark: SparkSession,
    broker: EmbeddedBroker,
    tmp_path: Path,
    topic_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    many: int,
    steady: int,
) -> None:
    monkeypatch.setattr("turnout.spark.read.arrivals.MANY_RECORDS", many)
    monkeypatch.setattr("turnout.spark.read.arrivals.STEADY_RECORDS", steady)
    bootstrap = broker.bootstrap_servers
    odd = [b"nope", b'{"userId":"k1","age":"x","balance":[]}', b'{"userId":"\xff"}', b'{"userId":"k3","age":-0}']
    good = [b'{"userId":"k%d","name":"n","age":%d,"accountType":"a","balance":%d}' % (n % 7, n, n) for n in range(60)]
    values = [*good, *odd, None, *reversed(good)]
    # The last two are times that Spark's Kafka source cannot carry, or carries wrongly.
    times = [5, 7, -1, 2**63 - 1, -(10**14)]
    # How records come makes no difference to a join; the short form has the one that shows the rows of both sides.
    joins = [Join.FULL, *([Join.LEFT, Join.INNER] if LONG else [])]
    prefix = topic_name("")
    topics = (f"{prefix}u", f"{prefix}a")
    for topic in topics:
        # Records of 1970 stay: the broker would remove them within minutes, which a slow run takes.
        create_topic(bootstrap, topic, 3, {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"})
    case = Case(Course([], [], set(), 0), ("all", "latest"), None, Duplicates.LATEST, joins)
    runner = Runner(spark, case, tmp_path, prefix)
    query = stream_of(runner, spark, bootstrap, tmp_path)
    query.start()
    try:
        for begin in range(0, len(values), 42):
            for topic in topics:
                part = enumerate(values[begin : begin + 42])
                produce(bootstrap, topic, [(v, b"k1", n % 3, times[(begin + n) // 20 % 5]) for n, v in part])
            sent = read_all(bootstrap, topics)
            read = Offsets({(record.topic, record.partition): record.offset + 1 for record in sent})
            wait_until(lambda read=read: query.error or runner.read().reached(read), interval=0.2)  # type: ignore[misc]
            assert query.error is None
            named = [replace(record, topic=record.topic.removeprefix(prefix)) for record in sent]
            compare(case, runner, named, views=True)
    finally:
        query.stop()
        runner.database.close()
