"""Alerts with real targets: a topic that gets each event once whatever happens, and a whole Turnout with a webhook."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import killed_alerts
from child_processes import ending_with_us
from fake_webhook import hooked
from filled_store import Filling
from in_process_turnout import ServedTurnout
from lengths import SINK_ROUNDS
from sink_reader import SunkTopic
from turnout.alert.alerts import Alerts
from turnout.config import AlertSettings, KafkaSettings
from turnout.local.broker import EmbeddedBroker
from turnout.preflight.findings import check_alert
from turnout.store.database import Database
from turnout.testing import create_topic, delete_topic, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topic(broker: EmbeddedBroker, topic_name: Callable[[str], str]) -> str:
    name = topic_name("alerts")
    create_topic(broker.bootstrap_servers, name, 2)
    return name


def to_topic(topic: str, where: str = "age > 50") -> AlertSettings:
    return AlertSettings.model_validate({"table": "users_ui", "where": where, "to": {"topic": topic}})


def user(number: int, age: int) -> dict[str, Any]:
    return {"userId": f"u{number}", "name": "n", "email": None, "age": age}


def events(database: Database, alert: str = "large") -> list[dict[str, Any]]:
    with database.read() as cursor:
        sql = "SELECT _id, event, key, _record, delivered FROM turnout.alerts WHERE alert = ? ORDER BY _id"
        rows: list[dict[str, Any]] = cursor.sql(sql, params=[alert]).to_arrow_table().to_pylist()
        return rows


def is_delivered(database: Database, count: int, alert: str = "large") -> bool:
    found = events(database, alert)
    return len(found) == count and all(row["delivered"] == "delivered" for row in found)


def test_topic_that_is_shared_by_alerts_gets_their_events_in_order(
    tmp_path: Path, broker: EmbeddedBroker, topic: str
) -> None:
    database, said = Database.open(tmp_path), []
    filling = Filling(database)
    filling.swap(users=[user(0, 1)])
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    alerts = Alerts(database, kafka, lambda level, text: said.append(text))
    reader = SunkTopic(broker.bootstrap_servers, topic)
    try:
        alerts.start({"old": to_topic(topic), "young": to_topic(topic, "age < 10")})
        wait_until(lambda: len(said) == 2, what="both have begun")
        alerts.test("old")
        for number in range(1, 4):
            filling.batch(users=[user(number, 60), user(number + 10, 5)])
        wait_until(lambda: all(is_delivered(database, 3, name) for name in ("old", "young")), what="all events")
        records = reader.read()
        of_old = [record for record in records if json.loads(record.key) == {"alert": "old"}]
        assert [(one.value or {})["event"] for one in of_old] == ["test", "entered", "entered", "entered"]
        assert [(one.value or {})["key"] for one in of_old[1:]] == ["u1", "u2", "u3"]
        assert len(records) == 7
        value = of_old[1].value or {}
        assert sorted(value) == ["alert", "event", "id", "key", "row", "rowId", "ts"]
        assert value["row"] == user(1, 60)
        assert [one.value["row"] for one in of_old if one.value and one.value["event"] == "test"] == [None]
    finally:
        alerts.stop()
        reader.close()
        database.close()


def test_topic_that_is_missing_is_told_and_gets_all_when_it_is_there(
    tmp_path: Path, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.alert.alerts.PAUSES_SECONDS", (0.1, 0.5))
    delete_topic(broker.bootstrap_servers, topic)
    database = Database.open(tmp_path)
    filling, alert = Filling(database), to_topic(topic)
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    alerts = Alerts(database, kafka, lambda level, text: None)
    filling.swap(users=[user(0, 1)])
    try:
        alerts.start({"large": alert})
        wait_until(lambda: killed_alerts.begun(database), what="it has begun")
        filling.batch(users=[user(1, 60)])
        wait_until(lambda: alerts.status()[0].error is not None, what="the error")
        error = alerts.status()[0].error
        assert error is not None
        assert (error.code, error.message) == ("sink_refused", f"topic {topic!r} does not exist")
        assert "compact" not in error.hint
        assert check_alert("large", alert, kafka).text == error.message
        create_topic(broker.bootstrap_servers, topic, 1)
        wait_until(lambda: is_delivered(database, 1), what="the event is delivered")
        assert check_alert("large", alert, kafka).level == "ok"
    finally:
        alerts.stop()
        database.close()


def test_check_warns_of_a_topic_that_is_compacted_and_of_an_address_that_is_private(
    broker: EmbeddedBroker, topic_name: Callable[[str], str]
) -> None:
    name, kafka = topic_name("compacted"), KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    create_topic(broker.bootstrap_servers, name, 1, {"cleanup.policy": "compact"})
    found = check_alert("large", to_topic(name), kafka)
    assert (found.level, found.hint) == ("warning", "set cleanup.policy=delete on the topic")
    private = AlertSettings.model_validate(
        {"table": "users_ui", "where": "age > 5", "to": {"webhook": "https://127.0.0.1/"}}
    )
    assert "not public" in check_alert("large", private, kafka).text


def test_kill_at_every_point_loses_and_doubles_no_event(tmp_path: Path, broker: EmbeddedBroker, topic: str) -> None:
    store = tmp_path / "store"
    script = [sys.executable, killed_alerts.__file__, str(SINK_ROUNDS), broker.bootstrap_servers, str(store), topic]
    ended = subprocess.run(script, check=False, capture_output=True, **ending_with_us())
    assert ended.returncode == 0, ended.stderr.decode()
    database, reader = Database.open(store), SunkTopic(broker.bootstrap_servers, topic)
    alerts = killed_alerts.watching(database, broker.bootstrap_servers, topic)
    try:
        wait_until(lambda: is_delivered(database, len(events(database))), what="all events are delivered")
        kept = [(row["event"], json.loads(row["_record"])) for row in events(database)]
        values = [record.value or {} for record in reader.read()]
        assert len(values) > 20
        told = [(value["event"], {"key": value["key"], "id": value["rowId"]}) for value in values]
        assert told == kept, "each event once, and in order"
        assert len({value["id"] for value in values}) == len(values)
        rows: Counter[str] = Counter()
        for event, identity in told:
            rows[identity["key"]] += {"entered": 1, "left": -1}[event]
            assert rows[identity["key"]] >= 0
        with database.read() as cursor:
            shown = cursor.execute("SELECT userId FROM main.final_ui WHERE balance > 1").fetchall()
        assert rows == Counter(key for (key,) in shown)
    finally:
        alerts.stop()
        reader.close()
        database.close()


def test_alert_comes_and_changes_by_apply_and_outlives_swaps_and_restarts(
    tmp_path: Path, spark: SparkSession, broker: EmbeddedBroker, topic_name: Callable[[str], str]
) -> None:
    users, accounts, others = (topic_name(name) for name in ("users", "accounts", "others"))
    for name in (users, accounts, others):
        create_topic(broker.bootstrap_servers, name, 1)
    source = {"key": "userId", "columns": {"userId": "string", "age": "int64"}}
    sections: dict[str, Any] = {
        "sources": {
            "users": {**source, "topic": users, "table": "users_ui", "rows": "latest"},
            "accounts": {**source, "topic": accounts, "table": "accounts_ui", "columns": {"userId": "string"}},
        },
        "views": {"final_ui": {"left": "users", "right": "accounts", "on": "userId"}},
        "start": "earliest",
        "control": {"topic": topic_name("control")},
    }
    create_topic(broker.bootstrap_servers, sections["control"]["topic"], 1)
    produce(broker.bootstrap_servers, users, [json.dumps({"userId": "u0", "age": 70})])
    with hooked() as hook, ServedTurnout(tmp_path, spark, broker.bootstrap_servers, **sections) as turnout:
        file = yaml.safe_load((tmp_path / "turnout.yaml").read_text())
        file["alerts"] = {
            "old": {"table": "final_ui", "where": "age > 60", "to": {"webhook": hook.url, "private": True}}
        }
        answer = turnout.put_config(yaml.safe_dump(file))
        assert answer.json()["outcome"] == "applied", answer.text
        assert hook.url not in answer.text, "the address is a secret"
        wait_until(lambda: turnout.status()["alerts"][0]["rows"] == 1, what="the row that was there")
        produce(broker.bootstrap_servers, users, [json.dumps({"userId": "u1", "age": 80})])
        wait_until(lambda: hook.events() == [("entered", "u1")], what="the event")
        # The row of u1 is in both generations: it tells nothing.
        produce(broker.bootstrap_servers, others, [json.dumps({"userId": "u1", "age": 81})])
        turnout.http.post("/api/control", json={"usersTopic": others}).raise_for_status()
        wait_until(lambda: hook.events()[1:] == [("left", "u0")], what="what the swap took away")
        tested = turnout.http.post("/api/alerts/old/test")
        assert tested.json() == {"alert": "old", "outcome": "delivered"}
        wait_until(lambda: ("test", None) in hook.events(), what="the sample")
        missing = turnout.http.post("/api/alerts/new/test")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "unknown_alert")
        rows = turnout.rows("alerts")
        assert [(row["event"], row["key"], row["delivered"]) for row in rows] == [
            ("entered", "u1", "delivered"),
            ("left", "u0", "delivered"),
        ]
