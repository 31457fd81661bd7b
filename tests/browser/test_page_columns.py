"""The page while a changed file is applied: columns, tables and swap fields follow, without a reload or a gap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from fake_orchestrator import STATUS, FakeOrchestrator
from filled_store import Filling
from http_server import serving
from page_visit import Visit, visiting
from turnout.config import parse
from turnout.serve.app import Services, create_app
from turnout.store.database import Database

SOURCE = {"topic": "users", "table": "users_ui", "key": "userId"}
BEFORE = {"userId": "string", "name": "string", "age": "int64"}
AFTER = {"userId": "string", "phone": "string", "age": "int64"}
USERS = [{"userId": f"u{i}", "name": f"n{i}", "phone": f"+{i}", "age": i} for i in range(5)]


class Following(FakeOrchestrator):
    """The status of what is published."""

    def __init__(self, filling: Filling) -> None:
        super().__init__()
        self._filling = filling

    def status(self) -> dict[str, Any]:
        sources = list(self._filling.settings.sources)
        topics = {f"{source}Topic": source for source in sources}
        common = {name: value for name, value in STATUS.items() if not name.endswith("Topic")}
        return {**topics, **common, "generation": self._filling._number, "sources": sources}


def apply(filling: Filling, *, columns: dict[str, str], more: bool) -> None:
    sources = {"users": {**SOURCE, "columns": columns}}
    if more:
        sources["orders"] = {**SOURCE, "table": "orders_ui", "topic": "orders", "columns": BEFORE}
    filling.settings = parse({"sources": sources, "views": {}}, Path(), {})
    rows = [{name: user[name] for name in columns} for user in USERS]
    filling.swap(users=rows, **({"orders": [{"userId": "o1", "name": "x", "age": 1}]} if more else {}))  # type: ignore[arg-type]


@pytest.fixture
def filling(tmp_path: Path) -> Iterator[Filling]:
    database = Database.open(tmp_path)
    made = Filling(database)
    apply(made, columns=BEFORE, more=False)
    yield made
    database.close()


@pytest.fixture
def visit(browser: Browser, filling: Filling) -> Iterator[Visit]:
    services = Services(filling.database, Following(filling))
    with serving(create_app(services)) as url, visiting(browser, url) as tab:
        yield tab


def test_page_follows_columns_and_tables_of_an_applied_file(filling: Filling, visit: Visit) -> None:
    page = visit.open("#table=users_ui")
    visit.wait_for_rows("u0")
    heads = page.locator("#grid .head-name")
    expect(heads).to_have_text(list(BEFORE))
    page.evaluate("window.loaded = true")
    visit.watch_frames()
    apply(filling, columns=AFTER, more=True)
    expect(heads).to_have_text(list(AFTER))
    expect(page.locator("#grid .ag-row").first).to_contain_text("+0")
    # The new table is in the list, and its source among the fields of a swap.
    expect(page.locator("#tables [data-table=orders_ui]")).to_be_visible()
    expect(page.locator("#topics [data-name=ordersTopic]")).to_be_attached()
    probe = visit.frames()
    assert probe["fewest"] == 5 and probe["mixed"] == 0, probe
    # One that is looked at while it goes: the rows stay, and the page says why they do not change.
    page.locator("#tables [data-table=orders_ui]").click()
    visit.wait_for_rows("o1")
    apply(filling, columns=AFTER, more=False)
    expect(page.locator("#problem")).to_contain_text("orders_ui is gone")
    expect(page.locator("#tables [data-table=orders_ui]")).to_have_count(0)
    expect(page.locator("#topics [data-name=ordersTopic]")).to_have_count(0)
    page.locator("#tables [data-table=users_ui]").click()
    visit.wait_for_rows("u0")
    expect(page.locator("#problem")).to_be_hidden()
    # An order by a column that goes is told, too.
    heads.filter(has_text="phone").click()
    visit.wait_for("location.hash.includes('phone')", "the order in the address")
    apply(filling, columns=BEFORE, more=False)
    expect(page.locator("#problem")).to_contain_text("phone")
    assert page.evaluate("window.loaded") is True
