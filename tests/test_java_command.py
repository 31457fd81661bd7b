"""The command that starts Spark's JVM: by Turnout itself, or by the launcher of a Spark that is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.java.runtime import find_java
from turnout.spark.java_command import java_command

MEMORY = {"spark.driver.memory": "1g"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


def test_command_asks_for_no_module_that_a_small_java_lacks() -> None:
    command = java_command(Path("/spark home"), MEMORY)
    assert command[:4] == [str(find_java()), "-cp", "/spark home/conf:/spark home/jars/*", "-Xmx1g"]
    assert command[-1] == "org.apache.spark.deploy.SparkSubmit"
    assert not [option for option in command if "add-modules" in option]


def test_command_has_what_the_settings_and_the_environment_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=1")
    added = {
        "spark.driver.extraClassPath": "/a.jar:/b.jar",
        "spark.driver.extraJavaOptions": "-Dx=y '-XX:ErrorFile=/with blank/f'",
        "spark.driver.extraLibraryPath": "/native",
    }
    command = java_command(Path("/spark"), MEMORY | added)
    assert command[2] == "/a.jar:/b.jar:/spark/conf:/spark/jars/*:/etc/hadoop"
    assert command[-4:-1] == ["-Da=1", "-Dx=y", "-XX:ErrorFile=/with blank/f"]
    assert "-Djava.library.path=/native" in command


def test_spark_with_a_launcher_of_its_own_is_started_by_it(tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "spark-submit"
    launcher.parent.mkdir()
    launcher.touch()
    assert java_command(tmp_path, MEMORY) == [str(launcher)]
