"""Spark's JVM as a process: ended by its id, given up while it starts, found out when gone. Any process will do."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from turnout.config import SparkSettings
from turnout.errors import TurnoutError
from turnout.spark.jvm import engine as engines
from turnout.spark.jvm.engine import Engine, is_gone, pause_seconds
from turnout.spark.jvm.session import Java, end_java
from turnout.testing import patience, wait_until
from turnout_process import lives


class Processes:
    """Stands where `start_session` does: processes that sleep, and sessions that know nothing."""

    def __init__(self) -> None:
        self.begun: list[Java] = []
        self.stopped = False
        self.hangs = False

    def begin(self, command: str = "sleep 600") -> Java:
        java = subprocess.Popen(["bash", "-c", command], stdin=subprocess.PIPE, process_group=0)
        self.begun.append(java)
        return java

    def start(self, settings: SparkSettings, work: Path, on_java: Callable[[Java], None]) -> Any:
        java = self.begin()
        on_java(java)
        if self.hangs:
            java.wait(patience())
            raise TurnoutError(code="spark_not_started", message="it ended")
        context = SimpleNamespace(isStopped=lambda: self.stopped)
        return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    made = Processes()
    monkeypatch.setattr(engines, "start_session", made.start)
    monkeypatch.setattr(engines, "forget_session", lambda session: None)
    monkeypatch.setattr(engines, "stop_session", lambda session, timeout_seconds: None)
    yield made
    for java in made.begun:
        end_java(java, 0.1)


@pytest.fixture
def engine(processes: Processes, tmp_path: Path) -> Engine:
    return Engine(SparkSettings(), tmp_path)


def test_process_that_does_not_end_when_asked_is_killed_with_its_children(processes: Processes) -> None:
    java = processes.begin("trap '' TERM; sleep 60 & wait; sleep 60")
    wait_until(lambda: psutil.Process(java.pid).children(), what="a child")
    children = psutil.Process(java.pid).children()
    end_java(java, 0.2)
    assert java.returncode == -9
    wait_until(lambda: not any(map(lives, children)), what="the end of its children")


def test_engine_keeps_its_session_until_its_process_is_gone(processes: Processes, engine: Engine) -> None:
    session = engine.session()
    assert engine.session() is session
    assert engine.fault() is None
    processes.begun[0].kill()
    fault = engine.fault(60)
    assert fault is not None
    assert (fault.code, fault.status) == ("spark_gone", 503)
    assert f"(process {processes.begun[0].pid}) was killed by SIGKILL; it is started again" in fault.message
    assert engine.drop() == 0
    assert engine.fault() is None
    assert engine.session() is not session
    assert engine.starts == 2


def test_engine_finds_out_that_spark_stopped_by_itself(processes: Processes, engine: Engine) -> None:
    engine.session()
    processes.stopped = True
    fault = engine.fault()
    assert fault is not None
    assert "Spark stopped by itself" in fault.message
    engine.drop()
    assert processes.begun[0].returncode is not None, "what is left of it is ended"


def test_engine_is_blamed_only_for_what_it_caused(processes: Processes, engine: Engine) -> None:
    engine.session()
    with pytest.raises(ConnectionRefusedError), engine.converting_errors():
        processes.stopped = False
        raise ConnectionRefusedError
    processes.begun[0].kill()
    with pytest.raises(TurnoutError) as caught, engine.converting_errors():
        raise ConnectionRefusedError
    assert is_gone(caught.value)


def test_engine_that_ends_again_and_again_waits_longer_each_time(processes: Processes, engine: Engine) -> None:
    pauses = []
    for _ in range(4):
        engine.session()
        processes.begun[-1].kill()
        pauses.append(engine.drop())
    assert pauses == [0, 1, 2, 4]
    assert pause_seconds(100) == engines.LONGEST_PAUSE_SECONDS


def test_engine_gives_up_a_start_that_is_under_way(processes: Processes, engine: Engine) -> None:
    processes.hangs = True
    failures: list[TurnoutError] = []

    def start() -> None:
        try:
            engine.session()
        except TurnoutError as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    wait_until(lambda: processes.begun, what="a process")
    engine.stop(1)
    thread.join(patience())
    assert [error.code for error in failures] == ["spark_not_started"]
    assert processes.begun[0].returncode is not None


def test_engine_that_was_stopped_ends_what_still_begins(processes: Processes, engine: Engine) -> None:
    engine.cancel()
    processes.hangs = True
    with pytest.raises(TurnoutError):
        engine.session()
    assert processes.begun[0].returncode is not None


def test_cluster_that_gives_no_executor_is_told_and_asked_again(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "EXECUTORS_SECONDS", 0.0)
    none = [True]
    monkeypatch.setattr(engines, "no_executors", lambda session: none[0])
    engine = Engine(SparkSettings(master="spark://m:7077", conf={"spark.executor.memory": "4g"}), tmp_path)
    with pytest.raises(
        TurnoutError, match=r"spark://m:7077 has given no executor within 0 s; check .* spark\.executor\.memory \(4g\)"
    ):
        engine.session()
    none[0] = False
    assert engine.session() is not None
    assert engine.starts == 1
