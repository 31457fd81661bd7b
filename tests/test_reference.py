"""The reference pages are what the code says; `make reference` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reference
from reference import settings
from turnout.config import default_text
from turnout.errors import ERRORS, PROGRAM_ERRORS


@pytest.mark.parametrize("page", reference.pages(), ids=lambda page: page.stem)
def test_page_is_what_the_code_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == reference.generated(text), "run `make reference`"


def test_everything_that_is_generated_is_on_a_page() -> None:
    """Where two calls take the same, it is told once."""
    pages = "".join(page.read_text(encoding="utf-8") for page in reference.pages())
    assert [name for name, text in reference.regions().items() if text().strip() not in pages] == []


def test_file_of_init_has_every_setting_of_the_reference() -> None:
    names = {path.split(".")[-1] for path in re.findall(r"^\| \[?`([\w.]+)`", settings.tables(), re.MULTILINE)}
    assert len(names) > 80
    assert [name for name in sorted(names) if f"{name}:" not in default_text()] == []


def test_every_error_code_is_an_anchor_of_the_page_of_errors() -> None:
    """The web page links the code of an error there."""
    page = next(page for page in reference.pages() if page.stem == "errors")
    anchors = re.findall(r'<a id="(\w+)"></a>', page.read_text(encoding="utf-8"))
    assert sorted(anchors) == sorted([*ERRORS, *PROGRAM_ERRORS])
