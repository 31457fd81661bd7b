"""What the site takes from outside of docs/: the README as its first page, other pages of the repository, the icon.

Links are written so that they hold in the repository; a link that leaves docs/ leads to where the site has its target.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "bench.md",
    "tests/README.md": "tests.md",
    "CONTRIBUTING.md": "how-to-contribute.md",
    "SECURITY.md": "security.md",
}
ASSETS = {"web/page/public/icon.svg": "icon.svg", "docs/site/site.css": "site.css", "LICENSE": "LICENSE.txt"}
PLACES = {**PAGES, **ASSETS}
SOURCES = {place: path for path, place in PLACES.items()}
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, place in PLACES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    source = SOURCES.get(place, f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        there = PLACES.get(target, target.removeprefix("docs/"))
        return link[1] + posixpath.relpath(there, posixpath.dirname(place) or ".")

    return LINK.sub(moved, markdown)
