"""Times, numbers and the header of the page, as somebody in Tokyo with a small screen sees them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fake_orchestrator import STATUS
from http_server import application, serving, small_store
from page_visit import visiting

_CUT = """() => [...document.querySelectorAll("#stats dt, #stats dd")]
  .filter((part) => part.scrollWidth > part.clientWidth + 1 || part.getBoundingClientRect().right > innerWidth)
  .map((part) => part.textContent)"""

SINK: dict[str, Any] = {"name": "final", "table": "final_ui", "topic": "final", "format": "json", "error": None}
SINK |= {"delivery": "at_least_once", "state": "writing", "generation": 1, "version": 1, "records": 1}
SINK |= {"lastWritten": None, "waitingVersions": 0, "waitingRows": 0}


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {
        "sources": ["users", "accounts", "machines"],
        "usersTopic": "customers.users.v2",
        "accountsTopic": "billing.accounts.v12",
        "machinesTopic": "factory.machines",
        "state": "catching_up",
        "newestRecord": "2026-01-01T00:00:00Z",
        "lag": 123_456,
        "recordsPerSecond": 12_345,
        "sinks": [SINK],
    }.items():
        monkeypatch.setitem(STATUS, name, value)
    with small_store(tmp_path) as database:
        with database.write() as cursor:
            cursor.execute("""
                ALTER TABLE g1.users_ui ADD COLUMN balance DOUBLE;
                ALTER TABLE g1.users_ui ADD COLUMN seen TIMESTAMPTZ;
                UPDATE g1.users_ui SET balance = [143333, 65413.7, 203925.75][_id], seen = '2026-01-31 20:00:00.5+00';
                DROP VIEW main.users_ui;
                CREATE VIEW main.users_ui AS FROM g1.users_ui;
            """)
        with serving(application(database)) as address:
            yield address


def test_one_clock_with_its_zone_even_numbers_and_a_header_without_cut_words(browser: Browser, url: str) -> None:
    with visiting(browser, url, timezone_id="Asia/Tokyo", viewport={"width": 1280, "height": 800}) as visit:
        page = visit.open("#table=users_ui")
        visit.wait_for_rows("u")
        cells = page.locator("#grid .ag-row .ag-cell")
        for text in ("143,333.00", "65,413.70", "203,925.75"):
            expect(cells.get_by_text(text, exact=True)).to_be_visible()
        moment = cells.get_by_text("2026-02-01 05:00:00.500 +9").first
        moment.hover()
        expect(moment).to_have_attribute("title", "2026-01-31 20:00:00.500000 UTC")
        expect(page.locator("#timeline time")).to_have_text("2026-01-01 09:00")
        expect(page.locator("#timeline time")).to_have_attribute("title", re.compile("^2026-01-01 00:00:00"))
        expect(page.locator("#history-title")).to_contain_text("times in UTC+9")
        expect(page.locator("#stats .sinks dd")).to_have_text("up to date")
        visit.wait_for_none(_CUT)
