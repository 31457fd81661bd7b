"""The dialog for a topic that is no source yet, in a real browser: what it shows, what it copies, who may open it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fake_orchestrator import STATUS, FakeOrchestrator, sources_named
from http_server import serving, small_store
from page_visit import FAINT, NAMELESS, PHONE, Visit, visiting
from sampled_topics import example
from turnout.config import Settings, load
from turnout.errors import TurnoutError
from turnout.example.by_example import source_json
from turnout.serve.access import Access
from turnout.serve.app import Services, create_app

OPERATOR, VIEWER = "operator-token-0123456789", "viewer-token-0123456789"
ACCESS = f"""
access:
  tokens:
    - {{name: ops, role: operator, token: {OPERATOR}}}
    - {{name: wall, role: viewer, token: {VIEWER}}}
"""
ORDERS = [
    {
        "orderId": number,
        "userId": f"u{number % 40}",
        "placedAt": f"2026-01-0{number % 9 + 1}T10:00:00Z",
        "total": number * 2.5,
        "paid": number % 3 == 0,
        "lines": [{"sku": "a-1", "count": 2}],
        "note": None,
        "<img src=x onerror='hacked()'>": number,
    }
    for number in range(120)
]


class Examined(FakeOrchestrator):
    """Three topics: one is a source, one has orders, one has nothing."""

    def status(self) -> dict[str, Any]:
        return {**STATUS, "sources": ["users", "accounts"]}

    def topics(self) -> list[str]:
        return ["users", "orders", "empty", "__consumer_offsets"]

    def example(self, topic: str, records: int) -> dict[str, Any]:
        if topic == "empty":
            raise TurnoutError("bad_example", "topic 'empty' has no records", "write records to it first")
        return source_json(example(topic, ORDERS), Settings())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("example")
    (folder / "turnout.yaml").write_text(ACCESS)
    with small_store(folder / "store") as database:
        services = Services(database, Examined(**sources_named("users", "accounts")))
        with serving(create_app(services, Access.of(load(folder / "turnout.yaml", {})))) as address:
            yield address


def opened(visit: Visit, token: str = OPERATOR) -> Visit:
    visit.open()
    visit.page.locator("#token-text").fill(token)
    visit.page.keyboard.press("Enter")
    visit.wait_for_rows("u1")
    return visit


def choose(visit: Visit, topic: str) -> None:
    visit.page.locator("#example-open").click()
    expect(visit.page.locator("#example-topic option[value='orders']")).to_be_attached()
    visit.page.locator("#example-topic").select_option(topic)


def test_operator_picks_a_topic_sees_its_columns_and_copies_the_lines(browser: Browser, url: str) -> None:
    with visiting(browser, url) as visit:
        page = opened(visit).page
        choose(visit, "orders")
        expect(page.locator("#example-said")).to_have_text("orders has 120 records in 1 partition:")
        rows = page.locator("#example-columns tr")
        expect(rows).to_have_count(8)
        expect(rows.nth(1)).to_contain_text("userId key")
        expect(rows.nth(1)).to_contain_text("also the key of users")
        expect(rows.nth(2)).to_contain_text("timestamp")
        offered = page.locator("#example-topic option:not([disabled])").all_inner_texts()
        assert offered == ["empty", "orders", "users"]
        expect(page.locator("#example-topic optgroup option")).to_have_text(["users"])
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="copied")).to_be_visible()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == source_json(example("orders", ORDERS), Settings())["yaml"]
        assert page.evaluate("typeof hacked") == "undefined"
        page.keyboard.press("Escape")
        expect(page.locator("#example")).to_be_hidden()
        expect(page.locator("#example-open")).to_be_focused()


def test_topic_of_no_use_is_told_with_its_remedy_and_another_can_be_chosen(browser: Browser, url: str) -> None:
    with visiting(browser, url) as visit:
        page = opened(visit).page
        choose(visit, "empty")
        expect(page.locator("#example-problem")).to_contain_text("topic 'empty' has no records")
        expect(page.locator("#example-problem")).to_contain_text("write records to it first")
        expect(page.locator("#example-found")).to_be_hidden()
        page.locator("#example-topic").select_option("orders")
        expect(page.locator("#example-found")).to_be_visible()
        expect(page.locator("#example-problem")).to_be_hidden()


def test_viewer_cannot_open_it(browser: Browser, url: str) -> None:
    with visiting(browser, url) as visit:
        opened(visit, VIEWER)
        expect(visit.page.locator("#example-open")).to_be_disabled()


def test_it_is_readable_in_both_themes_and_fits_a_phone(browser: Browser, url: str) -> None:
    with visiting(browser, url, reduced_motion="reduce") as visit:
        opened(visit)
        choose(visit, "orders")
        expect(visit.page.locator("#example-found")).to_be_visible()
        for _ in visit.in_both_themes():
            visit.wait_for_none(FAINT)
            visit.wait_for_none(NAMELESS)
    with visiting(browser, url, viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        opened(visit)
        visit.page.locator("#side-toggle").click()
        choose(visit, "orders")
        expect(visit.page.locator("#example-found")).to_be_visible()
        fits = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
        for _ in visit.in_both_themes():
            visit.wait_for(fits, "the page to fit")
