"""Why a row is there, with a real Kafka: what records hold, older ones that the store does not keep, and those gone."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import oracle
from decompression_bombs import send_bomb
from fed_generation import places
from in_process_turnout import ServedTurnout
from lengths import LIVE_EXAMPLES
from oracle import Sent, Source
from reason_oracle import Fed, place, reason_of
from turnout.cli import app
from turnout.config import parse
from turnout.config.configuration import Configuration
from turnout.errors import TurnoutError
from turnout.local.broker import EmbeddedBroker
from turnout.serve import kafka_api
from turnout.store.database import Database
from turnout.store.ledger import Ledger
from turnout.store.query.row_records import MOST_OTHERS, MOST_ROWS, WhyQuestion
from turnout.swap import explainer
from turnout.swap.explainer import MOST_CHARACTERS, Explainer
from turnout.testing import Record, create_topic, delete_topic, patience, produce, wait_until
from turnout_client import connect
from turnout_client.column_types import COLUMN_TYPES, ColumnType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET = "a-secret-of-the-file"
numbers = itertools.count()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine takes its time."""
    monkeypatch.setattr(explainer, "KAFKA_SECONDS", patience())
    monkeypatch.setattr(kafka_api, "_ASKING_SECONDS", patience())


class Topics:
    """Topics of one test, and a store that has their records."""

    def __init__(self, bootstrap: str, database: Database, latest: Sequence[str]) -> None:
        self.bootstrap = bootstrap
        self.names = {source: f"why-{next(numbers)}-{source}" for source in ("users", "accounts")}
        for name in self.names.values():
            create_topic(bootstrap, name, 2)
        columns = {"userId": "string", "x": "string"}
        sources = {
            source: {"topic": topic, "table": f"{source}_ui", "key": "userId", "columns": columns}
            | {"rows": "latest" if source in latest else "all"}
            for source, topic in self.names.items()
        }
        views = {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}}
        kafka = {"bootstrap_servers": bootstrap}
        self.settings = parse({"kafka": kafka, "sources": sources, "views": views}, Path("/x"), {})
        self.fed = Fed(database, self.settings)
        ledger = Ledger(database, list(sources), {SECRET})
        generation: Any = SimpleNamespace(number=1, tables=self.fed.tables)
        self.explainer = Explainer(lambda: [generation], Configuration(self.settings), ledger)
        self.sent: list[Sent] = []

    def send(self, records: Sequence[Sent], headers: dict[str, bytes] | None = None) -> None:
        """Write records to Kafka and to the store."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        for record in records:
            producer.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp_ms,
                headers=list((headers or {}).items()),
            )
        assert producer.flush(patience()) == 0
        self.fed.feed(records)
        self.sent += records

    def why(self, table: str, raw_values: bool = True, **asked: Any) -> dict[str, Any]:
        found = self.explainer.rows(self.fed.database, WhyQuestion(table, **asked))
        return self.explainer.answer(found, raw_values=raw_values)


@contextmanager
def fed_topics(broker: EmbeddedBroker, latest: Sequence[str] = ()) -> Iterator[Topics]:
    with tempfile.TemporaryDirectory() as folder:
        database = Database.open(Path(folder))
        try:
            yield Topics(broker.bootstrap_servers, database, latest)
        finally:
            database.close()


def where(record: dict[str, Any]) -> tuple[str, int, int]:
    return record["topic"], record["partition"], record["offset"]


def text_of(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


@st.composite
def sent(draw: st.DrawFn) -> list[Sent]:
    found = []
    for source, partition, offset in places(draw, ("users", "accounts")):
        key = draw(st.sampled_from(["a", "b"]))
        value = None if draw(st.integers(0, 4)) == 0 else json.dumps({"userId": key, "x": draw(st.text())}).encode()
        found.append(Sent(source, partition, offset, 1000 + draw(st.integers(0, 3)), key.encode(), value))
    return found


@settings(max_examples=LIVE_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=sent(), latest=st.sampled_from([["users"], ["accounts"], ["users", "accounts"]]))
def test_older_records_that_the_store_does_not_keep_are_found_in_kafka(
    broker: EmbeddedBroker, records: list[Sent], latest: list[str]
) -> None:
    with fed_topics(broker, latest) as topics:
        placed = [Sent(topics.names[r.topic], r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]
        topics.send(placed)
        values = {(r.topic, r.partition, r.offset): text_of(r.value) for r in placed}
        times = {(r.topic, r.partition, r.offset): r.timestamp_ms for r in placed}
        for key in ("a", "b"):
            expected: dict[Any, str | None] = {}
            for name, topic in topics.names.items():
                source = Source(name, topic, "userId", {"userId": "string", "x": "string"}, name in latest)
                kept = [one for one in oracle.read_source(source, placed)[0] if one.row["userId"] == key]
                newest_only = name == "accounts"
                for one in kept:
                    expected[place(one)] = reason_of(one, kept, latest=source.latest, takes_newest=newest_only)
            try:
                answer = topics.why("final_ui", key=key)
            except TurnoutError as error:
                assert (error.code, expected) == ("unknown_row", {})
                continue
            chosen = {where(record) for row in answer["rows"] for record in row["records"]}
            assert answer["notes"] == []
            if answer["total"] <= MOST_ROWS:
                others = sorted((at for at in expected if at not in chosen), key=lambda at: (times[at], at))[::-1]
                for row in answer["rows"]:
                    told = [(where(record), record["reason"]) for record in row["others"]]
                    assert told == [(at, expected[at]) for at in others[:MOST_OTHERS]], "the newest"
                    assert row["complete"] == (len(others) <= MOST_OTHERS)
            for record in (one for row in answer["rows"] for one in (*row["records"], *row["others"])):
                assert record["value"] == values[where(record)]
                assert (record["key"], record["gone"]) == (key, False)


def test_records_are_shown_as_kafka_has_them_or_said_to_be_gone(broker: EmbeddedBroker) -> None:
    with fed_topics(broker) as topics:
        users, accounts = topics.names.values()
        long = json.dumps({"userId": "u1", "x": "y" * MOST_CHARACTERS}).encode()
        first = json.dumps({"userId": "u1", "x": SECRET, "more": 1}).encode()
        topics.send(
            [
                Sent(users, 0, 0, 1000, b"no text \xff", first),
                Sent(users, 0, 1, 2000, None, long),
                Sent(accounts, 1, 0, 3000, b"u1", json.dumps({"userId": "u1"}).encode()),
                Sent(accounts, 1, 1, 3000, b"u1", json.dumps({"userId": "u1", "x": "new"}).encode()),
            ],
            {"trace": b"7", "binary": b"\xfe"},
        )
        answer = topics.why("final_ui", key="u1")
        assert (answer["total"], answer["key"], answer["notes"]) == (2, "userId", [])
        (left, right), (longer, _) = (row["records"] for row in answer["rows"])
        assert left == {
            "source": "users",
            "topic": users,
            "partition": 0,
            "offset": 0,
            "timestamp": "1970-01-01T00:00:01Z",
            "reason": None,
            "key": "base64:bm8gdGV4dCD/",
            "headers": [{"name": "trace", "value": "7"}, {"name": "binary", "value": "base64:/g=="}],
            "value": first.decode().replace(SECRET, "********"),
            "bytes": len(first),
            "clipped": False,
            "gone": False,
        }
        assert (right["topic"], right["offset"], right["key"]) == (accounts, 1, "u1")
        assert (longer["bytes"], longer["clipped"], longer["key"]) == (len(long), True, None)
        assert longer["value"] == long.decode()[:MOST_CHARACTERS]
        assert [(one["offset"], one["reason"]) for one in answer["rows"][0]["others"]] == [(0, "older")]

        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        for done in admin.delete_records([TopicPartition(accounts, 1, 1)]).values():
            done.result(patience())
        row = topics.why("final_ui", row=answer["rows"][0]["row"])["rows"][0]
        assert [one["gone"] for one in row["records"]] == [False, False]
        [taken] = row["others"]
        assert (taken["reason"], taken["value"], taken["gone"]) == ("older", None, True)

        viewer = topics.why("final_ui", raw_values=False, key="u1")
        assert viewer["notes"] == ["keys, headers and values of records are for operators"]
        for record in viewer["rows"][0]["records"]:
            assert {record[name] for name in ("key", "value", "bytes", "gone")} == {None}
            assert record["headers"] is None

        delete_topic(topics.bootstrap, accounts)
        without = topics.why("final_ui", key="u1")
        assert [one["gone"] for one in without["rows"][0]["records"]] == [False, True]
        assert without["notes"] == []


def test_search_for_older_records_says_when_it_was_cut(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.kafka.topics._FIRST_SEARCHED", 10)
    monkeypatch.setattr("turnout.kafka.topics.MOST_SEARCHED", 20)
    with fed_topics(broker, ["users"]) as topics:
        users = topics.names["users"]
        keys = ["far", *(f"u{number}" for number in range(30)), *["many"] * 25, "far"]
        values = [json.dumps({"userId": key}).encode() for key in keys]
        topics.send([Sent(users, 0, offset, 1000, None, value) for offset, value in enumerate(values)])
        far, many = topics.why("users_ui", key="far"), topics.why("users_ui", key="many")
        assert (far["rows"][0]["others"], far["rows"][0]["complete"]) == ([], False)
        assert [note for note in far["notes"] if "was cut" in note] == far["notes"]
        assert (len(many["rows"][0]["others"]), many["rows"][0]["complete"]) == (MOST_OTHERS, False)
        assert many["notes"] == []


def test_older_records_are_found_by_keys_of_every_type(broker: EmbeddedBroker, tmp_path: Path) -> None:
    exact = [kind for kind in COLUMN_TYPES if kind.name not in ("float", "double")]  # others can be no key
    kinds = [*exact, ColumnType.parse("decimal(9,2)")]
    names = {f"s{number}": kind for number, kind in enumerate(kinds)}
    sources = {
        name: {"topic": f"why-typed-{name}", "table": f"{name}_ui", "key": "id", "rows": "latest"}
        | {"columns": {"id": kind.name}}
        for name, kind in names.items()
    }
    kafka = {"bootstrap_servers": broker.bootstrap_servers}
    database = Database.open(tmp_path)
    fed = Fed(database, parse({"kafka": kafka, "sources": sources, "views": {}}, tmp_path, {}))
    generation: Any = SimpleNamespace(number=1, tables=fed.tables)
    explaining = Explainer(lambda: [generation], Configuration(fed.settings), Ledger(database, list(sources)))
    for name, kind in names.items():
        topic, (first, second) = f"why-typed-{name}", kind.samples
        create_topic(broker.bootstrap_servers, topic)
        values = [json.dumps({"id": read_sample(kind, text)}) for text in (first, second, first)]
        produce(broker.bootstrap_servers, topic, [Record(value, None, 0, 1000) for value in values])
        fed.feed([Sent(topic, 0, offset, 1000, None, value.encode()) for offset, value in enumerate(values)])
        found = explaining.rows(database, WhyQuestion(f"{name}_ui", key=first))
        [row] = explaining.answer(found, raw_values=True)["rows"]
        assert [one["offset"] for one in row["records"]] == [2], kind
        assert [(one["offset"], one["reason"], one["value"]) for one in row["others"]] == [(0, "older", values[0])], (
            kind
        )
    database.close()


def read_sample(kind: ColumnType, text: str) -> Any:
    return text if kind.json == "string" else json.loads(text)


def test_record_that_cannot_be_unpacked_is_named(broker: EmbeddedBroker) -> None:
    with fed_topics(broker) as topics:
        users = topics.names["users"]
        topics.send([Sent(users, 0, 0, 1000, None, json.dumps({"userId": "u1"}).encode())])
        bomb = json.dumps({"userId": "u2", "x": "y" * 110_000_000}).encode()
        assert send_bomb(topics.bootstrap, users, "zstd", bomb) == 1
        topics.fed.feed([Sent(users, 0, 1, 2000, None, json.dumps({"userId": "u2"}).encode())])
        answer = topics.why("users_ui", key="u2")
        [record] = answer["rows"][0]["records"]
        assert (record["value"], record["gone"]) == (None, None)
        [note] = answer["notes"]
        assert note.startswith(f"{users}, partition 0, offset 1: ")
        assert "cannot be unpacked" in note
        assert topics.why("users_ui", key="u1")["rows"][0]["records"][0]["gone"] is False


def test_answer_without_kafka_has_what_the_store_knows(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with fed_topics(broker, ["users"]) as topics:
        value = json.dumps({"userId": "u1"}).encode()
        topics.send([Sent(topics.names["users"], 1, 0, 1000, None, value)])
        monkeypatch.setattr(explainer, "KAFKA_SECONDS", 0.5)
        nobody = topics.settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
        topics.explainer._configuration = Configuration(topics.settings.model_copy(update={"kafka": nobody}))
        answer = topics.why("final_ui", key="u1")
        [record] = answer["rows"][0]["records"]
        assert (record["partition"], record["offset"], record["value"], record["gone"]) == (1, 0, None, None)
        [note] = answer["notes"]
        assert "cannot be reached" in note


def test_why_is_answered_for_operators_viewers_and_the_command_line(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap_servers
    for topic in ("why-users", "why-accounts", "why-control"):
        create_topic(bootstrap, topic)
    produce(bootstrap, "why-users", [Record({"userId": "u7", "name": name}, "k", headers={"h": "1"}) for name in "AB"])
    produce(bootstrap, "why-users", [Record("no json", "bad", headers={"trace": "t1"})])
    produce(bootstrap, "why-accounts", [{"userId": "u7", "balance": 1.5}])
    sources = {
        "users": {"topic": "why-users", "table": "users_ui", "key": "userId", "rows": "latest"}
        | {"columns": {"userId": "string", "name": "string"}},
        "accounts": {"topic": "why-accounts", "table": "accounts_ui", "key": "userId"}
        | {"columns": {"userId": "string", "balance": "double"}},
    }
    own = {"sources": ["users", "accounts"], "on": "userId", "columns": {"userId": "string", "total": "double"}}
    own["sql"] = "select userId, sum(balance) as total from accounts group by userId"
    views = {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}, "own_ui": own}
    tokens = [{"name": role, "role": role, "token": role * 4} for role in ("viewer", "operator")]
    sections = {"sources": sources, "views": views, "start": "earliest", "control": {"topic": "why-control"}}
    with ServedTurnout(tmp_path, spark, bootstrap, **sections, access={"tokens": tokens}) as turnout:
        operator = connect(turnout.url, "operator" * 4)
        viewer = connect(turnout.url, "viewer" * 4)
        wait_until(lambda: operator.rows("bad_records").total == 1, what="all records are read")

        found = operator.table("final_ui").why(key="u7")
        assert (found["generation"], found["message"]["requester"], found["notes"]) == (1, "configuration", [])
        [row] = found["rows"]
        assert [(one["source"], one["offset"], one["value"]) for one in row["records"]] == [
            ("users", 1, '{"userId": "u7", "name": "B"}'),
            ("accounts", 0, '{"userId": "u7", "balance": 1.5}'),
        ]
        assert row["records"][0]["headers"] == [{"name": "h", "value": "1"}]
        assert [(one["offset"], one["reason"], one["key"]) for one in row["others"]] == [(0, "older", "k")]
        assert operator.table("final_ui@1").why(row=row["row"])["rows"] == found["rows"]

        own_sql = operator.table("own_ui").why(key="u7")
        assert [one["source"] for one in own_sql["rows"][0]["records"]] == ["users", "accounts"]
        assert "has its own SQL" in own_sql["notes"][0]

        seen = viewer.table("final_ui").why(key="u7")
        assert [(one["offset"], one["value"], one["headers"]) for one in seen["rows"][0]["records"]] == [
            (1, None, None),
            (0, None, None),
        ]
        assert [one["reason"] for one in seen["rows"][0]["others"]] == ["older"]
        assert seen["notes"] == ["keys, headers and values of records are for operators"]

        bad = operator.table("bad_records").why(place=("why-users", 0, 2))
        [record] = bad["rows"][0]["records"]
        assert (record["key"], record["value"], bad["key"]) == ("bad", "no json", None)
        assert record["headers"] == [{"name": "trace", "value": "t1"}]

        asked = {"joinType": "inner", "requestId": "r1", "publish": False}
        assert operator.control(asked)["outcome"] == "candidate"
        message = operator.table("final_ui@2").why(key="u7")["message"]
        assert (message["requester"], message["requestId"]) == ("operator", "r1")
        assert json.loads(message["raw"]) == asked
        assert operator.control({"action": "publish"})["outcome"] == "applied"
        assert operator.table("final_ui").why(key="u7")["message"] == message, "what made it, not what published it"

        with pytest.raises(TurnoutError, match="no record of the key 'u99'") as unknown:
            operator.table("final_ui").why(key="u99")
        assert unknown.value.code == "unknown_row"

        def command(*arguments: str) -> Any:
            environ = {"TURNOUT_URL": turnout.url, "TURNOUT_TOKEN": "operator" * 4, "COLUMNS": "200"}
            return CliRunner().invoke(app, ["why", *arguments], env=environ)

        printed = command("final_ui", "userId=u7")
        assert printed.exit_code == 0, printed.output
        assert "made by operator" in printed.output
        assert "why-users: older" in printed.output
        assert '{"userId": "u7", "name": "B"}' in printed.output
        as_json = command("bad_records", "topic=why-users", "partition=0", "offset=2", "--json")
        assert json.loads(as_json.output)["rows"] == bad["rows"]
        for wrong in (["final_ui"], ["final_ui", "name=B"], ["final_ui", "userId=u7", "--row", "1"]):
            assert command(*wrong).exit_code != 0
