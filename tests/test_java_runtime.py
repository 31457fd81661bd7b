"""Java is found where JAVA_HOME or the PATH says, and a missing or old one is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import TurnoutError
from turnout.java.runtime import find_java


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


def test_find_java_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(TurnoutError, match="apt-get install openjdk-17-jre-headless"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(TurnoutError, match=r"JAVA_HOME is .*nowhere, which has no bin/java"):
        find_java()
