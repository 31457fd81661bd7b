"""The documentation site as Turnout serves it: search works, no page asks another host, and no token is needed."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from playwright.sync_api import Browser, expect

import turnout
import turnout.serve
from fake_orchestrator import FakeOrchestrator
from http_server import HTTP, serving, small_store
from page_visit import visiting, wait_until
from turnout.config import Role
from turnout.serve.access import Access, Identity, Tokens
from turnout.serve.app import Services, create_app

SITE = Path(turnout.serve.__file__).parent / "site"
# What a browser loads by itself; a link is followed only by a reader.
LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="([a-z]*:?//[^"]*)"')


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert (SITE / "index.html").exists(), "the site is not built: make docs"
    access = Access(Tokens([(Identity("ops", Role.OPERATOR), "operator-token-0123456789")]))
    with (
        small_store(tmp_path_factory.mktemp("store")) as database,
        serving(create_app(Services(database, FakeOrchestrator()), access)) as address,
    ):
        yield address


def test_every_page_of_docs_is_in_the_site_and_loads_nothing_from_elsewhere(url: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    pages = [path.relative_to(docs).with_suffix(".html").as_posix() for path in docs.rglob("*.md")]
    assert len(pages) > 20
    for page in ["", *pages]:
        answer = HTTP.get(f"{url}/docs/{page}")
        assert answer.status_code == 200, page
        assert LOADED.findall(answer.text) == [], page
        assert f"Turnout {turnout.__version__}</title>" in answer.text, page


def test_page_of_the_site_is_edited_where_it_is_in_the_repository() -> None:
    hooks = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "site" / "pages.py"))
    config = SimpleNamespace(edit_uri="https://example.com/edit/main/")
    for place, source in (("index.md", "README.md"), ("how-to/apply.md", "docs/how-to/apply.md")):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=place), edit_url=None)
        hooks["on_page_markdown"]("", page, config, None)
        assert page.edit_url == f"https://example.com/edit/main/{source}"


def test_reader_comes_by_the_short_address_searches_and_follows_what_is_found(browser: Browser, url: str) -> None:
    with visiting(browser, url, color_scheme="dark") as visit:
        page = visit.page
        page.goto(f"{url}/docs")
        expect(page.get_by_role("heading", name="Turnout", exact=False).first).to_be_visible()
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
        search = page.get_by_role("textbox", name="Search")
        # The index is loaded when the field is entered; what is typed before that finds nothing.
        search.click()
        expect(page.locator(".md-search-result__meta")).to_contain_text("Type to start searching")
        search.press_sequentially("linger")
        page.locator(".md-search-result__link").first.click()
        expect(page.locator("article")).to_contain_text("linger")
        assert "/docs/" in page.evaluate("location.pathname")


def test_browser_is_heard_while_a_test_waits(browser: Browser, url: str) -> None:
    with visiting(browser, url) as visit:
        page = visit.open("docs/")
        page.evaluate("setTimeout(() => history.replaceState(null, '', '#later'), 200)")
        wait_until(lambda: page.url.endswith("#later"), what="the address")


def test_page_that_is_not_there_is_not_found(url: str) -> None:
    assert HTTP.get(f"{url}/docs/nope.html").status_code == 404
