"""Errors: the texts for people and the JSON shape for programs."""

import pytest

from turnout.errors import ConfigError, TurnoutError


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
