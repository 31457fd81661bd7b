"""`make test-many`: every test that ever failed is listed, with its output in a file."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

import run_many

FLAKY = """
from pathlib import Path

def test_good():
    pass

def test_flaky():
    runs = Path("{runs}")
    runs.write_text(runs.read_text() + "x")
    assert len(runs.read_text()) != 2, "the second time"
"""


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this suite take a second of each start."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(folder: Path, *options: str, command: tuple[str, ...] = ()) -> int:
    runs = folder / "runs"
    runs.write_text("")
    (folder / "test_sometimes.py").write_text(FLAKY.format(runs=runs))
    (folder / "pytest.ini").write_text("[pytest]\n")
    pytest_ = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder))
    return run_many.main([*options, "--folder", str(folder / "kept"), *(command or pytest_)])


def test_test_that_failed_once_is_listed_with_its_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--times", "3") == 1
    said = capsys.readouterr().out
    assert "run 1 of 3" in said and "2 passed" in said and "1 failed, 1 passed" in said
    assert "1 of 3  test_sometimes::test_flaky" in said and "test_good" not in said
    [kept] = (tmp_path / "kept").glob("*/run-2-*.txt")
    assert str(kept) in said
    assert "the second time" in kept.read_text()
    assert len(list((tmp_path / "kept").glob("*/run-*.log"))) == 3


def test_runs_without_a_failure_are_a_success_also_beside_a_load(tmp_path: Path) -> None:
    before = {child.pid for child in psutil.Process().children()}
    assert run(tmp_path, "--times", "1", "--load", "2") == 0
    assert {child.pid for child in psutil.Process().children()} <= before


def test_run_that_ends_without_a_report_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--times", "1", command=(sys.executable, "-c", "import sys; sys.exit('no disk')")) == 1
    said = capsys.readouterr().out
    assert "no disk" in said and "the run itself (exit code 1)" in said
