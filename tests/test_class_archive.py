"""The archive of Spark's classes: found by what it fits, used where it is there, and no part of one is ever left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from turnout.errors import TurnoutError
from turnout.java.jars import CACHE_VARIABLE
from turnout.spark import class_archive
from turnout.spark.home import HOME_VARIABLE

JARS = [Path("/jars/a.jar"), Path("/jars/b.jar")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "spark"))
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    return cache


def test_archive_fits_only_the_jars_that_it_was_made_with() -> None:
    file = class_archive.archive_file(JARS)
    assert class_archive.archive_file(JARS) == file
    assert class_archive.archive_file(JARS[:1]) != file


def test_archive_is_used_where_it_is_there(tmp_path: Path) -> None:
    file = tmp_path / "with blank.jsa"
    assert class_archive.use(file) == ""
    file.touch()
    assert class_archive.use(file) == f'"-XX:SharedArchiveFile={file}"'


def test_archive_of_a_spark_that_was_installed_again_is_another(tmp_path: Path) -> None:
    jar = tmp_path / "spark" / "jars" / "spark.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    before = class_archive.archive_file(JARS)
    os.utime(jar, (1, 1))
    assert class_archive.archive_file(JARS) != before


def test_archive_that_is_there_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    file = class_archive.archive_file(JARS)
    file.write_bytes(b"archive")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was made again"))
    assert class_archive.make(JARS) == file


@pytest.mark.parametrize("written", [True, False])
def test_archive_that_fails_is_told_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if written:
            Path(command[-1]).write_bytes(b"a part")
        return subprocess.CompletedProcess(command, 1, "", "a trace\nno memory\n")

    class_archive.archive_file(JARS)  # asks Java for its version, once for all
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(TurnoutError, match="no memory"):
        class_archive.make(JARS)
    assert list(cache.iterdir()) == []
