"""Archives of classes: found by what they fit, used where they are there, and no part of one is ever left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from turnout.errors import TurnoutError
from turnout.java import class_archive
from turnout.java.class_archive import ClassArchive
from turnout.java.jars import CACHE_VARIABLE
from turnout.spark import training_run
from turnout.spark.jvm.launch import HOME_VARIABLE, find_home
from turnout.spark.jvm.session import spark_archive

JARS = [Path("/jars/a.jar"), Path("/jars/b.jar")]


def archive_of(jars: list[Path]) -> ClassArchive:
    return spark_archive(find_home(), jars)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "spark"))
    cache = tmp_path / "cache with blank"
    cache.mkdir()
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    return cache


def test_archive_fits_only_the_jars_that_it_was_made_with() -> None:
    file = archive_of(JARS).file
    assert archive_of(JARS).file == file
    assert archive_of(JARS[:1]).file != file


@pytest.mark.parametrize(
    ("version", "used", "written"),
    [(17, "SharedArchiveFile", "ArchiveClassesAtExit"), (25, "AOTCache", "AOTCacheOutput")],
)
def test_archive_is_used_where_it_is_there(
    monkeypatch: pytest.MonkeyPatch, version: int, used: str, written: str
) -> None:
    monkeypatch.setattr(class_archive, "java_version", lambda _: version)
    archive = ClassArchive("a program", "classes", JARS)
    assert archive.options() == []

    def train(option: str) -> None:
        name, _, part = option.partition("=")
        assert name == f"-XX:{written}"
        Path(part).write_bytes(b"archive")
        assert archive.options() == []

    assert archive.make(train)
    assert archive.options() == [f"-XX:{used}={archive.file}"]


def test_archive_of_a_spark_that_was_installed_again_is_another(tmp_path: Path) -> None:
    jar = tmp_path / "spark" / "jars" / "spark.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    before = archive_of(JARS).file
    os.utime(jar, (1, 1))
    assert archive_of(JARS).file != before


def test_archive_that_is_there_is_not_made_again() -> None:
    archive = archive_of(JARS)
    archive.file.write_bytes(b"archive")
    assert not archive.make(lambda _: pytest.fail("it was made again"))


@pytest.mark.parametrize(
    ("code", "written", "why"), [(1, True, "no memory"), (1, False, "no memory"), (0, False, "nothing was written")]
)
def test_archive_that_fails_is_told_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, code: int, written: bool, why: str
) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if written:
            Path(command[-1].partition("=")[2]).write_bytes(b"a part")
        done = subprocess.CompletedProcess(command, code, "", "a trace\nno memory\n")
        done.check_returncode()
        return done

    archive = archive_of(JARS)  # asks Java for its version
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(TurnoutError, match=why):
        archive.make(training_run.train)
    assert list(cache.iterdir()) == []
