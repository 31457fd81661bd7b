"""The reference pages are what the code says; `make reference` writes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import reference
from reference import settings
from turnout.config import Settings, default_text
from turnout.config.settings import SinkSettings, ViewSettings
from turnout.decode.decoder import KEPT_BYTES
from turnout.errors import ERRORS, PROGRAM_ERRORS
from turnout.kafka.unpacking import MOST_MEGABYTES
from turnout.plan.where import MAX_SMALL_FILTER
from turnout.swap.health import Subject


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


NO_SETTINGS = {"store.duckdb", "spark.log"}
"""Files whose names look like settings."""
TOPICS = sorted((Path(__file__).parents[2] / "docs" / "topics").glob("*.md"))


@pytest.mark.parametrize("page", TOPICS, ids=lambda page: page.stem)
def test_settings_that_a_topic_names_are_there(page: Path) -> None:
    known = set(re.findall(r"^\| \[?`([\w.]+)`", settings.tables(), re.MULTILINE))
    sections = "|".join({path.partition(".")[0] for path in known if "." in path} - {"alerts"})
    named = re.findall(rf"`((?:{sections})\.\w[\w.]*\w)(?:: [^`]*)?`", page.read_text(encoding="utf-8"))
    assert [name for name in named if name not in known | NO_SETTINGS] == []


def test_guarantees_name_codes_and_limits_of_the_code() -> None:
    [page] = [page.read_text(encoding="utf-8") for page in TOPICS if page.stem == "guarantees"]
    codes = set(re.findall(r"503 `(\w+)`", page))
    assert codes == {subject.value[0] for subject in Subject}
    limits = [
        f"`views.NAME.max_rows_per_key` ({ViewSettings.model_fields['max_rows_per_key'].default:,})",
        f"`sinks.NAME.max_waiting_rows` ({SinkSettings.model_fields['max_waiting_rows'].default:,})",
        f"at most the first {KEPT_BYTES:,} bytes",
        f"librdkafka unpacks at most {MOST_MEGABYTES} MB of zstd",
        f"filters with more than {MAX_SMALL_FILTER} terms",
        f"A client may have {Settings().server.max_held_megabytes_per_client} MB",
    ]
    assert [limit for limit in limits if limit not in page] == []
