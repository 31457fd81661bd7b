"""How a run is divided: two workers have a session of Spark each, and two a browser, with all files that take it."""

from __future__ import annotations

import pytest

from layers import TESTS, share_of


@pytest.mark.parametrize(("layer", "asked"), [("live", "spark: SparkSession"), ("browser", "browser: Browser")])
def test_files_that_take_a_session_of_spark_or_a_browser_have_one_of_two(layer: str, asked: str) -> None:
    files = {path.name: path.read_text("utf-8") for path in (TESTS / layer).glob("test_*.py")}
    shares = {name: share_of(f"tests/{layer}/{name}") for name in files}
    assert len(set(shares.values()) - {None}) == 2
    assert {name for name, share in shares.items() if share} == {name for name, text in files.items() if asked in text}


def test_files_that_take_neither_are_for_any_worker() -> None:
    assert share_of("tests/live/test_broker.py") is None
    assert share_of("tests/test_layers.py") is None
