"""What Spark's JVM is started with: what everyone on the machine may see, and what not."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from turnout.config import SparkSettings
from turnout.errors import TurnoutError
from turnout.spark.jvm import session
from turnout.spark.jvm.session import (
    Java,
    clear_scratch,
    given_settings,
    not_started,
    start_session,
    visible_settings,
)


def test_java_options_of_the_configuration_add_to_ours() -> None:
    ours = {"spark.driver.extraJavaOptions": "-Xss4m", "spark.executor.extraJavaOptions": "-Xss4m", "a": "1"}
    given = given_settings(ours, {"spark.driver.extraJavaOptions": "-Dx=y", "a": "2", "b": "3"})
    assert given == {
        "spark.driver.extraJavaOptions": "-Xss4m -Dx=y",
        "spark.executor.extraJavaOptions": "-Xss4m",
        "a": "2",
        "b": "3",
    }


def test_jars_of_the_configuration_add_to_ours() -> None:
    ours = {"spark.driver.extraClassPath": "a.jar", "spark.jars": "a.jar"}
    given = given_settings(ours, {"spark.driver.extraClassPath": "b.jar", "spark.jars": "b.jar"})
    assert given == {"spark.driver.extraClassPath": f"a.jar{os.pathsep}b.jar", "spark.jars": "a.jar,b.jar"}


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.ssl.keyPassword",
        "spark.my.token",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.bucket.b.server-side-encryption.key",
        "spark.hadoop.fs.azure.sas.box.lake.blob",
    ],
)
def test_secret_properties_are_not_on_the_command_line(name: str) -> None:
    assert visible_settings({name: "hunter2", "spark.app.name": "turnout"}) == {"spark.app.name": "turnout"}


def test_redaction_of_the_configuration_adds_to_ours() -> None:
    given = given_settings({"spark.redaction.regex": "(?i)password"}, {"spark.redaction.regex": "(?i)vin"})
    assert visible_settings(given) == given
    for name in ("ssl.key.PASSWORD", "the.vin"):
        assert re.search(given["spark.redaction.regex"], name)


def test_scratch_of_a_killed_session_is_cleared_and_its_log_is_not(tmp_path: Path) -> None:
    for name in ("blockmgr-1", "spark-2", "bulk-3", "build", "tmp"):
        (tmp_path / name / "below").mkdir(parents=True)
    (tmp_path / "spark.log").touch()
    clear_scratch(tmp_path)
    assert [left.name for left in tmp_path.iterdir()] == ["spark.log"]


def test_start_that_failed_is_told_by_the_last_words_of_its_log_and_not_by_a_trace(tmp_path: Path) -> None:
    log, error = tmp_path / "java.log", RuntimeError("it ended")
    log.write_text("")
    assert not_started(log, error).message == "Spark did not start: it ended"
    cause = "java.net.UnknownHostException: box: Name or service not known"
    log.write_text(f"Exception in thread\nCaused by: {cause}\n\tat java.base/java.net.A.b(A.java:1)\n\t... 17 more\n\n")
    assert not_started(log, error).message == f"Spark did not start: {cause}"


def test_jvm_that_never_gives_its_address_is_ended_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "START_SECONDS", 0.5)
    monkeypatch.setattr(session, "java_command", lambda *_: ["/bin/sh", "-c", "exec sleep 600", "java"])
    began: list[Java] = []
    with pytest.raises(TurnoutError) as caught:
        start_session(SparkSettings(), tmp_path, began.append)
    assert caught.value.code == "spark_not_started"
    assert [java.returncode for java in began] == [-signal.SIGTERM]
