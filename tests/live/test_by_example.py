"""`turnout init --from` with a real Kafka: the file that it writes passes `check`, and its joined table shows rows."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from typer.testing import CliRunner, Result

from in_process_orchestrator import running_on
from turnout.cli import app
from turnout.config import KafkaSettings, load
from turnout.kafka import topics as kafka_topics
from turnout.kafka.clients import is_compacted
from turnout.kafka.topics import Topics
from turnout.local.broker import free_port
from turnout.local.demo_data import HARBOUR, People, SampleProducer
from turnout.testing import EmbeddedBroker, Record, create_topic, patience, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TopicName = Callable[[str], str]


def turnout(broker: EmbeddedBroker, *arguments: str) -> Result:
    # Port 10000 is taken where a demo runs beside the tests.
    environment = {
        "TURNOUT_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "TURNOUT_SERVER__PORT": str(free_port()),
        "COLUMNS": "200",
    }
    return CliRunner().invoke(app, list(arguments), env=environment)


def value(kind: str, chance: random.Random) -> Any:
    number = chance.randrange(10**6)
    return {
        "flag": number % 2 == 0,
        "whole": number - 500_000,
        "large": number * 10**15,
        "larger": number * 10**25,
        "fraction": number / 8,
        "text": f"t{number}",
        "digits": str(number),
        "day": f"20{number % 90 + 10}-01-3{number % 2}",
        "moment": f"2026-01-01T00:00:{number % 50 + 10}.{number}+01:00",
        "object": {"a": [number, None]},
        "mixed": number if number % 2 else f"m{number}",
    }[kind]


def records(key: str, count: int, chance: random.Random) -> list[Record]:
    """Records with a field of every kind, under names of every kind; some fields are null or missing."""
    kinds = ("flag", "whole", "large", "larger", "fraction", "text", "digits", "day", "moment", "object", "mixed")
    names = {kind: chance.choice([kind, f'{kind}\'s, "{key}": #', f"ⓧ {kind}"]) for kind in kinds}
    made = []
    for number in range(count):
        fields = {name: value(kind, chance) for kind, name in names.items() if chance.random() < 0.9}
        identity = f"k{number % 40}"
        made.append(Record({key: identity} | fields, key=identity, partition=number % 2))
    return made


def test_file_of_random_records_is_checked_and_shows_joined_rows(
    broker: EmbeddedBroker, topic_name: TopicName, tmp_path: Path, spark: SparkSession
) -> None:
    kafka, chance = broker.bootstrap_servers, random.Random(7)
    left, right, control = (topic_name(name) for name in ("users", "accounts", "control"))
    create_topic(kafka, left, 2)
    create_topic(kafka, right, 2, {"cleanup.policy": "compact"})
    create_topic(kafka, control)
    produce(kafka, left, [Record(one.value, partition=one.partition) for one in records("userId", 120, chance)])
    produce(kafka, right, [*records("userId", 60, chance), Record(None, key="k0", partition=0)])
    before = tmp_path / "kafka.yaml"
    before.write_text(f"kafka: {{bootstrap_servers: '{kafka}'}}\ncontrol: {{topic: {control}}}\n")
    file = tmp_path / "turnout.yaml"
    made = turnout(broker, "init", str(file), "--from", f"{left}, {right}", "-c", str(before), "--json")
    assert made.exit_code == 0, made.output
    answer = json.loads(made.stdout)
    assert answer["views"] == ["final_ui"]
    assert {source["key"] for source in answer["sources"].values()} == {"userId"}
    assert [source["rows"] for source in answer["sources"].values()] == ["all", "latest"]
    assert "reading its newest 500 records" in made.stderr
    assert "61 records, newest 61 read, 1 tombstone" in file.read_text()
    config = load(file, {})
    assert {kind.name for source in config.sources.values() for kind in source.columns.values()} == {
        *("string", "boolean", "int64", "decimal(38,0)", "double", "date", "timestamp")
    }

    checked = turnout(broker, "check", "-c", str(file), "--json")
    assert checked.exit_code == 0
    findings = json.loads(checked.stdout)["findings"]
    assert [one for one in findings if one["level"] != "ok"] == []
    assert "100 of the newest 100 records fit" in [one["text"] for one in findings]

    with running_on(config, spark) as running:
        wait_until(lambda: len(running.rows("final_ui")) == 120, what="all rows of the left topic")
        assert running.rows("bad_records") == []
        first, second = config.sources.values()
        assert len(running.rows(second.table)) == 39  # one of 40 was removed by its tombstone
        rows = running.rows("final_ui")
        joined = [row for row in rows if any(row[name] is not None for name in row.keys() - first.columns.keys())]
        assert {row["userId"] for row in joined} == {f"k{number}" for number in range(1, 40)}


def test_topics_of_no_use_are_a_line_each_and_nothing_is_written(
    broker: EmbeddedBroker, topic_name: TopicName, tmp_path: Path
) -> None:
    kafka = broker.bootstrap_servers
    good, empty, binary, sealed, missing = (topic_name(name) for name in ("a", "empty", "binary", "sealed", "missing"))
    for topic in (good, empty, binary, sealed):
        create_topic(kafka, topic)
    produce(kafka, good, [{"id": 1}])
    produce(kafka, sealed, [{"id": 1}])
    produce(kafka, binary, [b"\xff\x01"])
    rule = AclBinding(
        ResourceType.TOPIC,
        sealed,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_acls([rule])[rule].result(patience())
    file = tmp_path / "turnout.yaml"

    def told() -> list[str]:
        result = turnout(
            broker, "init", str(file), "--from", ",".join([good, empty, binary, sealed, missing, "control"])
        )
        assert result.exit_code == 1
        return [line for line in result.stderr.splitlines() if line.startswith("error: ")]

    wait_until(lambda: any("may not be read" in line for line in told()), what="the rule is in force")
    lines = told()
    assert len(lines) == 5
    for line, words in zip(
        lines,
        (
            f"topic '{empty}' has no records; write records to it first",
            f"none of the newest 1 records of topic '{binary}' can be read: not valid JSON (1x); name a topic of JSON",
            f"topic '{sealed}' may not be read with Turnout's Kafka identity",
            f"topic '{missing}' does not exist; create it or name another (has: ",
            "topic 'control' is the control topic; name a topic that holds records of a source",
        ),
        strict=True,
    ):
        assert words in line
    assert not file.exists()


def test_file_that_is_there_stays_and_no_topic_is_looked_at(broker: EmbeddedBroker, tmp_path: Path) -> None:
    file = tmp_path / "turnout.yaml"
    file.write_text("precious")
    result = turnout(broker, "init", str(file), "--from", "nothing-of-the-kind")
    assert result.exit_code == 1
    assert "already exists" in result.stderr and "does not exist" not in result.stderr
    assert file.read_text() == "precious"


def test_kafka_that_is_away_is_told_once(tmp_path: Path) -> None:
    environment = {"TURNOUT_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    arguments = ["init", str(tmp_path / "x.yaml"), "--from", "users,accounts"]
    result = CliRunner().invoke(app, arguments, env=environment)
    assert result.exit_code == 1
    assert result.stderr.count("error: Kafka at 127.0.0.1:1 cannot be reached") == 1


def test_control_topic_that_is_not_there_is_a_note(
    broker: EmbeddedBroker, topic_name: TopicName, tmp_path: Path
) -> None:
    topic, control = topic_name("things"), topic_name("control")
    create_topic(broker.bootstrap_servers, topic)
    produce(broker.bootstrap_servers, topic, [{"id": 1}])
    before, file = tmp_path / "kafka.yaml", tmp_path / "turnout.yaml"
    before.write_text(
        f"control: {{topic: {control}}}\naccess: {{tokens: [{{name: a, role: viewer, token: '{'s' * 20}'}}]}}\n"
    )
    result = turnout(broker, "init", str(file), "--from", topic, "-c", str(before))
    assert result.exit_code == 0, result.output
    assert f"note: topic '{control}' does not exist yet" in result.stdout
    assert "set the variable ACCESS_TOKENS_0_TOKEN" in result.stdout
    assert "s" * 20 not in file.read_text() + result.output
    assert load(file, {"ACCESS_TOKENS_0_TOKEN": "t" * 20}).control.topic == control


def test_sample_has_keys_and_is_bounded_in_bytes(
    broker: EmbeddedBroker, topic_name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka, topic = broker.bootstrap_servers, topic_name("large")
    create_topic(kafka, topic, 2)
    produce(kafka, topic, [Record(b"x" * 1000, f"k{n}", n % 2, 1000 + n) for n in range(50)])
    topics = Topics(KafkaSettings(bootstrap_servers=kafka))
    try:
        whole = topics.look(topic, 50)
        assert (whole.partitions, whole.offsets) == (2, 50)
        assert [key for key, _ in whole.records] == [f"k{n}".encode() for n in range(50)]
        monkeypatch.setattr(kafka_topics, "SAMPLE_BYTES", 10_500)
        assert [key for key, _ in topics.look(topic, 50).records] == [f"k{n}".encode() for n in range(40, 50)]
    finally:
        topics.close()


def test_topics_are_created_and_listed_by_the_command_line(broker: EmbeddedBroker, topic_name: TopicName) -> None:
    names = [topic_name("made"), topic_name("made-too")]
    made = turnout(broker, "topic", "create", *names, "--partitions", "3", "--compact")
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines() == [f"Created {name}: 3 partitions" for name in names]
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    assert is_compacted(kafka, names[0], patience()) is True
    listed = json.loads(turnout(broker, "topic", "list", "--bootstrap", broker.bootstrap_servers, "--json").stdout)
    assert {"topic": names[1], "partitions": 3} in listed["topics"]
    again = turnout(broker, "topic", "create", names[0])
    assert (again.exit_code, again.stderr.splitlines()[0]) == (1, f"error: topic '{names[0]}' already exists")
    wrong = turnout(broker, "topic", "create", "my topic")
    assert wrong.exit_code == 1 and "is not a Kafka topic name" in wrong.stderr


def test_types_of_the_demos_topics_are_those_of_nearly_all_records(
    broker: EmbeddedBroker, topic_name: TopicName, tmp_path: Path
) -> None:
    users, accounts = topic_name("users"), topic_name("accounts")
    for topic in (users, accounts):
        create_topic(broker.bootstrap_servers, topic)
    people = People(users, accounts, HARBOUR, first_user=1)
    producer = SampleProducer(broker.bootstrap_servers)
    producer.write([*people.backlog(200), *itertools.islice(people.live(), 300)])
    producer.stop()
    made = turnout(broker, "init", str(tmp_path), "--from", f"{users},{accounts}", "--json")
    assert made.exit_code == 0, made.output
    found = json.loads(made.stdout)["sources"]
    types = {name: kind for source in found.values() for name, kind in source["columns"].items()}
    assert (types["age"], types["balance"]) == ("int64", "double")
    text = (tmp_path / "turnout.yaml").read_text()
    assert 'do not fit: "forty-two"' in text and 'do not fit: "n/a"' in text


def test_compaction_is_known_of_topics_that_say_so(broker: EmbeddedBroker, topic_name: TopicName) -> None:
    kafka, plain, compacted = broker.bootstrap_servers, topic_name("plain"), topic_name("compacted")
    create_topic(kafka, plain)
    create_topic(kafka, compacted, config={"cleanup.policy": "compact,delete"})
    settings = KafkaSettings(bootstrap_servers=kafka)
    found = [is_compacted(settings, topic, patience(10)) for topic in (plain, compacted, topic_name("missing"))]
    assert found == [False, True, None]
