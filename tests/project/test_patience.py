"""Limits grow with TEST_PATIENCE and with the machine's slowness, and no test has a limit of its own."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import machine_speed as patience_module
from turnout.testing import HANG_SECONDS, patience, wait_until

TESTS = Path(__file__).parents[1]
OWN_FILES = sorted(file for file in TESTS.rglob("*.py") if "node_modules" not in file.parts)


def test_patience_is_multiplied_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_PATIENCE", "2.5")
    assert (patience(4), patience()) == (10, 2.5 * HANG_SECONDS)
    monkeypatch.setenv("TEST_PATIENCE", "20")
    assert patience() == 3600, "Kafka's client takes no longer limit"
    monkeypatch.delenv("TEST_PATIENCE")
    assert patience(4) == 4


@pytest.mark.parametrize(("seconds", "factor"), [(0.0, 1.0), (0.35, 1.0), (1.05, 3.0), (1000.0, 20.0)])
def test_patience_grows_with_the_slowness_of_the_machine_measured_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float, factor: float
) -> None:
    monkeypatch.setattr(patience_module, "_seconds", lambda: seconds)
    monkeypatch.setenv("TEST_PATIENCE", "2")
    monkeypatch.delenv("TEST_PATIENCE_MEASURED")
    assert patience_module.measure() == pytest.approx(factor)
    assert patience(1) == pytest.approx(2 * factor)
    monkeypatch.setattr(patience_module, "_seconds", lambda: pytest.fail("measured again"))
    assert patience_module.measure() == pytest.approx(factor)
    assert patience(1) == pytest.approx(2 * factor)


def test_wait_until_says_at_its_end_what_it_waited_for() -> None:
    looks = itertools.count()
    with pytest.raises(TimeoutError, match=r"^2 looks: not within 0 s$"):
        wait_until(lambda: next(looks) > 1, timeout=0, what=lambda: f"{next(looks)} looks")


def test_wait_until_says_what_it_saw_last() -> None:
    def rows(count: int) -> list[str]:
        return [f"row {number}" for number in range(count)]

    with pytest.raises(TimeoutError, match=r"^three rows: not within 0 s; .*rows gave \['row 0', 'row 1'\]$"):
        wait_until(lambda: len(rows(2)) == 3, timeout=0, what="three rows")


def test_wait_until_ends_where_its_pause_does() -> None:
    def pause(_: float) -> None:
        raise TimeoutError("nothing happens")

    with pytest.raises(TimeoutError, match=r"^a wonder: nothing happens$"):
        wait_until(lambda: False, what="a wonder", pause=pause)


@pytest.mark.parametrize("file", OWN_FILES, ids=lambda file: file.relative_to(TESTS).as_posix())
def test_limit_is_not_a_number_of_its_own(file: Path) -> None:
    if file == Path(__file__):
        return
    found = [f"{file.name}:{line}: {what}" for line, what in own_limits(ast.parse(file.read_text()))]
    assert not found, "limits only end hangs: leave out the timeout of wait_until, and give patience() to others"


def own_limits(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if name == "wait_until" and ("timeout" in given or len(call.args) > 1):
            yield call.lineno, "wait_until with a timeout"
        elif name == "pytest.mark.timeout":
            yield call.lineno, "a timeout of one test"
        elif name.rpartition(".")[2] in ("wait", "join", "result") and len(call.args) == 1 and _is_long(call.args[0]):
            yield call.lineno, f"{name} with a number"
        elif _is_long(given.get("timeout")) and not _is_short_look(name):
            yield call.lineno, f"{name} with a timeout"


def _is_short_look(name: str) -> bool:
    """Playwright's, in milliseconds, inside of a wait."""
    return name.endswith((".dblclick", ".to_be_visible"))


def _is_long(value: ast.expr | None) -> bool:
    """Whether it is a number of seconds that somebody thought to be enough."""
    return isinstance(value, ast.Constant) and isinstance(value.value, int | float) and value.value >= 1
