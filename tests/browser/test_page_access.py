"""The page before a server that asks for tokens: the question, a wrong answer, and what each role may do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from fake_orchestrator import FakeOrchestrator
from http_server import serving, small_store
from page_visit import Visit, visiting
from turnout.config import load
from turnout.serve.access import Access
from turnout.serve.app import Services, create_app

OPERATOR, VIEWER = "operator-token-0123456789", "viewer-token-0123456789"
ACCESS = f"""
access:
  tokens:
    - {{name: ops, role: operator, token: {OPERATOR}}}
    - {{name: wall, role: viewer, token: {VIEWER}}}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("access")
    (folder / "turnout.yaml").write_text(ACCESS)
    with small_store(folder / "store") as database:
        services = Services(database, FakeOrchestrator())
        with serving(create_app(services, Access.of(load(folder / "turnout.yaml", {})))) as address:
            yield address


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Visit]:
    with visiting(browser, url) as tab:
        tab.open()
        yield tab


def test_page_asks_for_a_token_says_when_it_is_wrong_and_keeps_it_for_the_tab(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#token")).to_be_visible()
    expect(page.locator("#token-problem")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#token")).to_be_visible()
    expect(page.locator("#token-text")).to_be_focused()
    page.keyboard.type("not-the-token-0123456789")
    page.keyboard.press("Enter")
    expect(page.locator("#token-problem")).to_contain_text("token")
    assert page.evaluate("sessionStorage.length") == 0
    page.locator("#token-text").fill(OPERATOR)
    page.keyboard.press("Enter")
    visit.wait_for_rows("u1")
    expect(page.locator("#token")).to_be_hidden()
    page.reload()
    visit.wait_for_rows("u1")
    assert OPERATOR not in page.evaluate("location.href")
    assert OPERATOR not in page.content()
    assert page.evaluate("JSON.stringify(localStorage)") == "{}"
    assert page.evaluate("sessionStorage.length") == 1


def test_viewer_sees_everything_and_is_told_why_nothing_can_be_swapped(visit: Visit) -> None:
    page = visit.page
    page.locator("#token-text").fill(VIEWER)
    page.get_by_role("button", name="Open").click()
    visit.wait_for_rows("u1")
    for name in ("Swap", "Dry run", "Roll back"):
        expect(page.locator("#swap").get_by_role("button", name=name)).to_be_disabled()
    expect(page.locator("#viewer")).to_contain_text("operator")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert "Ada" in Path(download.value.path()).read_text()


def test_operator_can_swap(visit: Visit) -> None:
    page = visit.page
    page.locator("#token-text").fill(OPERATOR)
    page.keyboard.press("Enter")
    visit.wait_for_rows("u1")
    expect(page.locator("#swap").get_by_role("button", name="Swap")).to_be_enabled()
    expect(page.locator("#viewer")).to_be_hidden()
