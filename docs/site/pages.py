"""What the site takes from outside of docs/: the README as its first page, other pages of the repository, the icon.

Links are written so that they hold in the repository; a link that leaves docs/ leads to where the site has its target.
The site's name has the version that it describes.
Turnout serves the site with a policy that lets no page run a script inside itself, so the theme's few go into files.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import tomllib
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
ASSETS = {
    "web/page/public/icon.svg": "icon.svg",
    "docs/site/site.css": "site.css",
    "LICENSE": "LICENSE.txt",
    "examples/notebook/live-tables.ipynb": "how-to/live-tables.ipynb",
    "deploy/kubernetes.yaml": "how-to/kubernetes.yaml",
    "deploy/turnout.service": "how-to/turnout.service",
}
PLACES = {**PAGES, **ASSETS}
SOURCES = {place: path for path, place in PLACES.items()}
SCRIPT = re.compile(r"<script>(.+?)</script>", re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)#])")


def on_config(config: MkDocsConfig) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    config.site_name = f"{config.site_name} {version}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, place in PLACES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    place = page.file.src_uri
    source = SOURCES.get(place, f"docs/{place}")
    if config.edit_uri:
        page.edit_url = config.edit_uri + source

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        there = PLACES.get(target, target.removeprefix("docs/"))
        return link[1] + posixpath.relpath(there, posixpath.dirname(place) or ".")

    return LINK.sub(moved, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    def filed(script: re.Match[str]) -> str:
        place = f"assets/javascripts/{hashlib.sha256(script[1].encode()).hexdigest()[:8]}.js"
        file = Path(config.site_dir, place)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(script[1], encoding="utf-8")
        return f'<script src="{posixpath.relpath(place, posixpath.dirname(page.file.dest_uri) or ".")}"></script>'

    return SCRIPT.sub(filed, output)
