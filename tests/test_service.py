"""The process: who may reach it, and why it is not ready."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from small_disk import fill, small_disk
from turnout import config, service
from turnout.errors import TurnoutError
from turnout.store.database import Database
from turnout.swap.health import Health, Subject

TOKEN = "b0b5-are-never-guessed"


def settings(tmp_path: Path, host: str, access: str = "", port: int = 0) -> config.Settings:
    file = tmp_path / "turnout.yaml"
    text = config.default_text().replace("127.0.0.1", host).replace("data_dir: ./", f"data_dir: {tmp_path}/")
    file.write_text(text + access)
    return config.load(file, {"TURNOUT_SERVER__PORT": str(port)})


def break_store(chosen: config.Settings) -> None:
    chosen.data_dir.mkdir(parents=True)
    (chosen.data_dir / "store.duckdb").write_bytes(b"something else entirely")


def said_here(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged by the test's own thread: others may still be ending."""
    return [record.getMessage() for record in caplog.records if record.thread == threading.get_ident()]


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "example.org"])
def test_service_refuses_an_address_that_others_reach(tmp_path: Path, host: str) -> None:
    with pytest.raises(TurnoutError) as caught:
        service.run(settings(tmp_path, host))
    assert caught.value.code == "insecure_address"
    assert host in caught.value.message
    assert "--insecure" in caught.value.hint


def test_service_with_tokens_may_be_reached_by_others_and_wants_tls(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = settings(tmp_path, "0.0.0.0", f"\naccess: {{tokens: [{{name: ops, role: operator, token: {TOKEN}}}]}}\n")
    break_store(chosen)
    with pytest.raises(TurnoutError) as caught, caplog.at_level(logging.WARNING, "turnout"):
        service.run(chosen)
    assert caught.value.code == "store_unavailable"  # so the address was not refused
    (line,) = said_here(caplog)
    assert "0.0.0.0" in line
    assert "TLS" in line
    assert TOKEN not in line


def test_service_on_loopback_says_nothing_of_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chosen = settings(tmp_path, "127.0.0.1", f"\naccess: {{tokens: [{{name: a, role: viewer, token: {TOKEN}}}]}}\n")
    break_store(chosen)
    with pytest.raises(TurnoutError), caplog.at_level(logging.WARNING, "turnout"):
        service.run(chosen)
    assert said_here(caplog) == []


def test_service_reads_token_files_before_anything_starts(tmp_path: Path) -> None:
    chosen = settings(tmp_path, "127.0.0.1", "\naccess: {tokens: [{name: a, role: viewer, token_file: nowhere}]}\n")
    with pytest.raises(TurnoutError) as caught:
        service.run(chosen)
    assert caught.value.code == "bad_config"
    assert f"access.tokens[0].token_file: {tmp_path}/nowhere cannot be read" in caught.value.message
    assert not chosen.data_dir.exists()


def test_service_refuses_a_store_that_is_none(tmp_path: Path) -> None:
    chosen = settings(tmp_path, "127.0.0.1")
    break_store(chosen)
    with pytest.raises(TurnoutError) as caught:
        service.run(chosen)
    assert caught.value.code == "store_unavailable"
    assert "store.duckdb" in caught.value.message


@pytest.mark.namespaces("mount")
def test_store_that_found_no_room_is_made_when_there_is_some(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        fill(disk / "filler")
        with pytest.raises(TurnoutError, match="No space left on device"):
            Database.open(disk / "data")
        (disk / "filler").unlink()
        Database.open(disk / "data").close()


def test_data_folder_of_another_process_is_refused_with_its_id(tmp_path: Path) -> None:
    code = "from pathlib import Path; from turnout.store.database import Database; import sys"
    code += "; opened = Database.open(Path(sys.argv[1])); print('open', flush=True); input()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(TurnoutError) as caught:
            Database.open(tmp_path)
        other.communicate(b"\n")
    assert caught.value.message == f"another turnout (process {other.pid}) uses data_dir {tmp_path}"
    assert caught.value.hint == "stop it, or give this one another data_dir"
    Database.open(tmp_path).close()


def test_port_in_use_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        chosen = settings(tmp_path, "127.0.0.1", port=port)
        with pytest.raises(TurnoutError) as caught:
            service.run(chosen)
    assert caught.value.message == f"server: cannot listen on 127.0.0.1:{port}: the port is in use"
    assert caught.value.hint.startswith("end the program that uses it, or give another server.port")
    Database.open(chosen.data_dir).close()


def test_store_that_cannot_be_closed_in_time_does_not_change_how_the_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    close = Database.close

    def close_too_late(database: Database) -> None:
        close(database)
        raise TurnoutError("store_unavailable", "the connection is busy", "")

    monkeypatch.setattr(Database, "close", close_too_late)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(TurnoutError, match="the port is in use"),
        caplog.at_level(logging.WARNING, "turnout"),
    ):
        service.run(settings(tmp_path, "127.0.0.1", port=taken.getsockname()[1]))
    assert [line for line in said_here(caplog) if "the connection is busy" in line]


def test_process_has_no_pandas_while_it_runs() -> None:
    program = """
import importlib.util, sys
import duckdb, pyarrow
from turnout import service
with service.without_pandas():
    assert duckdb.sql("SELECT ?", params=[1]).to_arrow_table().num_rows == 1
    assert len(pyarrow.array([1])) == 1
assert "pandas" not in sys.modules
assert importlib.util.find_spec("pandas") is not None
"""
    subprocess.run([sys.executable, "-c", program], check=True)


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


def told(health: Health) -> tuple[str, str] | None:
    trouble = health.trouble()
    return (trouble.code, trouble.reason) if trouble else None


def test_health_has_a_code_and_a_hint_for_every_subject() -> None:
    codes = set()
    for subject in Subject:
        health = Health(lambda level, text: None, "starting")
        health.good(Subject.START)
        health.bad(subject, "why")
        trouble = health.trouble()
        assert trouble is not None
        assert (trouble.ready, trouble.reason) == (False, "why")
        assert trouble.hint
        codes.add(trouble.code)
    page = Path(__file__).parent.parent / "docs" / "how-to" / "monitoring.md"
    assert set(re.findall(r"^\| `(\w+)` \|", page.read_text(), re.M)) == codes | {"building"}


def test_health_tells_each_reason_once_and_its_end() -> None:
    lines: list[tuple[str, str]] = []
    health = Health(lambda level, text: lines.append((level, text)), "starting")
    assert told(health) == ("starting", "starting")
    health.good(Subject.START, "")
    assert told(health) is None
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
    assert told(health) == ("store_unavailable", "no room")
    health.good(Subject.STORE)
    assert told(health) == ("kafka_unreachable", "no broker")
