"""Spark's home: links for all environments with the same PySpark, PySpark's own where there can be none. And the
command that starts Spark's JVM: by Turnout itself, or by the launcher of a Spark that is named."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyspark
import pytest

from turnout.java.jars import CACHE_VARIABLE, UNUSED_SECONDS
from turnout.java.runtime import find_java
from turnout.spark.jvm.launch import HOME_VARIABLE, find_home, java_command

MEMORY = {"spark.driver.memory": "1g"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(HOME_VARIABLE, raising=False)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, jar: str = "spark") -> Path:
    """A PySpark in an environment of its own, whose only jar has this text, for the rest of the test."""
    texts = {"bin/spark-submit": "program", "jars/spark.jar": jar, "python/lib/pyspark.zip": "code"}
    for name, text in texts.items():
        file = folder / "pyspark" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    monkeypatch.setattr(pyspark, "__file__", str(folder / "pyspark" / "__init__.py"))
    return folder / "pyspark"


def test_home_has_the_jars_but_no_zip_of_python_code(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install(tmp_path / "one", monkeypatch)
    home = find_home()
    assert home.parent == cache
    assert sorted(file.relative_to(home).as_posix() for file in home.rglob("*") if file.is_file()) == [
        "jars/spark.jar",
    ]
    assert (home / "jars" / "spark.jar").samefile(installed / "jars" / "spark.jar")


def test_environments_with_the_same_jars_share_a_home_and_others_do_not(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "one", monkeypatch)
    home = find_home()
    install(tmp_path / "two", monkeypatch)
    assert find_home() == home
    install(tmp_path / "three", monkeypatch, jar="another spark")
    assert find_home() not in (home, tmp_path / "three" / "pyspark")
    assert len(list(cache.iterdir())) == 2


def test_home_stays_when_its_environment_is_removed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = install(tmp_path / "one", monkeypatch)
    home = find_home()
    (installed / "jars" / "spark.jar").unlink()
    assert (home / "jars" / "spark.jar").read_text() == "spark"


def test_home_that_can_only_be_read_is_taken(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("another user's")

    install(tmp_path / "one", monkeypatch)
    home = find_home()
    monkeypatch.setattr(os, "utime", refuse)
    assert find_home() == home


def test_home_that_the_environment_names_is_taken(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, "/opt/spark")
    assert find_home() == Path("/opt/spark")
    assert list(cache.iterdir()) == []


def test_where_no_links_can_be_made_the_home_is_that_of_pyspark(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("another file system")

    installed = install(tmp_path / "one", monkeypatch)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    assert find_home() == installed
    assert list(cache.iterdir()) == []


def test_home_that_another_process_makes_at_the_same_time_is_taken(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "one", monkeypatch)
    rename = Path.rename

    def be_second(part: Path, home: Path) -> Path:
        (home / "jars").mkdir(parents=True)
        return rename(part, home)

    monkeypatch.setattr(Path, "rename", be_second)
    assert [find_home()] == list(cache.iterdir())


def test_homes_that_nobody_used_for_a_month_are_removed(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "one", monkeypatch)
    old = find_home()
    install(tmp_path / "two", monkeypatch, jar="another spark")
    used = find_home()
    os.utime(old, times=(0, time.time() - UNUSED_SECONDS - 60))
    install(tmp_path / "three", monkeypatch, jar="a third one")
    assert {find_home(), used} == set(cache.iterdir())


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
