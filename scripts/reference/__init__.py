"""Generate the reference pages from the code.

A page has regions between `<!-- generated: NAME -->` and `<!-- end of NAME -->`; the rest of it is written by hand.
`make reference` replaces the regions, also if they contain marks of a merge conflict; a test fails if a region is out
of date.
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
    """Return the function that generates each region; every call with parameters or a body has its own region."""
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
    """Return the text of a page with all regions regenerated."""

    def region(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in regions():
            raise SystemExit(f"error: no region {name!r} (known: {', '.join(regions())})")
        return f"<!-- generated: {name} -->\n\n{regions()[name]().strip()}\n\n<!-- end of {name} -->"

    return REGION.sub(region, text)


def write() -> None:
    """Write the pages that are out of date."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        if (after := generated(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(f"wrote {page.relative_to(ROOT)}")
