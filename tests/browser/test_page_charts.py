"""Charts beside the rows, links and saved views in a real browser, over a real server and real batches and swaps."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from page_visit import FAINT, NAMELESS, PHONE, Visit, wait_until
from visited_site import VIEWER, Asked, account, asked, user

LINE = {"kind": "line", "by": "accountType", "value": "count", "minutes": 5}
FITS = "document.documentElement.scrollWidth === document.documentElement.clientWidth"

# Whether the canvas has ink of the colour that swaps are marked with.
_MARKED = """() => {
  const canvas = document.querySelector("#chart-plot canvas");
  const probe = document.createElement("i");
  probe.style.color = getComputedStyle(document.documentElement).getPropertyValue("--mark");
  document.body.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let found = 0;
  for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) found += 1;
  return found > 20;
}"""


_COLOURS = """() => Object.fromEntries([...document.querySelectorAll("#chart-legend li")]
  .map((item) => [item.querySelector("span").textContent, item.dataset.line]))"""

# No new numbers come: what is drawn already takes the colours of another theme, too.
BARS_HAVE_THEIR_COLOUR = """() => {
  const canvas = document.querySelector("#chart-plot canvas");
  const pen = new OffscreenCanvas(1, 1).getContext("2d");
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--chart-1");
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let painted = 0;
  for (let i = 0; i < data.length; i += 4) painted += data[i] === red && data[i + 1] === green && data[i + 2] === blue;
  return painted > 100;
}"""


@pytest.fixture(scope="module")
def site(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    with asked(tmp_path_factory.mktemp("charts"), browser) as running:
        yield running


def shows(visit: Visit, site: Asked, **query: str) -> None:
    """Wait until the chart's numbers are those that the server answers now."""
    wait_until(lambda: visit.chart_numbers() == site.summary(**query), what=f"the numbers of {query}")


def title(page: Page, text: str) -> None:
    expect(page.locator("#chart-title")).to_have_text(text)


def test_chart_is_there_at_one_click_and_follows_data_filter_and_swap(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.get_by_role("button", name="Chart").click()
    title(page, "number of rows by accountType")
    shows(visit, site, by="accountType", sort="-count")
    visit.watch_chart()
    site.filling.batch(accounts=[account(number, "bronze") for number in range(10)])
    wait_until(lambda: visit.chart_numbers().get("bronze") == ["10"], what="a new group")
    page.locator("#where").fill("age < 30")
    shows(visit, site, by="accountType", sort="-count", where="age<30")
    expect(page.locator("#total")).to_have_text("40 rows")
    site.fill(120)
    shows(visit, site, by="accountType", sort="-count", where="age<30")
    assert "bronze" not in visit.chart_numbers()
    page.get_by_role("combobox", name="value", exact=True).select_option("avg")
    page.get_by_role("combobox", name="of", exact=True).select_option("age")
    title(page, "average of age by accountType")
    wait_until(lambda: "accountType" in page.locator("#chart-table thead").inner_text(), what="the table")
    expect(page.locator("#chart-table thead")).to_contain_text("avg(age)")
    visit.wait_for("window.chartProbe.frames > 5", "some frames")
    assert visit.chart_frames()["empty"] == 0, visit.chart_frames()


def test_histogram_has_steps_that_fit_or_that_somebody_gives(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.get_by_role("button", name="Chart").click()
    title(page, "number of rows by accountType")
    page.get_by_text("Histogram").click()
    title(page, "number of rows by age in steps of 5")
    by_five = site.summary(by="age:5")
    first = next(iter(by_five))
    wait_until(lambda: visit.chart_numbers().get(f"{first} – {int(first) + 5}") == by_five[first], what="the bins")
    page.get_by_role("textbox", name="steps of").fill("10x")
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="steps of")).to_have_attribute("aria-invalid", "true")
    page.get_by_role("textbox", name="steps of").fill("10")
    page.keyboard.press("Enter")
    title(page, "number of rows by age in steps of 10")
    bins = {f"{low} – {int(low) + 10}": values for low, values in site.summary(by="age:10").items()}
    wait_until(lambda: visit.chart_numbers() == bins, what="wider bins")
    page.get_by_role("combobox", name="by", exact=True).select_option("balance")
    expect(page.locator("#chart-title")).to_contain_text("by balance in steps of")
    expect(page.locator("#chart-note")).to_contain_text("without balance")
    # The rows of a source are Kafka records, and have their times.
    page.locator("#tables [data-table='users_ui']").click()
    expect(page.locator("#chart")).to_be_visible()
    expect(page.locator("#chart-title")).to_contain_text("number of rows by")
    page.get_by_text("Histogram").click()
    expect(page.locator("#chart-by option[value='_time']")).to_have_count(1)
    page.get_by_role("combobox", name="by", exact=True).select_option("_time")
    expect(page.locator("#chart-title")).to_contain_text("time of the record in steps of")
    expect(page.locator("#chart-table tbody tr").first).to_contain_text("2026-01-01")


def test_line_over_time_begins_before_its_viewer_and_marks_swaps(site: Asked) -> None:
    with site.visit(place={"table": "final_ui", "chart": LINE}) as visit:
        title(visit.page, "number of rows by accountType, last 5 minutes")
        wait_until(lambda: len(visit.chart_numbers()) > 0, what="the first point")
        visit.watch_chart()
        site.fill(80)
        marked = visit.page.locator("#chart-table td", has_text=re.compile("^generation"))
        expect(marked).to_have_count(1)
        visit.wait_for(_MARKED, "the mark of the swap")
        assert visit.chart_frames()["empty"] == 0, visit.chart_frames()
        expect(visit.page.locator("#chart-legend li").first).to_contain_text("silver")
        before = visit.page.evaluate(_COLOURS)
        kinds = ["platinum"] * 30 + ["bronze"] * 5
        accounts = [account(number, kind) for number, kind in enumerate(kinds)]
        site.filling.swap(users=[user(number) for number in range(40)], accounts=accounts)
        expect(visit.page.locator("#chart-legend li").first).to_contain_text("platinum")
        after = visit.page.evaluate(_COLOURS)
        assert {name: after[name] for name in before} == before, "lines keep their colours"
        assert len(set(after.values())) == len(after) > len(before)
        expect(marked).to_have_count(2)
        generation = marked.first.inner_text()
        # Somebody who comes later sees what was before.
        with site.visit(VIEWER, {"table": "final_ui", "chart": LINE}) as later:
            marked = later.page.locator("#chart-table td", has_text=re.compile("^generation"))
            expect(marked.first).to_have_text(generation)
            later.wait_for(_MARKED, "the mark of the swap")
        site.fill(80)


def test_link_shows_the_same_in_another_browser(site: Asked) -> None:
    place = {
        "table": "final_ui",
        "where": "age >= 30",
        "sort": [["age", True]],
        "hidden": ["email"],
        "chart": {"kind": "histogram", "by": "age", "width": "10", "value": "sum", "of": "balance"},
    }
    with site.visit(place=place) as visit:
        visit.wait_for_rows()
        visit.page.get_by_role("textbox", name="steps of").fill("5")
        visit.page.keyboard.press("Enter")
        title(visit.page, "sum of balance by age in steps of 5")
        wait_until(lambda: "30 – 35" in visit.chart_numbers(), what="the bins")
        link = visit.place()
        with site.visit(VIEWER) as other:
            other.open(f"#{link}")
            title(other.page, "sum of balance by age in steps of 5")
            wait_until(lambda: other.chart_numbers() == visit.chart_numbers(), what="the same numbers")
            wait_until(lambda: other.keys() == visit.keys() != [], what="the same rows")
            expect(other.page.locator("#chips")).to_contain_text("age >= 30")
            expect(other.page.locator("#chips")).to_contain_text("1 hidden")
            assert other.place() == visit.place()


def test_wrong_chart_of_a_link_says_what_is_wrong_and_leaves_the_rows(site: Asked) -> None:
    chart = {"kind": "bars", "by": "no<b>such", "value": "count"}
    with site.visit(place={"table": "final_ui", "chart": chart}) as visit:
        visit.wait_for_rows()
        expect(visit.page.locator("#chart-problem")).to_contain_text("no<b>such")
        visit.page.get_by_role("button", name="Close the chart").click()
        expect(visit.page.locator("#chart")).to_be_hidden()
        expect(visit.page.locator("#chart-open")).to_be_focused()
        assert "chart" not in visit.place()


def test_chart_is_used_by_keyboard_and_read_without_being_seen(visit: Visit, site: Asked) -> None:
    page, press = visit.page, visit.page.keyboard.press
    press("h")
    title(page, "number of rows by accountType")
    divider = page.get_by_role("separator", name="Width of the chart")
    width = page.locator("#chart").evaluate("(chart) => chart.clientWidth")
    divider.press("ArrowLeft")
    expect(divider).to_have_attribute("aria-valuenow", "50")
    assert page.locator("#chart").evaluate("(chart) => chart.clientWidth") > width
    page.get_by_role("radio", name="Bars").focus()
    press("ArrowRight")
    expect(page.get_by_role("radio", name="Histogram")).to_be_focused()
    title(page, "number of rows by age in steps of 5")
    press("ArrowLeft")
    title(page, "number of rows by accountType")
    press("Tab")
    expect(page.locator("#chart-numbers")).to_be_focused()
    press("Enter")
    expect(page.get_by_role("table", name="number of rows by accountType")).to_be_visible()
    shows(visit, site, by="accountType", sort="-count")
    expect(page.locator("#chart-plot")).to_be_hidden()
    press("Enter")
    expect(page.get_by_role("img", name=re.compile("number of rows by accountType"))).to_be_visible()
    press("h")
    expect(page.locator("#chart")).to_be_hidden()


def test_chart_is_readable_in_both_themes_and_fits_a_phone(site: Asked) -> None:
    with site.visit(place={"table": "final_ui", "chart": LINE}, reduced_motion="reduce") as visit:
        wait_until(lambda: len(visit.chart_numbers()) > 0, what="the numbers")
        for _ in visit.in_both_themes():
            visit.wait_for_none(FAINT)
            visit.wait_for_none(NAMELESS)
            visit.page.locator("#views").click()
            visit.wait_for_none(FAINT)
            visit.page.keyboard.press("Escape")
            expect(visit.page.locator("#popover")).to_be_hidden()
    place = {"table": "final_ui", "chart": "auto"}
    with site.visit(place=place, viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        wait_until(lambda: len(visit.chart_numbers()) > 0, what="the numbers")
        for _ in visit.in_both_themes():
            visit.wait_for(FITS, "the page to fit")
            visit.wait_for(
                "document.querySelector('#chart-plot').getBoundingClientRect().height > 90", "room for the chart"
            )
            visit.wait_for("document.querySelector('#grid').getBoundingClientRect().height > 120", "room for the rows")
            visit.wait_for(BARS_HAVE_THEIR_COLOUR, "bars in the colour of the theme")


# -- saved views


def save_view(page: Page, name: str) -> None:
    page.get_by_role("button", name="Views").click()
    page.get_by_label("Name of this view").fill(name)
    page.get_by_role("button", name="Save view").click()
    expect(page.locator("#popover")).to_be_hidden()


def test_view_of_an_operator_is_for_everybody_and_of_a_viewer_for_this_browser(visit: Visit, site: Asked) -> None:
    page = visit.page
    page.get_by_role("button", name="Chart").click()
    title(page, "number of rows by accountType")
    page.locator("#where").fill("age >= 40")
    page.locator("#columns").click()
    page.get_by_role("checkbox", name="email").uncheck()
    page.keyboard.press("Escape")
    for filtered in ("age >= 40", "1 hidden"):
        expect(page.locator("#chips")).to_contain_text(filtered)
    save_view(page, "over <40>")
    place = visit.place()
    with site.visit(VIEWER) as other:
        other.wait_for_rows()
        shared = other.page.get_by_role("list", name="On the server")
        other.page.get_by_role("button", name="Views").click()
        expect(other.page.get_by_role("button", name="Remove the view over <40>")).to_have_count(0)
        shared.get_by_role("button", name="over <40>").click()
        title(other.page, "number of rows by accountType")
        wait_until(lambda: other.place() == place, what="the place of the view")
        other.page.locator("#where").fill("age >= 60")
        expect(other.page.locator("#chips")).to_contain_text("age >= 60")
        save_view(other.page, "my own")
        other.page.reload()
        other.open("#table=users_ui")
        other.wait_for_rows()
        other.page.get_by_role("button", name="Views").click()
        other.page.get_by_role("list", name="In this browser").get_by_role("button", name="my own final_ui").click()
        expect(other.page.locator("#where")).to_have_value("age >= 60")
        expect(other.page.locator("#table-name")).to_have_text("final_ui")
        other.page.get_by_role("button", name="Views").click()
        other.page.get_by_role("button", name="Remove the view my own").click()
        expect(other.page.get_by_role("list", name="In this browser")).to_have_count(0)
        assert other.page.evaluate("localStorage.length") == 0
    page.get_by_role("button", name="Views").click()
    expect(page.get_by_role("list", name="In this browser")).to_have_count(0)
    page.get_by_role("button", name="Remove the view over <40>").click()
    expect(page.locator("#popover")).to_contain_text("No view is saved yet")


def test_chart_stays_open_for_the_next_table(visit: Visit, site: Asked) -> None:
    page = visit.page
    site.filling.batch(users=[{**user(0), "name": "Changed"}])
    page.get_by_role("button", name="Chart").click()
    title(page, "number of rows by accountType")
    page.locator("#tables [data-table='accounts_ui']").click()
    expect(page.locator("#table-name")).to_have_text("accounts_ui")
    title(page, "number of rows by accountType")
    wait_until(lambda: "null" not in visit.chart_numbers(), what="the numbers of accounts alone")
    page.locator("#tables [data-table='join_quality']").click()
    expect(page.locator("#panel")).to_be_visible()
    expect(page.locator("#chart-problem")).to_be_hidden()
