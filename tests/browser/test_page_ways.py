"""Ways through the page in a real browser: Back and Forward, Tab, what is refused, and what is in force."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from fake_orchestrator import STATUS
from page_visit import Visit
from visited_site import Asked, asked

SWAPS = """
    INSERT INTO turnout.swaps (_id, ts, generation, "from", "to", outcome, detail) VALUES
    (1, '2026-01-01 00:00:00+00', 1, NULL, 'users=users join=left', 'applied', NULL),
    (2, '2026-01-01 00:01:00+00', 1, 'users=users', 'users=users', 'applied', 'max_viewers: 500 -> 9'),
    (3, '2026-01-01 00:02:00+00', 2, 'users=users join=left', 'users=users2 join=left', 'applied', NULL),
    (4, '2026-01-01 00:03:00+00', 3, 'users=users2 join=left', 'users=users join=left', 'rolled_back', NULL)
"""


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked(tmp_path_factory.mktemp("ways"), browser) as running:
        with running.filling.database.write() as cursor:
            cursor.execute(SWAPS)
        yield running


def entry(page: Page, place: int) -> Locator:
    return page.locator("#timeline li").nth(place)


def test_back_and_forward_go_from_table_to_table_and_tab_leaves_the_rows(visit: Visit) -> None:
    page = visit.page

    def press(keys: str) -> None:
        page.keyboard.press(keys)
        # AG Grid moves the focus out of the rows in two steps; the second is a timer.
        page.evaluate("new Promise((done) => setTimeout(done))")

    for table in ("users_ui", "accounts_ui"):
        page.locator(f"#tables [data-table='{table}']").click()
        expect(page.locator("#grid")).to_have_attribute("data-table", table)
    page.locator("#where").fill("balance > 100")
    expect(page.locator("#chips")).to_contain_text("balance > 100")
    expect(page).to_have_url(re.compile("balance"))
    page.go_back()
    expect(page.locator("#grid")).to_have_attribute("data-table", "users_ui")
    page.go_back()
    expect(page.locator("#grid")).to_have_attribute("data-table", "final_ui")
    page.go_forward()
    page.go_forward()
    expect(page.locator("#grid")).to_have_attribute("data-table", "accounts_ui")
    expect(page.locator("#where")).to_have_value("balance > 100")
    expect(page.get_by_role("grid", name="Rows of accounts_ui")).to_be_visible()
    cell = page.locator("#grid .ag-cell").first
    cell.click()
    press("Tab")
    assert not page.evaluate("document.querySelector('#grid').contains(document.activeElement)")
    press("Shift+Tab")
    expect(cell).to_be_focused()
    press("Shift+Tab")
    assert not page.evaluate("document.querySelector('#grid').contains(document.activeElement)")
    names = page.get_by_role("button", name="Swap now", exact=True)
    expect(names).to_have_count(1)


def test_history_marks_what_was_undone_and_the_rollback_says_whether_it_is_instant(
    site: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STATUS, "generation", 3)
    monkeypatch.setitem(STATUS, "lingering", [2])
    with site.visit() as visit:
        page = visit.page
        expect(entry(page, 0)).to_contain_text("Generation 3")
        expect(entry(page, 0).locator(".tag")).to_have_text("rollback")
        expect(entry(page, 1).locator(".tag")).to_have_text("rolled back")
        expect(entry(page, 2)).to_contain_text("max_viewers: 500 → 9")
        expect(entry(page, 3).locator(".tag")).to_have_text("applied")
        expect(page.locator("#rollback-to")).to_contain_text("Back to generation 2: users=users2")
        expect(page.locator("#rollback-to")).to_contain_text("instant: generation 2 is still running")
        monkeypatch.setitem(STATUS, "lingering", [])
        expect(page.locator("#rollback-to")).to_contain_text("built again")


def test_what_is_refused_looks_so_and_what_is_in_force_is_named(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.locator("#where").fill("age >= 30, name contains 1")
    expect(page.locator("#chips .chip:not(.wrong)")).to_contain_text("age >= 30, name contains 1")
    page.locator("#where").fill("ages > 3")
    expect(page.locator("#chips .chip.wrong")).to_contain_text("not applied: ages > 3")
    expect(page.locator("#problem")).to_contain_text("The rows below are those of: age >= 30, name contains 1")
    page.locator("#where").fill("age >= 31")
    expect(page.locator("#chips .chip.wrong")).to_have_count(0)
    expect(page.locator("#problem")).to_be_hidden()
    page.keyboard.press("Escape")
    page.locator("#sql-open").click()
    editor = page.locator("#sql-editor .cm-content")
    for text in ("select count(*) as n from users_ui", "select nothing from users_ui"):
        editor.click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(text)
        page.locator("#sql-live").set_checked(True)
        page.keyboard.press("Control+Enter")
        page.locator("#sql-run").click()
        if "count" in text:
            expect(page.locator("#sql-place")).to_contain_text("live")
    expect(page.locator("#sql-problem")).to_contain_text("nothing")
    expect(page.locator("#sql-problem")).not_to_contain_text("/api/")
    label = "Rows of the previous statement: select count(*) as n from users_ui"
    expect(page.locator("#sql-range")).to_have_text(label)
    expect(page.locator("#sql-place")).not_to_contain_text("live")
