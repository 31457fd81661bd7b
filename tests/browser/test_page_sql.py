"""The SQL tab in a real browser, over a real server and real batches and swaps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser, Page, expect

from page_visit import FAINT, NAMELESS, PHONE, Visit, wait_until
from visited_site import VIEWER, Asked, account, asked

BY_KIND = "select accountType, count(*) as n\nfrom final_ui group by all order by n desc, 1"

_CELLS = """() => [...document.querySelectorAll("#sql-grid .ag-row")]
  .sort((a, b) => a.getAttribute("row-index") - b.getAttribute("row-index"))
  .map((row) => [...row.querySelectorAll(".ag-cell")]
    .sort((a, b) => a.getAttribute("aria-colindex") - b.getAttribute("aria-colindex"))
    .map((cell) => cell.textContent))"""


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked(tmp_path_factory.mktemp("sql"), browser) as running:
        yield running


def cells(page: Page) -> list[list[str]]:
    found: list[list[str]] = page.evaluate(_CELLS)
    return found


def counts(site: Asked) -> list[list[str]]:
    groups = site.summary(by="accountType", sort="-count,accountType")
    return [[name, value] for name, [value] in groups.items()]


def write(page: Page, text: str) -> None:
    """Put a text in place of what is in the editor."""
    page.locator("#sql-editor .cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def accept(visit: Visit, wanted: str) -> None:
    """Take what is offered first. The list takes no key in its first 75 ms, so that nobody chooses by accident."""
    expect(visit.page.locator(".cm-tooltip-autocomplete li[aria-selected]")).to_contain_text(wanted)
    offered = visit.page.evaluate("performance.now()")
    visit.wait_for(f"performance.now() > {offered} + 75", "the list to take keys")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("textbox", name="SQL")).to_contain_text(wanted)


def test_sql_is_written_with_completion_and_run_by_keyboard_alone(visit: Visit, site: Asked) -> None:
    page, press = visit.page, visit.page.keyboard.press
    press("q")
    editor = page.get_by_role("textbox", name="SQL")
    expect(editor).to_be_focused()
    expect(editor).to_contain_text("from final_ui")
    press("Control+a")
    page.keyboard.type("select * from acc")
    accept(visit, "accounts_ui")
    page.keyboard.type(" where bal")
    accept(visit, "balance")
    page.keyboard.type(" > 100 and accounts_ui.use")
    accept(visit, "userId")
    page.keyboard.type(" < 'u0090' order by userId")
    press("Escape")
    press("Control+Enter")
    wait_until(lambda: bool(cells(page)) and cells(page)[0][0] == "u0067", what="the rows")
    expect(page.locator("#sql-problem")).to_be_hidden()
    expect(page.locator("#sql-total")).to_contain_text("rows")
    expect(page).to_have_title("SQL · 1 · Turnout")
    press("Tab")
    assert not editor.evaluate("(element) => element === document.activeElement"), "Tab leaves the editor"


def test_sql_error_is_one_line_with_its_hint_and_the_rows_stay(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.locator("#sql-open").click()
    write(page, BY_KIND)
    page.get_by_role("button", name="Run", exact=True).click()
    wait_until(lambda: cells(page) == counts(site), what="the rows")
    problem = page.locator("#sql-problem")
    for text, said in (
        ("select nothing from final_ui", "nothing"),
        ("select\n*\nfrom read_csv('/etc/passwd')", "read_csv"),
        ("drop table final_ui", "SELECT"),
        ("select 1; select 2", "one"),
        ("select * from <img src=x onerror=alert(1)>", "<"),
    ):
        write(page, text)
        page.keyboard.press("Escape")
        page.keyboard.press("Control+Enter")
        expect(problem).to_contain_text(said)
        assert "\n" not in problem.inner_text()
        if said == "nothing":
            expect(page.locator("#sql-editor .wrong-word")).to_have_text("nothing")
        assert cells(page) == counts(site)
    write(page, BY_KIND + " limit 1")
    page.keyboard.press("Control+Enter")
    expect(problem).to_be_hidden()
    wait_until(lambda: len(cells(page)) == 1, what="one row")


def test_live_sql_follows_batches_and_swaps_and_other_sql_does_not(site: Asked) -> None:
    with site.visit(place={"sql": BY_KIND}) as still, site.visit(place={"sql": BY_KIND, "live": "1"}) as visit:
        wait_until(lambda: cells(visit.page) == counts(site), what="the rows")
        wait_until(lambda: cells(still.page) == counts(site), what="the rows")
        before = cells(still.page)
        site.filling.batch(accounts=[account(number, "bronze") for number in range(4)])
        wait_until(lambda: ["bronze", "4"] in cells(visit.page), what="a new group")
        site.fill(100)
        wait_until(lambda: cells(visit.page) == counts(site), what="the rows of the other generation")
        assert cells(still.page) == before
        still.page.get_by_role("checkbox", name="live").check()
        wait_until(lambda: cells(still.page) == counts(site), what="the rows of now")
        assert still.place().partition("sql=")[2] == visit.place().partition("sql=")[2]


def test_sql_is_sorted_here_opened_and_exported_in_every_format(visit: Visit, site: Asked, tmp_path: Path) -> None:
    page = visit.page
    page.locator("#sql-open").click()
    write(page, BY_KIND)
    page.keyboard.press("Control+Enter")
    wait_until(lambda: cells(page) == counts(site), what="the rows")
    header = page.locator("#sql-grid .ag-header-cell").first
    header.locator(".head-sort").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    by_name = sorted(counts(site), key=lambda row: (row[0] == "null", row[0]))
    wait_until(lambda: cells(page) == by_name, what="the rows by name, null last")
    page.locator("#sql-grid .ag-cell").first.dblclick()
    expect(page.locator("#sql-row")).to_contain_text(by_name[0][0])
    page.keyboard.press("Escape")
    expect(page.locator("#sql-row")).to_be_hidden()
    for name in ("CSV", "JSON", "Arrow", "Parquet"):
        page.get_by_role("button", name="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=name, exact=True).click()
        assert download.value.suggested_filename == f"sql.{name.lower()}"
        download.value.save_as(tmp_path / name)
    assert (tmp_path / "CSV").read_text().splitlines()[0] == '"accountType","n"'
    answer = json.loads((tmp_path / "JSON").read_text())
    expected = [[str(row["accountType"] or "null"), str(row["n"])] for row in answer["rows"]]
    assert expected == counts(site)
    with pa.ipc.open_stream((tmp_path / "Arrow").read_bytes()) as reader:
        assert reader.read_all().num_rows == len(expected)
    assert (tmp_path / "Parquet").read_bytes()[:4] == b"PAR1"


def test_link_to_sql_shows_the_same_in_another_browser_and_the_table_behind_it(site: Asked) -> None:
    text = "select userId, age from users_ui where age > 40 -- 100 % & more\norder by userId limit 7"
    with site.visit(place={"table": "accounts_ui", "where": "balance > 10"}) as visit:
        visit.wait_for_rows()
        visit.page.keyboard.press("q")
        write(visit.page, text)
        visit.page.keyboard.press("Escape")
        visit.page.keyboard.press("Control+Enter")
        wait_until(lambda: len(cells(visit.page)) == 7, what="the rows")
        with site.visit() as other:
            other.open(f"#{visit.place()}")
            other.page.reload()
            wait_until(lambda: cells(other.page) == cells(visit.page), what="the same rows")
            expect(other.page.get_by_role("textbox", name="SQL")).to_contain_text("100 % & more")
            other.page.locator("#tables [data-table='users_ui']").click()
            other.wait_for_rows()
            other.page.locator("#sql-open").click()
            expect(other.page.get_by_role("textbox", name="SQL")).to_contain_text("100 % & more")
            wait_until(lambda: cells(other.page) == cells(visit.page), what="the same rows")


def test_more_rows_are_shown_when_somebody_asks(site: Asked) -> None:
    with site.visit(place={"sql": "select range as n from range(2500) order by n"}) as visit:
        page = visit.page
        expect(page.locator("#sql-range")).to_have_text("The first 1,000 rows")
        page.get_by_role("button", name="Show 10,000").click()
        expect(page.locator("#sql-total")).to_have_text("2,500 rows")
        expect(page.locator("#sql-more")).to_be_hidden()


def test_viewer_has_no_sql_and_is_told_why_when_a_link_has(site: Asked) -> None:
    with site.visit(VIEWER) as visit:
        visit.wait_for_rows()
        expect(visit.page.locator("#sql-open")).to_be_hidden()
    with site.visit(VIEWER, {"sql": "select 1"}) as visit:
        expect(visit.page.locator("#sql-refused")).to_contain_text("You may not run SQL")
        expect(visit.page.locator("#sql-editor")).to_be_hidden()
        expect(visit.page.get_by_role("button", name="Run", exact=True)).to_be_hidden()
        visit.page.locator("#tables [data-table='users_ui']").click()
        visit.wait_for_rows()


def test_sql_is_readable_in_both_themes_and_fits_a_phone(site: Asked) -> None:
    place = {"sql": BY_KIND + " -- 'text'", "live": "1"}
    with site.visit(place=place, reduced_motion="reduce") as visit:
        wait_until(lambda: cells(visit.page) == counts(site), what="the rows")
        expect(visit.page.get_by_role("textbox", name="SQL")).to_be_visible()
        for _ in visit.in_both_themes():
            visit.wait_for_none(FAINT)
            visit.wait_for_none(NAMELESS)
    with site.visit(place=place, viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        wait_until(lambda: cells(visit.page) == counts(site), what="the rows")
        fits = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
        for _ in visit.in_both_themes():
            expect(visit.page.locator("#sql-run")).to_be_in_viewport()
            visit.wait_for(fits, "the page to fit")


def test_tabs_keep_their_texts_and_rows_and_come_back_after_a_reload(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.keyboard.press("q")
    tabs, editor = page.get_by_role("tab"), page.get_by_role("textbox", name="SQL")
    write(page, BY_KIND)
    page.keyboard.press("Control+Enter")
    wait_until(lambda: cells(page) == counts(site), what="the rows")
    page.get_by_role("button", name="New tab").click()
    expect(tabs).to_have_text(["1 final_ui", "2 new"])
    expect(page.locator("#sql-empty")).to_be_visible()
    assert cells(page) == []
    page.keyboard.insert_text("select count(*) as n from users_ui")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    wait_until(lambda: len(cells(page)) == 1, what="the row of the second tab")
    expect(tabs).to_have_text(["1 final_ui", "2 users_ui"])
    tabs.first.click()
    wait_until(lambda: cells(page) == counts(site), what="the rows of the first tab")
    expect(editor).to_contain_text("accountType")
    tabs.first.focus()
    page.keyboard.press("ArrowRight")
    expect(tabs.nth(1)).to_be_focused()
    expect(editor).to_contain_text("users_ui")
    page.reload()
    expect(tabs).to_have_text(["1 final_ui", "2 users_ui"])
    wait_until(lambda: len(cells(page)) == 1, what="the row of the tab in the address")
    expect(page.locator("#tables [aria-current]")).to_have_text("SQL")
    page.get_by_role("button", name="Close tab 2 users_ui").click()
    expect(tabs).to_have_text(["1 final_ui"])
    expect(editor).to_contain_text("accountType")
    expect(page.get_by_role("button", name="Close tab")).to_have_count(0)


def test_statements_that_were_run_are_in_the_history_and_saved_ones_for_everybody(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.keyboard.press("q")
    for text, place in (("select 1 as one", "1 row"), ("select x from users_ui", ""), ("select 2 as two", "1 row")):
        write(page, text)
        page.keyboard.press("Escape")
        page.keyboard.press("Control+Enter")
        if place:
            expect(page.locator("#sql-problem")).to_be_hidden()
            expect(page.locator("#sql-grid .ag-cell")).to_have_text([text[7]])
        else:
            expect(page.locator("#sql-problem")).to_be_visible()
    page.get_by_role("button", name="History").click()
    items = page.get_by_role("list", name="Statements, newest first").get_by_role("button")
    expect(items).to_have_count(3)
    expect(items.first).to_contain_text("1 row")
    expect(items.nth(1)).to_contain_text("failed")
    items.nth(2).click()
    wait_until(lambda: cells(page) == [["1"]], what="the row of the statement of before")
    expect(page.get_by_role("tab")).to_have_count(2)
    page.get_by_role("button", name="Saved", exact=True).click()
    page.get_by_role("textbox", name="Name of this statement").fill("the one")
    page.get_by_role("button", name="Save statement").click()
    expect(page.locator("#said")).to_have_text("the one is saved")
    with site.visit() as other:
        other.wait_for_rows()
        other.page.get_by_role("button", name="Views").click()
        other.page.get_by_role("list", name="On the server").get_by_role("button", name="the one SQL").click()
        wait_until(lambda: cells(other.page) == [["1"]], what="the rows of the saved statement")
        expect(other.page.get_by_role("tab")).to_have_text(["1 SELECT"])
        other.page.get_by_role("button", name="Saved", exact=True).click()
        other.page.get_by_role("button", name="Remove the view the one").click()
        expect(other.page.locator("#popover")).to_contain_text("No view is saved yet")


def test_rows_of_a_select_are_drawn_and_the_link_has_the_chart(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.keyboard.press("q")
    write(page, BY_KIND)
    page.keyboard.press("Control+Enter")
    wait_until(lambda: cells(page) == counts(site), what="the rows")
    page.get_by_role("button", name="Chart", exact=True).click()
    expect(page.locator("#sql-chart-title")).to_have_text("n by accountType")
    expect(page.locator("#sql-plot canvas")).to_be_visible()
    with site.visit() as other:
        other.open(f"#{visit.place()}")
        expect(other.page.locator("#sql-chart-title")).to_have_text("n by accountType")
        write(other.page, "select age, count(*) as people from users_ui group by all")
        other.page.keyboard.press("Control+Enter")
        expect(other.page.locator("#sql-chart-title")).to_have_text("people by age")
        other.page.locator("#sql-chart-kind").select_option("line")
        expect(other.page.locator("#sql-chart")).to_have_attribute("data-kind", "line")
        write(other.page, "select name from users_ui")
        other.page.keyboard.press("Control+Enter")
        expect(other.page.locator("#sql-chart-note")).to_contain_text("No column of these rows is a number")
        other.page.get_by_role("button", name="Close the chart").click()
        expect(other.page.locator("#sql-chart")).to_be_hidden()
        assert "plot=" not in other.place()
