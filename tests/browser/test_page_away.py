"""The page while its server is away: nothing that it shows is of another table, and nothing can be asked for."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

from filled_store import filled
from http_server import application, serving
from page_visit import PHONE, visiting


def try_now(page: Page) -> None:
    """Press the button even where the page has found the server by itself, and hides it."""
    page.locator("#banner button").evaluate("(button) => button.click()")


def test_other_table_chosen_while_the_server_is_away_shows_no_rows_of_the_one_before(
    browser: Browser, tmp_path: Path
) -> None:
    with filled(tmp_path) as filling, ExitStack() as tab:
        with serving(application(filling.database)) as url:
            visit = tab.enter_context(visiting(browser, url))
            page = visit.open('#table=final_ui&chart={"kind":"bars","by":"accountType","value":"count"}')
            visit.wait_for_rows("u")
            expect(page.locator("#chart-table tbody tr")).to_have_count(2)
            expect(page.locator("#stats .state dd")).to_have_text("live")
        expect(page.locator("#banner")).to_contain_text("does not answer")
        expect(page.locator("#stats .state dd")).to_have_text("away")
        for name in ("lag", "rate"):
            expect(page.locator(f"#stats .{name} dd")).to_have_text("-")
        for name in ("Swap", "Dry run", "Roll back"):
            expect(page.locator("#swap").get_by_role("button", name=name)).to_be_disabled()
        assert visit.keys() != [], "the last rows of the table that was looked at stay"
        page.locator("#tables [data-table='users_ui']").click()
        expect(page.locator("#table-name")).to_have_text("users_ui")
        expect(page.locator("#grid .ag-row")).to_have_count(0)
        expect(page.locator("#grid .ag-header-cell")).to_have_count(0)
        expect(page.locator("#chart-table tbody tr")).to_have_count(0)
        expect(page.locator("#total")).to_have_text("")
        expect(page.locator("#empty")).to_contain_text("The rows of users_ui appear here when the server answers again")
        with serving(application(filling.database), port=urlsplit(url).port or 0):
            try_now(page)
            visit.wait_for_rows("u")
            expect(page.locator("#grid")).to_have_attribute("data-table", "users_ui")
            expect(page.locator("#stats .state dd")).to_have_text("live")
            expect(page.locator("#swap").get_by_role("button", name="Swap")).to_be_enabled()
            tab.close()


def test_sql_opened_while_the_server_is_away_has_its_editor_when_it_is_back(browser: Browser, tmp_path: Path) -> None:
    with filled(tmp_path) as filling, ExitStack() as tab:
        with serving(application(filling.database)) as url:
            visit = tab.enter_context(visiting(browser, url))
            page = visit.open("#table=final_ui")
            visit.wait_for_rows("u")
        expect(page.locator("#banner")).to_contain_text("does not answer")
        page.locator("#sql-open").click()
        expect(page.locator("#sql-problem")).to_contain_text("The editor could not be loaded")
        expect(page.locator("#sql-run")).to_have_text("Run")
        with serving(application(filling.database), port=urlsplit(url).port or 0):
            try_now(page)
            editor = page.get_by_role("textbox", name="SQL")
            expect(editor).to_contain_text("from final_ui")
            expect(page.locator("#sql-problem")).to_be_hidden()
            editor.click()
            page.keyboard.press("Control+Enter")
            expect(page.locator("#sql-total")).to_have_text("2 rows")
            tab.close()


def test_header_of_a_phone_stays_in_one_line_and_what_is_said_can_be_read(browser: Browser, tmp_path: Path) -> None:
    height = "document.querySelector('#top').getBoundingClientRect().height"
    with filled(tmp_path) as filling, ExitStack() as tab:
        with serving(application(filling.database)) as url:
            visit = tab.enter_context(visiting(browser, url, viewport=PHONE, has_touch=True, is_mobile=True))
            page = visit.open("#table=final_ui")
            visit.wait_for_rows("u")
            before = page.evaluate(height)
        expect(page.locator("#banner")).to_contain_text("does not answer")
        assert page.evaluate(height) == before
        page.locator("#tables [data-table='users_ui']").click()
        empty = page.locator("#empty")
        expect(empty).to_contain_text("appear here when the server answers again")
        expect(page.locator("#main")).to_have_attribute("aria-busy", "true")
        page.wait_for_timeout(300)  # a fading takes half of that
        assert empty.evaluate(
            "(e) => [e, e.parentElement, e.closest('.body')].map((x) => getComputedStyle(x).opacity)"
        ) == ["1", "1", "1"]
        with serving(application(filling.database), port=urlsplit(url).port or 0):
            try_now(page)
            visit.wait_for_rows("u")
            tab.close()
