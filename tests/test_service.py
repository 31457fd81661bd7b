"""The process: who may reach it, and why it is not ready."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout import config, service
from turnout.errors import TurnoutError
from turnout.health import Health, Subject
from turnout.store.database import Database


def settings(tmp_path: Path, host: str, access: str = "") -> config.Settings:
    file = tmp_path / "turnout.yaml"
    text = config.default_text().replace("127.0.0.1", host).replace("data_dir: ./", f"data_dir: {tmp_path}/")
    file.write_text(text + access)
    return config.load(file, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "example.org"])
def test_service_refuses_an_address_that_others_reach(tmp_path: Path, host: str) -> None:
    with pytest.raises(TurnoutError) as caught:
        service.run(settings(tmp_path, host))
    assert caught.value.code == "insecure_address"
    assert host in caught.value.message
    assert "--insecure" in caught.value.hint


def test_service_refuses_tokens_that_it_does_not_check(tmp_path: Path) -> None:
    access = "\naccess: {tokens: [{name: ops, role: operator, token: secret-enough}]}\n"
    with pytest.raises(TurnoutError) as caught:
        service.run(settings(tmp_path, "127.0.0.1", access))
    assert caught.value.code == "access_not_checked"
    assert "secret-enough" not in str(caught.value)


def test_service_refuses_a_store_that_is_none(tmp_path: Path) -> None:
    chosen = settings(tmp_path, "127.0.0.1")
    chosen.data_dir.mkdir(parents=True)
    (chosen.data_dir / "store.duckdb").write_bytes(b"something else entirely")
    with pytest.raises(TurnoutError) as caught:
        service.run(chosen)
    assert caught.value.code == "store_unavailable"
    assert "store.duckdb" in caught.value.message


def test_store_that_was_closed_answers_with_503(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    database.close()
    with pytest.raises(TurnoutError) as caught, database.read():
        pass
    assert caught.value.status == 503
    assert database.broken(caught.value)
    database.reopen()
    with database.read() as cursor:
        assert cursor.execute("SELECT generation FROM turnout.published").fetchall() == [(0,)]
    database.close()


def test_health_tells_each_reason_once_and_its_end() -> None:
    lines: list[tuple[str, str]] = []
    health = Health(lambda level, text: lines.append((level, text)), "starting")
    assert health.reason() == "starting"
    health.good(Subject.START, "")
    assert health.reason() is None
    health.bad(Subject.READING, "no records")
    health.bad(Subject.READING, "no records")
    assert lines == [("ERROR", "no records")]
    health.good(Subject.READING, "reads again")
    health.good(Subject.READING, "reads again")
    assert lines == [("ERROR", "no records"), ("INFO", "reads again")]


def test_health_tells_the_cause_before_its_effects() -> None:
    health = Health(lambda level, text: None, "starting")
    health.bad(Subject.READING, "the query ended")
    health.bad(Subject.KAFKA, "no broker")
    health.bad(Subject.STORE, "no room")
    assert health.reason() == "no room"
    health.good(Subject.STORE)
    assert health.reason() == "no broker"
