"""Errors: the texts for people and the JSON shape for programs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import turnout
import turnout_client
from turnout.errors import ERRORS, PROGRAM_ERRORS, ConfigError, TurnoutError
from turnout.swap.health import Subject

# Functions of ours that make an error of a code, each in its own module.
MAKERS = {"TurnoutError", "_error", "_unavailable"}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TurnoutError(code="x", message="no topic 'a'"), "no topic 'a'"),
        (TurnoutError(code="x", message="no topic 'a'", hint="create it"), "no topic 'a'; create it"),
        (ConfigError(["a: is missing; add it"]), "a: is missing; add it"),
        (ConfigError(["a: wrong; fix it", "b: wrong; fix it"]), "a: wrong; fix it\nb: wrong; fix it"),
    ],
)
def test_error_text_is_pinned(error: TurnoutError, text: str) -> None:
    assert str(error) == text


def test_error_json_has_one_shape() -> None:
    error = TurnoutError(code="unknown_table", message="no table 'x'", hint="see /api/tables", status=404)
    assert error.as_json() == {"error": {"code": "unknown_table", "message": "no table 'x'", "hint": "see /api/tables"}}
    assert error.status == 404


def test_config_error_keeps_its_faults_apart() -> None:
    error = ConfigError(iter(["a: x; y", "b: x; y"]))
    assert error.faults == ("a: x; y", "b: x; y")
    assert (error.code, error.status) == ("bad_config", 400)


def test_every_code_that_is_raised_is_described_and_no_other() -> None:
    """The page of errors is made of the descriptions."""
    packages = (Path(file).parent for file in (turnout.__file__, turnout_client.__file__))
    raised = {code for package in packages for path in package.rglob("*.py") for code in codes_in(path)}
    raised |= {subject.value[0] for subject in Subject}
    assert raised - set(ERRORS) - set(PROGRAM_ERRORS) == set()
    assert set(PROGRAM_ERRORS) - raised == set()


def codes_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            named = [word.value for word in node.keywords if word.arg == "code"]
            if isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                named += node.args[:1]
            yield from (one.value for one in named if isinstance(one, ast.Constant) and isinstance(one.value, str))


def test_statuses_are_given_by_the_table_alone() -> None:
    """A call that gives the status that the table has would keep it when the table changes."""
    again = []
    for path in Path(turnout.__path__[0]).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "TurnoutError"):
                continue
            given = {keyword.arg: keyword.value for keyword in call.keywords}
            code = call.args[0] if call.args else given.get("code")
            status = given.get("status")
            if isinstance(code, ast.Constant) and isinstance(status, ast.Constant) and code.value in ERRORS:
                again += [(path.name, call.lineno)] if ERRORS[str(code.value)].status == status.value else []
    assert again == []
