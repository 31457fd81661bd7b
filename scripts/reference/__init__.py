"""The reference pages, generated from the code that defines what they tell.

A page has regions between `<!-- generated: NAME -->` and `<!-- end of NAME -->`; the rest of it is written by hand.
`make reference` writes the regions, also over the marks of a merge conflict; a test fails while a region is not what
the code says.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from reference import cli, errors, http, metrics, settings
from turnout.serve.kafka_api import Example
from turnout.serve.schemas import Report, Status

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
REGION = re.compile(r"<!-- generated: (?P<name>[^\n]+) -->\n.*?<!-- end of (?P=name) -->", re.DOTALL)


@functools.cache
def regions() -> Mapping[str, Callable[[], str]]:
    """What makes the text of each region; every call that takes something has one for that."""
    return {
        "settings": settings.tables,
        "template": settings.template,
        "column types": settings.column_types,
        "joins": settings.joins,
        "shared options": cli.shared,
        "commands": cli.commands,
        "calls": http.calls,
        **http.taken(),
        "answer of GET /api/status": lambda: http.answer(Status),
        "answer of GET /api/topics/{topic}/example": lambda: http.answer(Example),
        "report of a dry run": lambda: http.answer(Report),
        "errors of each call": http.errors,
        "errors of calls": errors.of_calls,
        "errors of programs": errors.of_programs,
        "metrics": metrics.definitions,
    }


def pages() -> list[Path]:
    return sorted(page for page in FOLDER.glob("*.md") if REGION.search(page.read_text(encoding="utf-8")))


def generated(text: str) -> str:
    """A page as the code says."""

    def region(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in regions():
            raise SystemExit(f"error: no region {name!r} (known: {', '.join(regions())})")
        return f"<!-- generated: {name} -->\n\n{regions()[name]().strip()}\n\n<!-- end of {name} -->"

    return REGION.sub(region, text)


def write() -> None:
    """Write what is not as the code says."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if (after := generated(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
