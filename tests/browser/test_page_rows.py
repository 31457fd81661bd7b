"""Rows of the page in a real browser: searched over all text columns, opened by an address, and shown in a frame."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from fake_orchestrator import STATUS
from filled_store import filled
from http_server import patient, serving
from page_visit import PATIENCE_SECONDS, PHONE, Visit, visiting, wait_until
from turnout.serve.app import create_app
from turnout.store.query.summary_read import read_groups
from visited_site import Asked, asked, user

MEDIUM = {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked(tmp_path_factory.mktemp("rows"), browser) as running:
        yield running


def test_text_is_searched_for_in_all_text_columns_of_rows_chart_link_and_view(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.keyboard.press("f")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("U0019@EXAMPLE")
    wait_until(lambda: visit.keys() == ["u0019"], what="the row with that text in its email")
    expect(page.locator("#chips .chip")).to_have_text("any text contains U0019@EXAMPLE✕")
    page.locator("#search").fill("silver")
    page.locator("#where").fill("age < 30")
    expect(page.locator("#total")).to_have_text("20 rows")
    page.get_by_role("button", name="Chart").click()
    wait_until(lambda: visit.chart_numbers() == {"silver": ["20"]}, what="the chart of the found rows")
    with site.visit() as other:
        other.open(f"#{visit.place()}")
        expect(other.page.locator("#search")).to_have_value("silver")
        expect(other.page.locator("#total")).to_have_text("20 rows")
        # One that comes is found, too.
        site.filling.batch(users=[{**user(9_000), "name": "Silverman", "age": 3}])
        expect(other.page.locator("#total")).to_have_text("21 rows")
    page.locator("#where").fill("ages < 30")
    expect(page.locator("#chips .chip.wrong")).to_have_count(1)
    expect(page.locator("#problem")).to_contain_text("The rows below are those of: age < 30, any text contains silver")
    page.get_by_role("button", name="Clear all").click()
    expect(page.locator("#search")).to_have_value("")
    expect(page.locator("#total")).to_have_text("201 rows")


def test_row_has_an_address_that_opens_it_wherever_it_is(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.locator("#where").fill("userId = u0150")
    wait_until(lambda: visit.keys() == ["u0150"], what="the row")
    page.locator("#grid .ag-cell").first.dblclick()
    expect(page.locator("#row")).to_contain_text("Name 150")
    page.get_by_role("button", name="Copy a link to this row").click()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == page.url and "row=" in link
    with site.visit() as other:
        # Far below what is on the screen.
        other.open("#" + link.partition("#")[2].replace("where=userId+%3D+u0150&", ""))
        expect(other.page.locator("#row")).to_contain_text("u0150@example.org")
        expect(other.page.locator("#total")).to_have_text("201 rows")
        site.filling.batch(accounts=[{"userId": "u0150", "accountType": "iron", "balance": 1.0}])
        expect(other.page.locator("#row")).to_contain_text("iron")
        other.page.get_by_role("button", name="Close the row").click()
        expect(other.page.locator("#row")).to_be_hidden()
        assert "row=" not in other.place()
        other.open("#table=final_ui&row=nothing")
        expect(other.page.locator("#row")).to_contain_text("This row is not in the table now")
        other.page.locator("#tables [data-table='swaps']").click()
        expect(other.page.locator("#row")).to_be_hidden()
    page.get_by_role("button", name="Close the row").click()


def test_type_tags_are_whole_or_not_there_and_both_panes_can_be_widened(site: Asked) -> None:
    cut = """() => [...document.querySelectorAll("#grid .head-sort small")].filter((tag) => {
      const [own, box] = [tag.getBoundingClientRect(), tag.closest(".ag-header-cell").getBoundingClientRect()];
      const clip = tag.parentElement.getBoundingClientRect();
      const isSeen = own.top < clip.bottom && own.bottom > clip.top;
      return isSeen && (own.right > box.right + 1 || own.left < box.left - 1);
    }).map((tag) => tag.textContent)"""
    chart = '{"kind":"bars","by":"accountType","value":"count"}'
    wide = {"width": 1600, "height": 800}
    for place in ({"table": "final_ui", "chart": chart}, {"table": "final_ui"}):
        with site.visit(place=place, viewport=wide) as visit:
            visit.wait_for_rows()
            page = visit.page
            if "chart" not in place:
                page.locator("#grid .ag-cell").first.dblclick()
            name = "chart" if "chart" in place else "row"
            divider = page.get_by_role("separator", name=f"Width of the {name}")
            before = page.locator(f"#{name}").bounding_box()
            assert page.evaluate(cut) == []
            divider.focus()
            for _ in range(4):
                page.keyboard.press("ArrowLeft")
            after = page.locator(f"#{name}").bounding_box()
            assert before and after and after["width"] > before["width"] + 60
            visit.wait_for(f"({cut})().length === 0", "no tag that is cut")
            box = divider.bounding_box()
            assert box
            page.mouse.move(box["x"] + 3, box["y"] + 200)
            page.mouse.down()
            page.mouse.move(box["x"] + 103, box["y"] + 200)
            page.mouse.up()
            last = page.locator(f"#{name}").bounding_box()
            assert last and abs(last["width"] - (after["width"] - 100)) < 12


def test_bars_take_the_height_that_there_is(site: Asked) -> None:
    place = {"table": "final_ui", "chart": '{"kind":"bars","by":"accountType","value":"count"}'}
    with site.visit(place=place, viewport=MEDIUM) as visit:
        visit.wait_for_rows()
        expect(visit.page.locator("#chart-plot canvas")).to_be_visible()
        height = "((selector) => document.querySelector(selector).clientHeight)"
        filled = f"{height}('#chart-plot .uplot') > {height}('#chart-plot') * 2 / 3"
        visit.wait_for(filled, "bars that fill two thirds of their pane")


def test_chart_says_that_it_is_computed(site: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def read_later(*asked: Any) -> Any:
        answer.wait(PATIENCE_SECONDS)
        return read_groups(*asked)

    monkeypatch.setattr("turnout.serve.live.summaries.read_groups", read_later)
    place = {"table": "users_ui", "chart": '{"kind":"bars","by":"name","value":"max","of":"age"}'}
    try:
        with site.visit(place=place) as visit:
            working = visit.page.locator("#chart-working")
            expect(working).to_be_visible()
            expect(working).to_contain_text("being computed")
            answer.set()
            expect(working).to_be_hidden()
            wait_until(lambda: len(visit.chart_numbers()) == 20, what="the numbers")
    finally:
        answer.set()


def test_header_cuts_no_word_with_three_sources_and_a_sink(site: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = {"name": "out", "table": "final_ui", "topic": "joined", "delivery": "exactly_once", "state": "writing"}
    more = {"branchesTopic": "branches-eu-west-1", "sources": ["users", "accounts", "branches"], "sinks": [sink]}
    for name, value in {
        **more,
        "usersTopic": "users-2026-11",
        "accountsTopic": "accounts-replayed",
        "lag": 12_345,
    }.items():
        monkeypatch.setitem(STATUS, name, value)
    cut = """[...document.querySelectorAll("#stats dd, #stats dt")]
      .filter((word) => word.checkVisibility() && word.scrollWidth > word.clientWidth + 1)
      .map((word) => word.textContent)"""
    for viewport in (MEDIUM, {"width": 1440, "height": 900}, PHONE):
        with site.visit(viewport=viewport) as visit:
            visit.wait_for_rows()
            if viewport is PHONE:
                visit.page.locator("#stats-toggle").click()
            expect(visit.page.locator("#stats .sinks dd")).to_have_text("up to date")
            assert visit.page.evaluate(cut) == []
            fits = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
            visit.wait_for(fits, "the page to fit")


def test_empty_table_says_why_it_is_empty(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATUS, "ready", False)
    monkeypatch.setitem(STATUS, "reason", "Kafka at localhost:9092 does not answer")
    with filled(tmp_path) as filling, serving(create_app(patient(filling.database))) as url:
        filling.swap()
        with visiting(browser, url) as visit:
            page = visit.open()
            expect(page.locator("#empty")).to_have_text("No rows yet: Kafka at localhost:9092 does not answer.")
            monkeypatch.delitem(STATUS, "ready")
            expect(page.locator("#empty")).to_have_text("No rows yet. They appear here as records arrive.")
            page.locator("#tables [data-table='join_quality']").click()
            expect(page.locator("#panel")).to_be_visible()
            expect(page.locator("#filter")).to_be_hidden()


@contextmanager
def other_site() -> Iterator[tuple[str, list[bytes]]]:
    """A site of another origin, whose page is what the list has."""
    content: list[bytes] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"".join(content))

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", content
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _at(page: Page, url: str, html: str, content: list[bytes]) -> None:
    content[:] = [html.encode()]
    page.goto(url)


def test_named_site_shows_a_table_or_a_chart_alone_and_no_other_site_does(browser: Browser, tmp_path: Path) -> None:
    with filled(tmp_path) as filling, other_site() as (named, content), other_site() as (stranger, strange):
        app = create_app(patient(filling.database, embed_origins=[named]))
        with serving(app) as url, visiting(browser, url) as visit:
            page = visit.open("#table=final_ui&where=age>0")
            visit.wait_for_rows("u")
            page.get_by_role("button", name="Views").click()
            page.get_by_role("button", name="Copy frame").click()
            frame_html = page.evaluate("navigator.clipboard.readText()")
            context = browser.new_context()
            context.set_default_timeout(PATIENCE_SECONDS * 1000)
            try:
                outer = context.new_page()
                _at(outer, named, frame_html, content)
                inner = outer.frame_locator("iframe")
                expect(inner.locator("#grid .ag-row")).to_have_count(2)
                expect(inner.locator("#table-name")).to_be_visible()
                for gone in ("#top", "#tables", "#side", "#filter", "#chart"):
                    expect(inner.locator(gone)).to_be_hidden()
                whole = inner.get_by_role("link", name="Open in Turnout")
                expect(whole).to_have_attribute("href", "/#table=final_ui&where=age%3E0")
                chart = '{"kind":"bars","by":"accountType","value":"count"}'
                frame = f"<iframe src='{url}/?embed=1#table=final_ui&chart={chart}'></iframe>"
                _at(outer, named, frame, content)
                expect(inner.locator("#chart-plot canvas")).to_be_visible()
                for gone in ("#grid", "#chart-form", "#top", "#side"):
                    expect(inner.locator(gone)).to_be_hidden()
                # Neither another site, nor the page with its swap form.
                for site, page_html, sent in (
                    (stranger, frame_html, strange),
                    (named, frame_html.replace("embed=1", "x=1"), content),
                ):
                    with outer.expect_console_message(lambda said: "frame-ancestors" in said.text):
                        _at(outer, site, page_html, sent)
                    expect(inner.locator("#app")).to_have_count(0)
            finally:
                context.close()
