"""Topics against a real broker that would create topics by itself, and that has access rules."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from in_process_orchestrator import orchestrated
from shared_broker import RULES
from turnout.config import KafkaSettings
from turnout.errors import TurnoutError
from turnout.kafka.clients import Partition, read_offsets
from turnout.kafka.topics import Topics, unknown_topic
from turnout.plan.offsets import Offsets
from turnout.plan.plan import Start
from turnout.testing import EmbeddedBroker, Record, create_topic, delete_topic, patience, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTIES = RULES | {
    "auto.create.topics.enable": "true",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.backoff.ms": "200",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("topics"), properties=PROPERTIES) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topics(kafka: str) -> Iterator[Topics]:
    # A broker whose disk is busy may take longer than its ten seconds to make the partitions of a new topic.
    opened = Topics(KafkaSettings(bootstrap_servers=kafka), timeout_seconds=patience())
    yield opened
    opened.close()


@pytest.mark.parametrize("refusal", [KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_leader_that_a_broker_does_not_know_yet_is_asked_again(
    kafka: str, topics: Topics, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    name, asked = f"moving-leader-{refusal}", []
    create_topic(kafka, name)
    produce(kafka, name, [{"userId": "u1"}])

    def first_refused(
        consumer: Consumer, times: Mapping[Partition, int], timeout: float
    ) -> tuple[dict[Partition, int], dict[Partition, KafkaError]]:
        asked.append(times)
        if len(asked) == 1:
            return {}, {place: KafkaError(refusal) for place in times}
        return read_offsets(consumer, times, timeout)

    monkeypatch.setattr("turnout.kafka.topics.read_offsets", first_refused)
    assert topics.ends([(name, 0)]) == {(name, 0): 1}
    assert len(asked) == 2


def allow(bootstrap: str, topic: str, user: str, operation: AclOperation) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
    )
    admin.create_acls([rule])[rule].result(patience())


def code_of(error: pytest.ExceptionInfo[TurnoutError]) -> tuple[str, int]:
    return error.value.code, error.value.status


def test_topics_missing_topic_is_named_and_not_created(kafka: str, topics: Topics) -> None:
    create_topic(kafka, "missing-not")
    with pytest.raises(TurnoutError, match="topic 'missing' does not exist") as caught:
        topics.end_offsets(["missing"])
    assert code_of(caught) == ("unknown_topic", 422)
    assert "missing-not" in caught.value.hint
    with pytest.raises(TurnoutError):
        topics.sample("missing", 1)
    assert topics.low_watermark("missing", 0) is None
    assert "missing-not" in topics.names()
    assert "missing" not in topics.names()
    produce(kafka, "made-by-itself", ["x"])
    assert "made-by-itself" in topics.names(), "the broker makes a topic that is written to"


def test_turnout_creates_no_topic_also_where_the_broker_would(
    kafka: str, topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    missing = {"own-out", "own-outcomes", "own-control", "own-dead"}
    columns = {"userId": "string", "age": "int64"}
    sections = {
        "sources": {"users": {"topic": "own-users", "table": "users_ui", "key": "userId", "columns": columns}},
        "views": {},
        "sinks": {"out": {"table": "users_ui", "topic": "own-out"}},
        "control": {"topic": "own-control", "ack_topic": "own-outcomes"},
        "dead_letter_topic": "own-dead",
        "start": "earliest",
    }
    create_topic(kafka, "own-users")
    create_topic(kafka, "own-out", config={"cleanup.policy": "compact"})
    produce(kafka, "own-users", [{"userId": "a", "age": 1}])
    with orchestrated(tmp_path, spark, kafka, **sections) as running:

        def said(*words: str) -> bool:
            return any(all(word in row["msg"] for word in words) for row in running.rows("orchestrator_logs"))

        def waiting(count: int) -> bool:
            [sink] = running.orchestrator.sinks.status()
            return sink.records == count and sink.waiting_rows == 0

        wait_until(lambda: waiting(1), what="the sink has written")
        delete_topic(kafka, "own-out")
        produce(kafka, "own-users", [{"userId": "b", "age": 2}])
        wait_until(lambda: said("sink out does not write", "does not exist"), what="the sink tells of it")
        assert running.send(joinType="left", action="rollback").outcome == "rejected"
        wait_until(lambda: said("own-outcomes", "it does not exist"), what="outcomes that are not written are told")
        produce(kafka, "own-users", [b"no JSON"])
        wait_until(lambda: said("'own-dead' (dead_letter_topic) does not exist"), what="letters are told")
        assert not missing & topics.names()
        create_topic(kafka, "own-dead")
        create_topic(kafka, "own-out", config={"cleanup.policy": "compact"})
        wait_until(lambda: sum(topics.end_offsets(["own-dead"]).next.values()) == 1, what="the bad record")
        wait_until(lambda: len(topics.sample("own-out", 5)) == 2, what="both rows")
        assert topics.names() & missing == {"own-dead", "own-out"}


def test_topics_start_offsets_of_every_kind(kafka: str, topics: Topics) -> None:
    create_topic(kafka, "starts", partitions=2)
    produce(kafka, "starts", [Record({"n": n}, partition=n % 2, timestamp_ms=1_000_000 + n) for n in range(10)])
    both = [("starts", 0), ("starts", 1)]

    def at(start: Start) -> list[int]:
        found = topics.start_offsets(["starts"], start)
        return [found.next[place] for place in both]

    assert at(Start("earliest")) == [0, 0]
    assert at(Start("latest")) == [5, 5]
    assert at(Start("timestamp", 0)) == [0, 0]
    assert at(Start("timestamp", 1_000_003)) == [2, 1]
    assert at(Start("timestamp", 1_000_009)) == [5, 4]
    assert at(Start("timestamp", 9_000_000)) == [5, 5]
    assert topics.end_offsets(["starts"]) == Offsets(dict.fromkeys(both, 5))


def test_topics_start_offsets_differ_by_topic(kafka: str, topics: Topics) -> None:
    for name in ("each-a", "each-b"):
        create_topic(kafka, name)
        produce(kafka, name, ["1", "2"])
    found = topics.start_offsets(["each-a", "each-b"], {"each-a": Start("earliest"), "each-b": Start("latest")})
    assert found == Offsets({("each-a", 0): 0, ("each-b", 0): 2})


def test_topics_low_watermark_follows_deleted_records(kafka: str, topics: Topics) -> None:
    create_topic(kafka, "lows")
    produce(kafka, "lows", ["1", "2", "3"])
    assert topics.low_watermark("lows", 0) == 0
    assert topics.low_watermark("lows", 1) is None
    admin, cut = AdminClient({"bootstrap.servers": kafka}), TopicPartition("lows", 0, 2)
    admin.delete_records([cut])[cut].result(patience())
    assert topics.low_watermark("lows", 0) == 2
    assert topics.start_offsets(["lows"], Start("earliest")) == Offsets({("lows", 0): 2})
    assert topics.sample("lows", 10) == [b"3"]


def test_topics_sample_is_the_newest_of_all_partitions(kafka: str, topics: Topics) -> None:
    create_topic(kafka, "samples", partitions=3)
    assert topics.sample("samples", 5) == []
    produce(
        kafka, "samples", [Record(str(n), partition=0 if n < 90 else 1, timestamp_ms=1_000 + n) for n in range(100)]
    )
    produce(kafka, "samples", [Record(None, key="gone", partition=2, timestamp_ms=5_000)])
    assert topics.sample("samples", 12) == [b"89", *(str(n).encode() for n in range(90, 100)), None]
    assert topics.sample("samples", 12) == topics.sample("samples", 12)
    assert len(topics.sample("samples", 1000)) == 101
    assert topics.sample("samples", 0) == []


def test_topics_sample_looks_behind_transaction_markers(kafka: str, topics: Topics) -> None:
    create_topic(kafka, "markers")
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": "markers"})
    producer.init_transactions(patience())
    for number in range(6):
        producer.begin_transaction()
        producer.produce("markers", str(number))
        producer.commit_transaction(patience())
    full = Offsets({("markers", 0): 12})
    wait_until(lambda: topics.end_offsets(["markers"]) == full, what="the last marker, which comes after the commit")
    assert topics.sample("markers", 4) == [b"2", b"3", b"4", b"5"]
    assert len(topics.sample("markers", 100)) == 6


def test_topics_sample_looks_behind_compaction(kafka: str, topics: Topics) -> None:
    config = {"cleanup.policy": "compact", "segment.ms": "100", "max.compaction.lag.ms": "100"}
    create_topic(kafka, "compacted", config=config)
    produce(kafka, "compacted", [Record("first", key="only")])
    produce(kafka, "compacted", [Record(str(n), key="k") for n in range(500)])

    def compacted() -> bool:
        produce(kafka, "compacted", [Record("last", key="k")])  # a new record ends the segment before it
        return topics.sample("compacted", 400)[0] == b"first"

    wait_until(compacted, interval=0.1, what="the old records are compacted away")


def test_topics_unreadable_topic_is_not_authorized(kafka: str, topics: Topics) -> None:
    create_topic(kafka, "hidden")
    create_topic(kafka, "sealed")
    produce(kafka, "sealed", ["1"])
    # Rules come into force in their order.
    allow(kafka, "sealed", "ANONYMOUS", AclOperation.DESCRIBE)
    allow(kafka, "hidden", "other", AclOperation.READ)
    wait_until(lambda: "hidden" not in topics.names(), what="the rules are in force")
    with pytest.raises(TurnoutError, match="'hidden' may not be read") as caught:
        topics.end_offsets(["hidden"])
    assert code_of(caught) == ("not_authorized", 422)
    assert topics.end_offsets(["sealed"]) == Offsets({("sealed", 0): 1})
    with pytest.raises(TurnoutError, match="'sealed' may not be read") as caught:
        topics.sample("sealed", 1)
    assert code_of(caught) == ("not_authorized", 422)


def test_topics_refused_credentials_are_told_at_once(kafka: str) -> None:
    auth = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "ann", "password": "hush-hush"}
    topics = Topics(KafkaSettings.model_validate({"bootstrap_servers": kafka, "auth": auth}))
    with pytest.raises(TurnoutError, match="refused Turnout's credentials") as caught:
        topics.names()
    topics.close()
    assert code_of(caught) == ("not_authorized", 422)
    assert "hush-hush" not in str(caught.value)


def test_topics_answer_many_threads(kafka: str, topics: Topics) -> None:
    create_topic(kafka, "shared", partitions=2)
    produce(kafka, "shared", [Record(str(n), partition=n % 2) for n in range(20)])
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(5):
            if sum(topics.end_offsets(["shared"]).next.values()) != 20 or len(topics.sample("shared", 50)) != 20:
                wrong.append("a wrong answer")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_unknown_topic_names_the_one_that_was_meant() -> None:
    error = unknown_topic("user", ["accounts", "control", "users", "__consumer_offsets"])
    assert (error.code, error.status) == ("unknown_topic", 422)
    assert str(error) == "topic 'user' does not exist; did you mean 'users'?"


def test_unknown_topic_suggests_no_topic_that_a_source_may_not_read() -> None:
    known = ["accounts", "control", "users", "__consumer_offsets"]
    assert unknown_topic("contrl", known, {"control"}).hint == "create it or name another (has: accounts, users)"


def test_unknown_topic_shortens_a_long_list() -> None:
    error = unknown_topic("users", [f"t{number:02}" for number in range(20)])
    assert error.hint == "create it or name another (has: t00, t01, t02, t03, t04, t05, t06, t07, and 12 more)"


def test_unknown_topic_without_any_topic() -> None:
    assert unknown_topic("users", []).hint == "create it or name another"


@pytest.mark.parametrize(
    ("address", "cause"),
    [("127.0.0.1:1", "Connection refused"), ("no-such-host.invalid:9092", "'no-such-host.invalid' is not known")],
)
def test_topics_unreachable_kafka_is_named_with_its_cause(
    address: str, cause: str, capfd: pytest.CaptureFixture[str]
) -> None:
    topics = Topics(KafkaSettings(bootstrap_servers=address), timeout_seconds=patience(1))

    def message() -> str:
        with pytest.raises(TurnoutError) as caught:
            topics.end_offsets(["users"])
        assert code_of(caught) == ("kafka_unreachable", 503)
        return caught.value.message

    # A name that nobody knows may be looked for longer than that.
    wait_until(lambda: cause in (said := message()) and address in said, what="the cause")
    topics.close()
    assert address not in "".join(capfd.readouterr()), "no line of the client's own log"


def test_topics_closed_ends_questions_and_closes_twice() -> None:
    topics = Topics(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    topics.close()
    topics.close()
    with pytest.raises(TurnoutError) as caught:
        topics.names()
    assert caught.value.code == "closed"


def test_topics_refused_client_settings_are_a_config_error() -> None:
    kafka = KafkaSettings(properties={"security.protocol": "nonsense"})
    with pytest.raises(TurnoutError, match=r"kafka\.auth") as caught:
        Topics(kafka)
    assert caught.value.code == "bad_config"
