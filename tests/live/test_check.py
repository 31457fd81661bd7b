"""`turnout check` against a real broker: what is well, what is missing, and what does not fit."""

from __future__ import annotations

import json
import socket
from itertools import islice
from pathlib import Path
from typing import Any

import typer.testing

from http_server import application, serving, small_store
from turnout.cli import app
from turnout.config.settings import default_sources
from turnout.local.broker import EmbeddedBroker
from turnout.local.demo_data import BAD_EVERY, HARBOUR, People, SampleProducer
from turnout.testing import create_topic


def checked(folder: Path, document: dict[str, Any]) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """The exit code, and for each subject the level and text of its findings."""
    file = folder / "turnout.yaml"
    file.write_text(json.dumps(document))  # JSON is YAML
    result = typer.testing.CliRunner().invoke(app, ["check", "-c", str(file), "--json"])
    assert result.stdout, result.exception
    found: dict[str, list[tuple[str, str]]] = {}
    for finding in json.loads(result.stdout)["findings"]:
        found.setdefault(finding["subject"], []).append((finding["level"], finding["text"]))
    return result.exit_code, found


def test_check_tells_topics_records_and_what_is_missing(tmp_path: Path, broker: EmbeddedBroker) -> None:
    address, users, control = broker.bootstrap_servers, "check-users", "check-control"
    create_topic(address, users, 2)
    for topic in ("check-accounts", "check-empty", control):
        create_topic(address, topic)
    sources = default_sources()
    sources["users"]["topic"], sources["accounts"]["topic"] = users, "check-accounts"
    document: dict[str, Any] = {
        "kafka": {"bootstrap_servers": address},
        "control": {"topic": control},
        "sources": sources,
    }
    producer = SampleProducer(address)
    people = People(users, "check-accounts", HARBOUR)
    try:
        assert producer.write(people.backlog(200)) > 300
        producer.write(islice(people.live(), BAD_EVERY))  # up to the first that is cut off
    finally:
        producer.stop()

    # All at once: each check of a real Kafka starts a JVM. `test_by_example.py` has a file that nothing is wrong with.
    create_topic(address, "check-letters", config={"cleanup.policy": "compact"})
    document |= {"control": {"topic": "check-missing"}, "dead_letter_topic": "check-letters"}
    empty = sources["users"] | {"topic": "check-empty", "table": "empty_ui"}
    keyless = {"topic": users, "table": "a", "key": "id", "columns": {"id": "string"}}
    document |= {"sources": sources | {"empty": empty, "keyless": keyless}}
    code, found = checked(tmp_path, document)
    assert code == 1
    assert found["control topic"] == [("fault", "topic 'check-missing' does not exist")]
    refused = "topic 'check-letters' has cleanup.policy=compact, so Kafka refuses records without a key"
    assert found["dead_letter_topic"][1] == ("warning", refused)
    assert found["source empty"] == [("ok", "topic check-empty: partitions 1, records 0")]
    assert "not JSON" in str(found["source users"])
    assert found["source accounts"][1] == ("ok", "100 of the newest 100 records fit")
    level, text = found["source keyless"][1]
    assert level == "fault" and "no record has the key id" in text


def test_check_tells_that_kafka_does_not_answer_and_that_a_port_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        document = {"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "server": {"port": port}}
        code, found = checked(tmp_path, document | {"data_dir": str(tmp_path / "data")})
    assert code == 1
    assert found["kafka"][0][0] == "fault"
    assert "127.0.0.1:1" in found["kafka"][0][1]
    assert found["server"] == [("fault", f"127.0.0.1:{port}: Address already in use")]


def test_check_warns_of_a_turnout_that_is_there_already(tmp_path: Path) -> None:
    with small_store(tmp_path) as database, serving(application(database)) as url:
        server = {"port": int(url.rpartition(":")[2])}
        _, found = checked(tmp_path, {"kafka": {"bootstrap_servers": "127.0.0.1:1"}, "server": server})
    assert found["server"] == [("warning", f"{url.removeprefix('http://')}: a Turnout answers there already")]
