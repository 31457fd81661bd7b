"""The page in a real browser, over a real Turnout and a real Kafka: what people see, also while it changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from page_visit import FAINT, NAMELESS, PHONE, Visit, visiting, wait_until
from turnout.local.broker import EmbeddedBroker
from turnout.testing import create_topic, produce
from turnout_process import RunningTurnout

MANY, FEW = 3_000, 60
HOSTILE_COLUMN = "x<img src=x onerror=hacked()>"
HOSTILE = [
    "<script>hacked()</script>",
    "<img src=x onerror='hacked()'>",
    '"><svg onload=hacked()>',
    "{{constructor.constructor('hacked()')()}}",
    "javascript:hacked()",
    "</title></script><iframe srcdoc='<script>parent.hacked()</script>'>",
    "\u202egnp.exe \u0000 \U0001f680 &lt;b&gt;",
]
USERS = {"ID": "string", "name": "string", "email": "string", "age": "int64", HOSTILE_COLUMN: "string"}
ACCOUNTS = {"ID": "string", "accountType": "string", "balance": "double"}


@dataclass(frozen=True)
class Site:
    """A running Turnout with three pairs of topics: the rows of each begin with a letter of its own."""

    turnout: RunningTurnout
    bootstrap: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.turnout.port}"

    def show(self, letter: str) -> None:
        """Have the rows of one pair published."""
        message = {"usersTopic": f"page-users-{letter}", "accountsTopic": f"page-accounts-{letter}", "joinType": "left"}
        answer = self.turnout.http.post("/api/control", json=message)
        assert answer.status_code == 200, answer.text

    def write(self, source: str, letter: str, *values: dict[str, Any] | str) -> None:
        produce(self.bootstrap, f"page-{source}-{letter}", values)


@pytest.fixture(scope="module")
def site(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    bootstrap = broker.bootstrap_servers
    for name in ("page-control", *(f"page-{source}-{letter}" for source in ("users", "accounts") for letter in "abh")):
        create_topic(bootstrap, name)
    for letter, number in (("a", MANY), ("b", FEW)):
        produce(bootstrap, f"page-users-{letter}", [user(letter, i) for i in range(number)])
        produce(bootstrap, f"page-accounts-{letter}", [account(letter, i) for i in range(0, number, 2)])
    produce(
        bootstrap, "page-users-h", [{"ID": "h", "name": text, "email": text, HOSTILE_COLUMN: text} for text in HOSTILE]
    )
    produce(bootstrap, "page-users-h", HOSTILE)
    sources = {
        "users": {"topic": "page-users-a", "table": "users_ui", "key": "ID", "columns": USERS},
        "accounts": {"topic": "page-accounts-a", "table": "accounts_ui", "key": "ID", "columns": ACCOUNTS},
    }
    folder = tmp_path_factory.mktemp("page")
    control = {"topic": "page-control"}
    views = {"final_ui": {"left": "users", "right": "accounts", "on": "ID"}}
    with RunningTurnout(folder, bootstrap, start="earliest", sources=sources, views=views, control=control) as turnout:
        yield Site(turnout, bootstrap)


def user(letter: str, number: int) -> dict[str, Any]:
    name = f"{letter}{number:05d}"
    return {"ID": name, "name": f"Name {number}", "email": f"{name}@example.org", "age": number % 80}


def account(letter: str, number: int) -> dict[str, Any]:
    return {"ID": f"{letter}{number:05d}", "accountType": "gold" if number % 4 else "silver", "balance": number * 1.5}


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Visit]:
    with visiting(browser, site.url) as tab:
        tab.open()
        tab.wait_for_rows()
        yield tab


@pytest.fixture
def page(visit: Visit) -> Page:
    return visit.page


@pytest.fixture
def many(site: Site) -> None:
    site.show("a")


def cell(page: Page, row: int, name: str) -> Any:
    found = column(page, name).get_attribute("col-id")
    return page.locator(f"#grid .ag-row[row-index='{row}'] [col-id='{found}']")


def choose(page: Page, table: str) -> None:
    page.locator(f"#tables [data-table='{table}']").click()
    expect(page.locator("#table-name")).to_have_text(table)
    expect(page.locator("#grid")).to_have_attribute("data-table", table)


def open_row(page: Page, place: Locator) -> None:
    """As people do: a row that comes between two clicks moves the one that was meant, so they click again."""
    row = page.locator("#row")

    def opened() -> bool:
        if not row.is_visible():
            with suppress(PlaywrightTimeoutError):
                place.dblclick(timeout=5_000)
        with suppress(AssertionError):
            expect(row).to_be_visible(timeout=2_000)
        return bool(row.is_visible())

    wait_until(opened, what="the row to open")


def sort_by(page: Page, name: str, **how: Any) -> None:
    """Sort by a column, downwards. What the first click makes anew must be there before the second."""
    for order in ("ascending", "descending"):
        column(page, name).locator(".head-sort").click(**how)
        expect(column(page, name)).to_have_attribute("aria-sort", order)


def arrow_lines(page: Page, name: str) -> tuple[float, float]:
    """Return how far the name and the arrow of a sorted column reach down; what wraps is lower, and invisible."""
    head = column(page, name)
    boxes = [head.locator(f".head-{part}").bounding_box() for part in ("sort", "order")]
    sort, order = (box["y"] + box["height"] for box in boxes if box)
    return sort, order


def column(page: Page, name: str) -> Any:
    exactly = re.compile(f"^{re.escape(name)}$")
    return page.locator(".ag-header-cell").filter(has=page.locator(".head-name", has_text=exactly))


# -- looking


@pytest.mark.usefixtures("many")
def test_page_shows_the_joined_table_its_size_and_what_it_is_made_of(visit: Visit, site: Site) -> None:
    page = visit.page
    expect(page.locator("#table-name")).to_have_text("final_ui")
    expect(page.locator("#total")).to_have_text(f"{MANY:,} rows")
    expect(page.locator("#connection")).to_have_text("live")
    stats = page.locator("#stats")
    for text in ("page-users-a", "page-accounts-a", "left", str(site.turnout.status()["generation"])):
        expect(stats).to_contain_text(text)
    names = page.locator("#tables button .table-name")
    expect(names.first).to_have_text("final_ui")
    for name in ("users_ui", "accounts_ui", "bad_records", "swaps", "control_raw"):
        expect(names.filter(has_text=re.compile(f"^{name}$"))).to_have_count(1)
    wait_until(lambda: visit.keys()[:3] == ["a00000", "a00001", "a00002"], what="the first rows")
    expect(page).to_have_title(f"final_ui · {site.turnout.status()['generation']} · Turnout")


@pytest.mark.usefixtures("many")
def test_page_shows_the_end_of_a_long_table_when_it_is_scrolled_there(visit: Visit) -> None:
    visit.page.locator(".ag-body-vertical-scroll-viewport").evaluate("(bar) => { bar.scrollTop = bar.scrollHeight; }")
    expect(visit.page.locator("#range")).to_contain_text(f"–{MANY:,} of {MANY:,}")
    visit.wait_for("!document.querySelector('#grid .waiting')", "all cells are filled")
    last = [f"a{MANY - 2:05d}", f"a{MANY - 1:05d}"]
    wait_until(lambda: visit.keys()[-2:] == last, what="the last rows")
    assert visit.page.locator("#grid .ag-row").count() < 100


@pytest.mark.usefixtures("many")
def test_page_sorts_by_several_columns_and_the_server_does_it(visit: Visit, site: Site) -> None:
    page = visit.page
    sort_by(page, "age")
    sort_by(page, "ID", modifiers=["Shift"])
    expected = [row["ID"] for row in site.turnout.rows("final_ui", sort="-age,-ID", limit=20)]
    wait_until(lambda: visit.keys()[:20] == expected, what="the order of the server")
    page.reload()
    wait_until(lambda: visit.keys()[:20] == expected, what="the same order after a reload")


@pytest.mark.usefixtures("many")
def test_narrow_sorted_column_hides_its_type_before_its_arrow(visit: Visit) -> None:
    page = visit.page
    sort_by(page, "age")
    column(page, "age").focus()
    for _ in range(10):
        page.keyboard.press("Alt+ArrowLeft")
    expect(column(page, "age").locator(".head-order")).to_have_text("▼")

    def in_line() -> bool:
        line, arrow = arrow_lines(page, "age")
        return arrow <= line

    wait_until(in_line, what="the arrow in the line of the name")


@pytest.mark.usefixtures("many")
def test_page_filters_by_column_and_by_text_and_shows_and_clears_what_is_filtered(visit: Visit) -> None:
    page = visit.page
    column(page, "age").hover()
    column(page, "age").locator(".head-filter").click()
    page.locator("#popover select").select_option("between")
    for place, value in enumerate(("10", "11")):
        page.locator("#popover input").nth(place).fill(value)
    page.keyboard.press("Enter")
    expect(page.locator("#chips")).to_contain_text("age 10 – 11")
    expect(page.locator("#total")).to_have_text("76 rows")
    page.keyboard.press("/")
    page.keyboard.type("accountType is null")
    expect(page.locator("#total")).to_have_text("38 rows")
    page.locator("#where").fill("age = old")
    expect(page.locator("#problem")).to_contain_text("'old' is not int64")
    assert visit.keys()[0] == "a00011", "what was there stays"
    page.get_by_role("button", name="Clear all").click()
    expect(page.locator("#total")).to_have_text(f"{MANY:,} rows")
    expect(page.locator("#chips")).to_be_hidden()
    expect(page.locator("#problem")).to_be_hidden()


@pytest.mark.usefixtures("many")
def test_page_hides_columns_and_copies_a_cell(page: Page) -> None:
    page.locator("#columns").click()
    page.get_by_role("checkbox", name="email").uncheck()
    expect(column(page, "email")).to_have_count(0)
    page.keyboard.press("Escape")
    cell(page, 3, "name").click()
    page.keyboard.press("Control+c")
    wait_until(lambda: page.evaluate("navigator.clipboard.readText()") == "Name 3", what="the text of the cell")


@pytest.mark.usefixtures("many")
def test_page_lets_nobody_edit_a_row(visit: Visit, site: Site) -> None:
    before = site.turnout.rows("final_ui", limit=5)
    cell(visit.page, 1, "name").dblclick()
    visit.page.keyboard.press("Escape")
    cell(visit.page, 1, "name").click()
    for key in ("F2", "Delete", "Backspace", "z", "Control+v"):
        visit.page.keyboard.press(key)
    assert visit.page.locator("#grid input, #grid textarea, #grid [contenteditable]").count() == 0
    expect(cell(visit.page, 1, "name")).to_have_text("Name 1")
    assert site.turnout.rows("final_ui", limit=5) == before


@pytest.mark.usefixtures("many")
def test_page_lights_up_the_cells_that_changed_and_no_others(visit: Visit, site: Site) -> None:
    visit.page.evaluate(
        """() => {
          window.lit = new Set();
          new MutationObserver(() => {
            for (const cell of document.querySelectorAll("#grid .ag-cell.changed")) lit.add(cell.textContent);
          }).observe(document.querySelector("#grid"), { subtree: true, attributeFilter: ["class"] });
        }"""
    )
    site.write("accounts", "a", {"ID": "a00001", "accountType": "platinum", "balance": 77.25})
    expect(cell(visit.page, 1, "accountType")).to_have_text("platinum")
    wait_until(lambda: visit.page.evaluate("lit.size") >= 2, what="two cells to light up")
    assert visit.page.evaluate("[...lit].sort()") == ["77.25", "platinum"]


def test_page_shows_a_bad_record_whole_and_join_quality_as_bars(page: Page, site: Site) -> None:
    site.show("b")
    site.write("users", "b", '{"ID": "broken", "age": {"years": 7}')
    site.write("users", "b", '{"ID": "b-odd", "age": {"years": 7}}')
    choose(page, "bad_records")
    expect(page.locator("#total")).to_have_text("2 rows")
    open_row(page, page.locator("#grid .ag-cell", has_text="age").first)
    expect(page.locator("#row pre", has_text='{\n  "ID": "b-odd"')).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#row")).to_be_hidden()
    choose(page, "join_quality")
    expect(page.locator("#panel")).to_contain_text("Left rows with a match")
    page.get_by_role("button", name="Panel").click()
    expect(page.locator("#panel")).to_be_hidden()


# -- swaps


@pytest.mark.parametrize("way", ["form", "control topic"])
def test_swap_leaves_no_empty_frame_and_never_mixes_generations(visit: Visit, site: Site, way: str) -> None:
    page = visit.page
    site.show("a")
    visit.wait_for_rows("a")
    generation = site.turnout.status()["generation"]
    # Far down, where the other table has no rows at all.
    page.locator(".ag-body-vertical-scroll-viewport").evaluate("(bar) => { bar.scrollTop = 60000; }")
    visit.wait_for("document.querySelector('#range').textContent.startsWith('Rows 2,00')", "the scroll")
    visit.wait_for("!document.querySelector('#grid .waiting')", "all cells are filled")
    visit.watch_frames()
    if way == "form":
        page.get_by_label("users topic").fill("page-users-b")
        page.get_by_label("accounts topic").fill("page-accounts-b")
        page.locator("#swap").get_by_role("button", name="Swap").click()
        expect(page.locator("#outcome")).to_contain_text("Applied")
    else:
        message = {"usersTopic": "page-users-b", "accountsTopic": "page-accounts-b"}
        produce(site.bootstrap, "page-control", [json.dumps(message)])
    visit.wait_for_rows("b")
    expect(page.locator("#stats .generation dd")).to_have_text(str(generation + 1))
    expect(page.locator("#timeline li").first).to_contain_text(f"Generation {generation + 1}")
    visit.wait_for("window.probe.frames > 5", "some frames")
    frames = visit.frames()
    assert frames["fewest"] > 10, frames
    assert frames["mixed"] == 0, frames
    assert frames["seen"] == ["a", "b"], frames
    expect(page.locator("#place")).to_contain_text(f"generation {generation + 1},")


def test_chart_moves_with_the_data_and_through_a_swap_without_an_empty_frame(visit: Visit, site: Site) -> None:
    def by_kind() -> dict[str, list[str]]:
        answer = site.turnout.get("/api/tables/final_ui/summary?by=accountType&sort=-count")
        return {
            str(group["accountType"]).replace("None", "null"): [f"{group['count']:,}"] for group in answer["groups"]
        }

    page = visit.page
    site.show("a")
    visit.wait_for_rows("a")
    page.get_by_role("button", name="Chart").click()
    expect(page.locator("#chart-title")).to_have_text("number of rows by accountType")
    wait_until(lambda: visit.chart_numbers() == by_kind(), what="the numbers of the chart")
    visit.watch_chart()
    site.write("accounts", "a", {"ID": "a00003", "accountType": "bronze", "balance": 1.0})
    wait_until(lambda: "bronze" in visit.chart_numbers(), what="a new group")
    site.show("b")
    visit.wait_for_rows("b")
    wait_until(lambda: "bronze" not in visit.chart_numbers(), what="the numbers of the other generation")
    assert visit.chart_numbers() == by_kind()
    visit.wait_for("window.chartProbe.frames > 5", "some frames")
    assert visit.chart_frames()["empty"] == 0, visit.chart_frames()


@pytest.mark.usefixtures("many")
def test_topic_that_is_no_source_is_looked_at_and_nothing_that_it_says_is_obeyed(page: Page) -> None:
    page.locator("#example-open").click()
    for topic, name in (("page-users-h", HOSTILE_COLUMN), ("page-accounts-b", "accountType")):
        page.locator("#example-topic").select_option(topic)
        expect(page.locator("#example-said")).to_contain_text(f"{topic} has ")
        expect(page.locator("#example-columns")).to_contain_text(name)
    expect(page.locator("#example-yaml")).to_contain_text("topic: page-accounts-b")
    expect(page.locator("#example-yaml")).to_contain_text("right: [accounts, users]")
    assert page.evaluate("typeof hacked") == "undefined"


def test_swap_form_completes_topics_tries_without_swapping_and_rolls_back(page: Page, site: Site) -> None:
    site.show("b")
    site.show("a")
    generation = site.turnout.status()["generation"]
    expect(page.get_by_label("users topic")).to_have_value("page-users-a")
    page.get_by_label("users topic").focus()
    expect(page.locator("#topic-names option[value='page-users-b']")).to_have_count(1)
    page.get_by_label("users topic").fill("page-users-b")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#outcome")).to_contain_text("this would work")
    expect(page.locator("#outcome")).to_contain_text("users: page-users-a → page-users-b")
    page.get_by_label("users topic").fill("no-such-topic")
    page.locator("#swap").get_by_role("button", name="Swap").click()
    expect(page.locator("#outcome")).to_contain_text("refused")
    expect(page.locator("#outcome .hint")).not_to_be_empty()
    expect(page.locator("#outcome a")).to_have_attribute("href", "/docs/reference/errors.html#unknown_topic")
    assert site.turnout.status()["generation"] == generation
    expect(page.locator("#rollback-to")).to_contain_text("users=page-users-b")
    page.get_by_role("button", name="Roll back").click()
    expect(page.locator("#outcome")).to_contain_text("Rolled back")
    expect(page.locator("#stats")).to_contain_text("page-users-b")
    choose(page, "control_raw")
    expect(page.locator("#grid .is-rejected").first).to_have_text("rejected")


def test_swap_is_reviewed_beside_what_is_shown_discarded_and_published(page: Page, visit: Visit, site: Site) -> None:
    site.show("a")
    visit.wait_for_rows("a")
    shown = site.turnout.status()["generation"]
    for decision in ("Discard", "Publish"):
        page.get_by_label("users topic").fill("page-users-b")
        page.locator("#swap").get_by_role("button", name="Review", exact=True).click()
        expect(page.get_by_role("button", name=decision, exact=True)).to_be_visible()
        expect(page.locator("#review-asked")).to_have_text("users: page-users-a → page-users-b")
        made = site.turnout.status()["candidate"]["generation"]
        rows = site.turnout.get(f"/api/tables/users_ui@{made}/rows?limit=1")["total"]
        figures = page.locator("#review-tables tr", has=page.get_by_role("button", name="users_ui", exact=True))
        expect(figures.locator("td").nth(1)).to_have_text(f"{rows}")
        expect(figures.locator("td").nth(2)).to_have_text(f"+{rows}")
        page.get_by_role("button", name="users_ui", exact=True).click()
        for _ in range(2):
            page.locator("#review-table").get_by_role("button", name="ID").click()
        page.locator("#review-changes").get_by_text("added").click()
        expect(page.locator("#review-table")).to_contain_text("b00000")
        expect(page.locator("#review-table tbody tr")).to_have_count(rows)
        assert site.turnout.status()["generation"] == shown
        page.get_by_role("button", name=decision, exact=True).click()
        if decision == "Discard":
            expect(page.locator("#review-said")).to_contain_text("is no longer a candidate")
            page.get_by_role("button", name="Look at users_ui").click()
            visit.wait_for_rows("a")
    expect(page.locator("#review-said")).to_contain_text("is published: all tables show it now")
    page.get_by_role("button", name="Look at users_ui").click()
    visit.wait_for_rows("b")
    assert site.turnout.status()["generation"] > shown


# -- other people's text, small screens, the keyboard


def test_hostile_texts_are_only_texts(visit: Visit, site: Site) -> None:
    page = visit.page
    page.evaluate("() => { window.hacks = 0; window.hacked = () => { window.hacks += 1; }; }")
    elements = "document.querySelectorAll('script, iframe, svg[onload], img').length"
    before = page.evaluate(elements)
    site.show("h")
    visit.wait_for_rows("h")
    expect(column(page, HOSTILE_COLUMN)).to_be_visible()
    for place, text in enumerate(HOSTILE[:5]):
        expect(cell(page, place, "name")).to_have_text(text)
    open_row(page, cell(page, 1, "name"))
    expect(page.locator("#row")).to_contain_text(HOSTILE[1])
    page.keyboard.press("Escape")
    column(page, HOSTILE_COLUMN).locator(".head-filter").evaluate("(button) => button.click()")
    page.locator("#popover input").fill(HOSTILE[1])
    page.keyboard.press("Enter")
    expect(page.locator("#total")).to_have_text("1 row")
    expect(page.locator("#chips")).to_contain_text(HOSTILE[1])
    page.locator("#where").fill(f'name = "{HOSTILE[1]}", {HOSTILE[0]}')
    expect(page.locator("#problem")).to_be_visible()
    page.get_by_label("users topic").fill(HOSTILE[1])
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("#outcome")).to_contain_text("refused")
    for table in ("bad_records", "control_raw", "orchestrator_logs"):
        page.keyboard.press("Escape")
        choose(page, table)
        open_row(page, page.locator("#grid .ag-row .ag-cell").first)
    visit.open("#table=" + HOSTILE[0])
    expect(page.locator("#problem")).to_contain_text("<script>")
    assert page.evaluate(elements) == before
    assert page.evaluate("window.hacks ?? 0") == 0


def test_page_fits_a_phone_in_both_themes(browser: Browser, site: Site) -> None:
    site.show("b")
    with visiting(browser, site.url, viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        page = visit.open()
        visit.wait_for_rows("b")
        fits = "document.documentElement.scrollWidth === document.documentElement.clientWidth"
        for _ in visit.in_both_themes():
            visit.wait_for(fits, "the page to fit")
            page.get_by_role("button", name="Status", exact=True).click()
            expect(page.locator("#stats")).to_contain_text("page-users-b")
            visit.wait_for(fits, "the page to fit")
            page.get_by_role("button", name="Status", exact=True).click()
            visit.wait_for("document.querySelector('#grid').getBoundingClientRect().height > 300", "room for the grid")
            page.locator("#side-toggle").click()
            expect(page.get_by_label("users topic")).to_be_in_viewport()
            visit.wait_for(fits, "the page to fit")
            page.locator("#side-close").click()
        choose(page, "join_quality")
        expect(page.locator("#panel")).to_be_visible()
        for _ in visit.in_both_themes():
            visit.wait_for(fits, "the page to fit")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_enough_contrast_and_controls_have_names(browser: Browser, site: Site, scheme: Any) -> None:
    site.show("b")
    with visiting(browser, site.url, color_scheme=scheme, reduced_motion="reduce") as visit:
        page = visit.open()
        visit.wait_for_rows("b")
        visit.wait_for_none(FAINT)
        visit.wait_for_none(NAMELESS)
        for role in ("banner", "navigation", "main", "complementary"):
            expect(page.get_by_role(role).first).to_be_attached()
        page.locator("#theme").click()
        other = "light" if scheme == "dark" else "dark"
        expect(page.locator("html")).to_have_attribute("data-theme", other)
        visit.wait_for_none(FAINT)
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", other)


@pytest.mark.usefixtures("many")
def test_page_is_used_by_keyboard_alone(visit: Visit, site: Site) -> None:
    page = visit.page
    press = page.keyboard.press
    page.keyboard.type("?")
    expect(page.locator("#help")).to_be_visible()
    expect(page.locator("#help")).to_contain_text("leave the rows")
    press("Escape")
    page.keyboard.type("/age = 7")
    press("Enter")
    expect(page.locator("#total")).to_have_text("38 rows")
    press("ArrowDown")
    expect(page.locator("#grid .ag-row[row-index='0'] .ag-cell").first).to_be_focused()
    press("ArrowDown")
    press("Control+ArrowRight")
    expect(cell(page, 1, "balance")).to_be_focused()
    press("Enter")
    expect(page.locator("#row")).to_contain_text("a00087@example.org")
    press("Escape")
    expect(cell(page, 1, "balance")).to_be_focused()
    press("ArrowUp")
    press("ArrowUp")
    press("Enter")
    expect(column(page, "balance")).to_have_attribute("aria-sort", "ascending")
    for _ in range(3):
        press("ArrowLeft")
    page.keyboard.type("f")
    expect(page.locator("#popover")).to_be_visible()
    page.keyboard.type("Name 8")
    press("Enter")
    expect(page.locator("#chips")).to_contain_text("name contains Name 8")
    page.keyboard.type("x")
    expect(page.locator("#total")).to_have_text(f"{MANY:,} rows")
    page.keyboard.type("t")
    press("ArrowDown")
    press("Enter")
    expect(page.locator("#table-name")).to_have_text("accounts_ui")
    page.keyboard.type("s")
    expect(page.get_by_label("accounts topic")).to_be_focused()
    press("Tab")
    page.keyboard.type("page-users-b")
    press("Enter")
    expect(page.locator("#outcome")).to_contain_text("Applied")
    assert site.turnout.status()["usersTopic"] == "page-users-b"


# -- last, because it ends the server


def test_killed_server_is_said_its_data_stays_and_it_comes_back(visit: Visit, site: Site) -> None:
    page = visit.page
    site.show("b")
    visit.wait_for_rows("b")
    visit.watch_frames()
    site.turnout.kill()
    expect(page.locator("#banner")).to_contain_text("does not answer")
    expect(page.locator("#banner")).to_contain_text("again")
    expect(page.locator("#said")).to_contain_text("does not answer")
    expect(page.locator("#connection")).to_have_text("away")
    expect(page).to_have_title("away · final_ui · " + page.locator("#stats .generation dd").inner_text() + " · Turnout")
    assert visit.keys()[0] == "b00000"
    site.turnout.start()
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("#banner")).to_be_hidden()
    assert visit.frames()["fewest"] > 0, "the last data was shown all the time"
    site.write("users", "b", {**user("b", 7_777), "ID": "b-after"})
    page.locator("#where").fill("ID = b-after")
    expect(page.locator("#total")).to_have_text("1 row")
