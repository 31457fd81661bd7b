"""What goes wrong with Turnout's own process: a full disk, a killed JVM, signals, a second process on its folder."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from in_process_turnout import ServedTurnout
from lengths import LONG
from small_disk import fill, small_disk
from turnout.local.broker import EmbeddedBroker
from turnout.swap.builder import Builder, Check
from turnout.testing import Record, create_topic, patience, produce, wait_until
from turnout_process import ASKED_SECONDS, RunningTurnout
from two_topics import (
    USERS,
    TopicName,
    account,
    assert_ends_soon,
    assert_tables_are_exact,
    load,
    running,
    sections,
    user,
    wait_reason,
    wait_said,
    wait_total,
    watched,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from turnout.swap.generations import Generation


@pytest.mark.namespaces("mount")
def test_full_disk_and_killed_spark_are_told_and_left_and_the_process_ends_soon_and_takes_new_columns_up(
    tmp_path: Path,
    broker: EmbeddedBroker,
    spark: SparkSession,
    topic_name: TopicName,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One Turnout for all stories: nothing is lost and nothing doubled by any of them."""
    address = broker.bootstrap_servers
    topics = (topic_name("users"), topic_name("accounts"))
    for topic in topics:
        create_topic(address, topic, partitions=2)
    produce(address, topics[0], [user(n) for n in range(100)])
    place = tmp_path / "a small disk ü"
    data = str(place / "data")
    document = sections(*topics, swap={"linger_seconds": 600}, data_dir=data)
    with small_disk(place, 64) as disk, running(tmp_path, address, **document) as turnout:
        wait_total(turnout, "final_ui", 100)
        with watched(turnout, allowed=(200, 503)):
            fill_the_disk(turnout, disk, address, topics)
        assert_tables_are_exact(turnout, address, topics)
        if LONG:  # the short form starts it again below
            assert_ends_soon(turnout, signal.SIGTERM)
            turnout.start()
            assert_tables_are_exact(turnout, address, topics)
        logged = turnout.log_file.stat().st_size
        with load(address, topics, per_second=200), watched(turnout):
            kill_spark_in_a_build(turnout)
        assert_tables_are_exact(turnout, address, topics)
        wait_said(turnout, "Spark runs again, and generation 2 reads")
        assert b"unexpected error" not in turnout.log_file.read_bytes()[logged:]
        shown = turnout.total("final_ui")
        with load(address, topics, per_second=400):
            wait_until(lambda: turnout.total("final_ui") > shown, interval=ASKED_SECONDS, what="rows")
            assert_second_process_is_refused(turnout)
            assert_ends_soon(turnout, signal.SIGINT)
        end_while_spark_starts(turnout, shown)
        # No process is needed to go on with what one has left; those of other files are ended by SIGTERM, too.
        last = turnout if LONG else ServedTurnout(turnout.folder, spark, address, **document)
        with closing(last):
            take_a_column_up(last, monkeypatch)
            assert last.status()["usersTopic"] == topics[0]
            assert_tables_are_exact(last, address, topics, USERS | {"city": "string"})
            if LONG:
                assert_ends_soon(last, signal.SIGTERM)


def fill_the_disk(turnout: RunningTurnout, disk: Path, address: str, topics: tuple[str, str]) -> None:
    """Records come while there is no room for them; then there is room again."""
    fill(disk / "filler")
    produce(address, topics[0], [Record({**user(n), "email": "e" * 500}) for n in range(100, 2000)])
    produce(address, topics[1], [account(n) for n in range(100)])
    wait_reason(turnout, "No space left on device", "room")
    assert turnout.answer("/healthz") == 200
    fill(disk / "filler")
    deadline = time.monotonic() + (8 if LONG else 4)  # several tries on the full disk
    wait_until(lambda: time.monotonic() > deadline)
    (disk / "filler").unlink()
    freed = time.monotonic()
    turnout.wait_ready()
    print(f"ready {time.monotonic() - freed:.1f} s after there was room")


def kill_spark_in_a_build(turnout: RunningTurnout) -> None:
    """A generation lingers, a candidate waits, and another is being built, when Spark's JVM is killed."""
    assert turnout.http.post("/api/control", json={"joinType": "inner"}).json()["outcome"] == "applied"
    # It has read nothing itself: all its rows are taken over.
    assert "\nturnout_newest_record_age_seconds " in turnout.http.get("/metrics").text
    reviewed = turnout.http.post("/api/control", json={"joinType": "left", "publish": False}).json()
    assert (reviewed["outcome"], reviewed["generation"]) == ("candidate", 3)
    candidate, java = turnout.status()["candidate"], turnout.java()
    turnout.http.post("/api/control?wait=false", json={"joinType": "full", "requestId": "third"})
    wait_until(lambda: turnout.status()["progress"], interval=0.01, what="a build")
    java.kill()
    killed = time.monotonic()
    wait_reason(turnout, f"Spark's JVM (process {java.pid}) was killed by SIGKILL")
    assert turnout.http.get("/readyz").json()["error"]["code"] == "spark_gone"
    assert turnout.answer("/healthz") == 200
    shown = {number: turnout.total(f"users_ui@{number}") for number in (1, 3)}
    turnout.http.post("/api/publish?wait=false", json={"expectedGeneration": 2, "requestId": "wrong"})
    turnout.wait_ready()
    print(f"ready {time.monotonic() - killed:.1f} s after the kill")
    [third] = [row for row in turnout.rows("control_raw") if row["requestId"] == "third"]
    assert third["outcome"] == "failed"
    assert "was killed by SIGKILL" in third["detail"]
    wait_until(
        lambda: all(turnout.total(f"users_ui@{number}") > before for number, before in shown.items()),
        interval=ASKED_SECONDS,
        what="the candidate and what lingers to read again",
    )
    status = turnout.status()
    assert (status["generation"], status["candidate"]) == (2, candidate), "a publish of another was refused"
    for path, outcome, generation in (
        ("publish", "applied", 3),
        ("rollback", "rolled_back", 2),
        ("rollback", "rolled_back", 3),
    ):
        answer = turnout.http.post(f"/api/{path}").json()
        assert (answer["outcome"], answer["generation"]) == (outcome, generation)


def end_while_spark_starts(turnout: RunningTurnout, shown: int) -> None:
    """It has come back with what it showed, also after a disk that was full."""
    turnout.start(ready=False)
    wait_until(
        lambda: (turnout.answer("/healthz"), turnout.answer("/readyz")) == (200, 503),
        what="answers while Spark starts",
    )
    assert turnout.total("final_ui") >= shown
    assert_ends_soon(turnout, signal.SIGTERM)


def take_a_column_up(turnout: RunningTurnout, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = turnout.config.read_text().replace("age: int64", "age: int64\n      city: string")
    turnout.config.write_text(changed)
    looked, catch_up = threading.Event(), Builder.catch_up

    def held(self: Builder, generation: Generation, check: Check, *, first: bool) -> None:
        assert looked.wait(patience())
        catch_up(self, generation, check, first=first)

    # A process has its Spark to start before that.
    monkeypatch.setattr(Builder, "catch_up", held)
    turnout.start(ready=False)
    turnout.wait_answer()
    assert "city" not in turnout.rows("users_ui", limit=1)[0]
    looked.set()
    turnout.wait_ready()
    assert "city" in turnout.rows("users_ui", limit=1)[0]


def assert_second_process_is_refused(first: RunningTurnout) -> None:
    command = [sys.executable, "-m", "turnout", "run", "-c", str(first.config), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert f"error: another turnout (process {first.pid}) uses data_dir {first.data_dir}" in second.stderr
    assert first.answer("/readyz") == 200
