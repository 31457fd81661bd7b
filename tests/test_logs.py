"""The log of the process: one JSON object a line, what it is about, and no secrets in either form."""

from __future__ import annotations

import json
import logging
import sys
from functools import partial
from typing import Any

import pytest

from turnout.config.secrets import masked
from turnout.logs import JsonLines, Mask, TextLines, about

SECRET = 'hun"ter\\2'


def mask(*secrets: str) -> Mask:
    return partial(masked, values=secrets)


def record(text: str, *arguments: object, failure: bool = False) -> logging.LogRecord:
    trace = sys.exc_info() if failure else None
    return logging.LogRecord("turnout", logging.WARNING, __file__, 1, text, arguments, trace)


def line(*given: Any, **options: Any) -> dict[str, Any]:
    text = JsonLines(mask(SECRET)).format(record(*given, **options))
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_json_line_has_time_level_text_and_logger() -> None:
    found = line("a %s\nwith two lines", "text")
    assert found.pop("ts").endswith("Z")
    assert found == {"level": "WARNING", "msg": "a text\nwith two lines", "logger": "turnout"}


def test_json_line_tells_what_it_is_about() -> None:
    with about(request_id="r1"), about(generation=7):
        assert line("x").items() >= {"generation": 7, "requestId": "r1"}.items()
        with about(only=True, generation=3):
            assert "requestId" not in line("x")
            assert line("x")["generation"] == 3
        assert line("x")["generation"] == 7
    assert "generation" not in line("x")


def test_json_line_has_the_stack_of_an_error() -> None:
    try:
        raise ValueError(f"it said {SECRET}")
    except ValueError:
        found = line("unexpected error", failure=True)
    assert "Traceback" in found["error"]
    assert found["error"].endswith("ValueError: it said ********")


def test_text_of_others_stays_on_its_line_and_moves_no_terminal() -> None:
    text = TextLines(mask()).format(
        record("raw: %s", "{}\n2026-01-01 ERROR forged\x1b[2J\r\x9b\u2028\u202e end \N{SNOWMAN}")
    )
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert r"{}\n2026-01-01 ERROR forged\x1b[2J\r\x9b\u2028\u202e end " in text
    assert text.endswith("\N{SNOWMAN}")


def test_text_line_still_has_the_stack_of_an_error_on_lines_of_its_own() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        lines = TextLines(mask()).format(record("unexpected error", failure=True)).splitlines()
    assert lines[0].endswith("unexpected error")
    assert lines[1].startswith("Traceback")


@pytest.mark.parametrize("form", [JsonLines, TextLines])
def test_secrets_are_masked_whoever_logs_them(form: type[JsonLines | TextLines]) -> None:
    text = form(mask(SECRET, "hun")).format(record("the broker refused %s", {"password": SECRET}["password"]))
    assert "the broker refused ********" in text
    assert "hun" not in text
