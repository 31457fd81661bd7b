"""A table of ten million rows in a real browser: every row is painted as well as the first, and can be reached."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from fake_orchestrator import STATUS
from http_server import application, serving, small_store
from page_visit import Visit, visiting, wait_until

ROWS = 10_000_000
ALIKE = 20
"""So many rows look different; then they repeat, so that their pictures can be compared."""

BAR = ".ag-body-vertical-scroll-viewport"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with small_store(tmp_path_factory.mktemp("long")) as database, serving(application(database)) as address:
        yield address


@pytest.fixture
def visit(browser: Browser, url: str) -> Iterator[Visit]:
    # A size of its own: the tab is kept for these tests, and no others.
    with visiting(browser, url, viewport={"width": 1300, "height": 861}) as tab:
        tab.page.route_web_socket("**/*", answer)
        tab.open("#table=users_ui")
        tab.wait_for_rows("u")
        yield tab


def answer(socket: WebSocketRoute) -> None:
    """Be the WebSocket of a server with a table of computed rows: to store and sort so many takes minutes."""

    def send(message: dict[str, Any]) -> None:
        socket.send(json.dumps(message))

    def answered(text: str | bytes) -> None:
        asked = json.loads(text)
        if asked["type"] == "status":
            send({"type": "status", "id": asked["id"], "status": STATUS})
        elif asked["type"] == "window":
            total = ROWS if asked["table"] == "users_ui" else 0
            rows = (
                range(min(total, asked["offset"]), min(total, asked["offset"] + asked["limit"])) if total else range(0)
            )
            send(
                {
                    "type": "rows",
                    **{name: asked[name] for name in ("id", "table")},
                    "generation": 1,
                    "version": 1,
                    "total": total,
                    "offset": rows.start,
                    "columns": [{"name": name, "type": "string"} for name in ("userId", "name")],
                    "ids": [str(row) for row in rows],
                    "rows": [[f"u{row}", f"Name {row % ALIKE}"] for row in rows],
                }
            )

    socket.on_message(answered)
    send({"type": "hello", "server": "0", "store": "s", "role": "operator", "sql": True})


def shown(visit: Visit) -> list[int]:
    """The keys of the rows that are wholly on the screen, from the top down; none while one of them is waited for."""
    found = visit.page.evaluate(
        """() => {
          const grid = document.querySelector("#grid").getBoundingClientRect();
          return [...document.querySelectorAll("#grid .ag-row")]
            .map((row) => [row.getBoundingClientRect().top, row.querySelector(".ag-cell").textContent])
            .filter(([top]) => top >= grid.top + 36 && top + 29 <= grid.bottom)
            .sort(([one], [other]) => one - other)
            .map(([, text]) => text);
        }"""
    )
    return [] if "" in found else [int(text[1:]) for text in found]


def wait_for(visit: Visit, first: int | None = None, last: int | None = None) -> list[int]:
    """Wait until every row on the screen is there, one after the other, from `first` on or up to `last`."""
    seen: list[int] = []

    def is_there() -> bool:
        seen[:] = shown(visit)
        if not seen or seen != list(range(seen[0], seen[-1] + 1)):
            return False
        return first in (None, seen[0]) and last in (None, seen[-1])

    wait_until(is_there, what=f"rows from {first} to {last}")
    return seen


def picture(page: Page, row: int) -> bytes:
    """The name of a row, with the line below it and that above."""
    cell = page.locator("#grid .ag-row", has=page.get_by_text(f"u{row}", exact=True)).locator(".ag-cell").nth(1)
    box = cell.bounding_box()
    assert box is not None
    clip = {"x": box["x"], "y": box["y"] - 2, "width": 160, "height": 34}
    return page.screenshot(clip=clip, animations="disabled")


def test_rows_are_painted_alike_at_the_start_in_the_middle_and_at_the_end(visit: Visit) -> None:
    page = visit.page
    expect(page.locator("#total")).to_have_text(f"{ROWS:,} rows")
    first = wait_for(visit, first=0)
    at_start = {row % ALIKE: picture(page, row) for row in first[1:-1]}
    assert len(set(at_start.values())) == len(at_start), "each looks different"
    page.locator(BAR).evaluate("(bar) => { bar.scrollTop = (bar.scrollHeight - bar.clientHeight) / 2; }")
    wait_until(lambda: shown(visit)[:1] > [ROWS // 2 - 100], what="the middle")
    middle = wait_for(visit)
    assert middle[0] < ROWS // 2 < middle[-1]
    page.locator(BAR).evaluate("(bar) => { bar.scrollTop = bar.scrollHeight; }")
    end = wait_for(visit, last=ROWS - 1)
    expect(page.locator("#range")).to_contain_text(f"–{ROWS:,} of {ROWS:,}")
    page.mouse.move(0, 0)
    for rows in (end, middle):
        if rows is middle:
            page.locator(BAR).evaluate("(bar) => { bar.scrollTop = (bar.scrollHeight - bar.clientHeight) / 2; }")
            wait_for(visit, first=middle[0])
        compared = [row for row in rows[1:-1] if row % ALIKE in at_start]
        assert len(compared) > 5
        for row in compared:
            assert picture(page, row) == at_start[row % ALIKE], f"row {row}"


def test_rows_are_drawn_that_are_scrolled_to_right_after_the_bar(visit: Visit) -> None:
    page = visit.page
    page.locator("#grid .ag-row .ag-cell").first.click()
    page.keyboard.press("End")
    end = wait_for(visit, last=ROWS - 1)
    # AG Grid follows the bar or the rows, whichever scrolled first, until neither has scrolled for a while.
    page.evaluate(
        """async (bar) => {
          await new Promise((done) => setTimeout(done, 1000));
          document.querySelector(bar).dispatchEvent(new Event("scroll"));
          document.querySelector("#grid .ag-grid-viewport").scrollTop = 29 * 30;
        }""",
        BAR,
    )
    wait_until(lambda: bool(shown(visit)) and shown(visit)[-1] < end[0] - 1_000_000, what="rows nearer to the start")
    focused = page.locator("#grid .ag-row", has=page.locator(":focus"))
    row = wait_for(visit)[0]
    wait_until(lambda: bool(focused.count()) and f"u{row}" in str(focused.text_content()), what="the focus in the rows")


def test_every_row_is_reached_by_wheel_and_by_keys(visit: Visit) -> None:
    page, press = visit.page, visit.page.keyboard.press
    page.locator("#grid .ag-row .ag-cell").first.click()
    press("End")
    end = wait_for(visit, last=ROWS - 1)
    expect(page.locator("#grid .ag-cell:focus")).to_have_text(f"Name {(ROWS - 1) % ALIKE}")
    press("ArrowUp")
    expect(page.locator("#grid .ag-row", has=page.locator(":focus"))).to_contain_text(f"u{ROWS - 2}")
    expect(page.locator("#grid .ag-row", has=page.locator(":focus"))).to_have_attribute("aria-rowindex", str(ROWS))
    page.mouse.wheel(0, -300)
    wait_for(visit, last=ROWS - 11)
    # Far from the ends, where the places end before the table does.
    page.locator("#grid .ag-grid-viewport").evaluate("(rows) => { rows.scrollTop = 29 * 30; }")
    wait_until(lambda: bool(shown(visit)) and shown(visit)[-1] < end[0], what="rows nearer to the start")
    before = wait_for(visit)
    assert before[0] > 500
    page.locator("#grid").hover()
    # The first step takes other places, and may end there.
    page.mouse.wheel(0, -150)
    wait_until(lambda: bool(shown(visit)) and before[0] - 5 <= shown(visit)[0] < before[0], what="a step upwards")
    visit.wait_for("document.querySelector('.ag-grid-viewport').scrollTop > 1000", "room above")
    page.locator("#grid .ag-grid-viewport").evaluate("(rows) => { rows.scrollTop -= rows.scrollTop % 30; }")
    before = wait_for(visit)
    for step in range(1, 4):
        page.mouse.wheel(0, -150)
        wait_for(visit, first=before[0] - 5 * step)
    page.locator("#grid .ag-row", has=page.get_by_text(f"u{before[0] - 10}", exact=True)).locator(
        ".ag-cell"
    ).first.click()
    press("ArrowUp")
    press("Control+c")
    copied = f"u{before[0] - 11}"
    wait_until(lambda: page.evaluate("navigator.clipboard.readText()") == copied, what="the key of the row above")
    press("Enter")
    expect(page.locator("#row")).to_contain_text(copied)
    press("Escape")
    press("Home")
    wait_for(visit, first=0)
