"""The pictures of the docs: `make pictures` makes each of them, and each is shown somewhere."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/**/*.md"),
    *ROOT.glob("clients/*/README.md"),
    *ROOT.glob("examples/*/*.md"),
]
SHOWN = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


def shown() -> set[Path]:
    """The pictures of all pages; a picture of another site would be asked for there."""
    return {(page.parent / link).resolve() for page in PAGES for link in SHOWN.findall(page.read_text("utf-8"))}


def made() -> set[Path]:
    """Those that the scripts name."""
    found: set[Path] = set()
    for script in (ROOT / "scripts/pictures").glob("*.py"):
        for node in ast.parse(script.read_text("utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PICTURES":
                found |= {ROOT / "docs" / name for name in ast.literal_eval(node.value)}
    return found


def test_every_picture_of_the_docs_is_made_by_a_script_and_is_there() -> None:
    assert len(shown()) > 5
    assert shown() == made()
    assert [picture for picture in shown() if not picture.is_file()] == []


def test_every_picture_file_is_shown() -> None:
    assert {*(ROOT / "docs").rglob("*.png"), *(ROOT / "docs").rglob("*.svg")} == shown()


def test_drawings_are_what_their_script_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts/pictures/drawings.py"))["drawn"]()
    assert {file: file.read_text("utf-8") for file in drawn} == drawn
