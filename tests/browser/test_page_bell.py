"""The bell of the page, in a real browser: what is new, the last events, and the way to the rows of an alert."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fake_orchestrator import STATUS, FakeOrchestrator
from filled_store import Filling, filled
from http_server import serving
from page_visit import visiting
from turnout.alert.watched_rows import WatchedRows
from turnout.config import AlertSettings
from turnout.serve.app import Services, create_app

LARGE = AlertSettings.model_validate({"table": "final_ui", "where": "balance > 100", "to": "log"})


class Alerted(FakeOrchestrator):
    """An orchestrator with one alert; its target fails where `error` says so."""

    error: str | None = None

    def status(self) -> dict[str, Any]:
        watched = {"name": "large", "table": LARGE.table, "where": LARGE.where, "to": "log", "error": self.error}
        return {**STATUS, "alerts": [{**watched, "state": "failing" if self.error else "watching"}]}


@pytest.fixture
def alerted() -> Alerted:
    return Alerted()


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    with filled(tmp_path) as one:
        yield one


@pytest.fixture
def url(filling: Filling, alerted: Alerted) -> Iterator[str]:
    services = Services(filling.database, alerted)
    with serving(create_app(services)) as address:
        yield address


def account(user: int, balance: float) -> dict[str, Any]:
    return {"userId": f"u{user}", "accountType": "gold", "balance": balance}


def test_bell_shows_new_events_and_leads_to_the_rows(browser: Browser, url: str, filling: Filling) -> None:
    rows = WatchedRows("large", LARGE, filling.database)
    rows.step()
    with visiting(browser, url) as visit:
        page = visit.open()
        expect(page.locator("#bell")).to_be_visible()
        expect(page.locator("#bell-count")).to_be_hidden()
        filling.batch(accounts=[account(1, 500.0), account(2, 900.0)])
        rows.step()
        expect(page.locator("#bell-count")).to_have_text("2")
        page.locator("#bell").click()
        events = page.locator(".bell-event")
        expect(events).to_have_count(2)
        expect(events.first).to_contain_text("large: u1 entered")
        expect(events.first).to_contain_text("waiting")
        expect(page.locator("#bell-count")).to_be_hidden()
        events.first.click()
        expect(page.locator("#where")).to_have_value("balance > 100")
        expect(page.locator("#table-name")).to_have_text("final_ui")
        expect(page.locator("#total")).to_contain_text("2")
        filling.batch(accounts=[account(1, 1.0)])
        rows.step()
        expect(page.locator("#bell-count")).to_have_text("1")


def test_bell_says_which_alert_is_not_delivered(browser: Browser, url: str, alerted: Alerted) -> None:
    alerted.error = "the webhook hooks.example.com answered 500"
    with visiting(browser, url) as visit:
        page = visit.open()
        expect(page.locator("#bell-count")).to_have_text("!")
        page.locator("#bell").click()
        expect(page.locator("#popover")).to_contain_text("large: the webhook hooks.example.com answered 500")
        expect(page.locator("#popover")).to_contain_text("No events yet.")
