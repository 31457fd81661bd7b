"""Widgets of notebooks in a real browser, over the real server: what people see of a live table and a live chart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from filled_store import GOLD_1, USER_1, USER_2, Filling
from turnout.plan.joins import Join
from turnout_client import Client
from widget_page import WidgetPage, showing

HOSTILE = "<img src=x onerror='hacks += 1'><script>hacks += 1</script>"
SILVER_2 = {"userId": "u2", "accountType": "silver", "balance": -2.5}


@pytest.fixture
def notebook(browser: Browser) -> Iterator[WidgetPage]:
    with showing(browser) as page:
        yield page


def rows(notebook: WidgetPage, view: str) -> list[list[str]]:
    """The texts of all cells, row by row."""
    found: list[list[str]] = notebook.page.locator(f"{view} tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    return found


def wait_for_rows(notebook: WidgetPage, view: str, *wanted: list[str]) -> None:
    notebook.wait_for(lambda: rows(notebook, view) == list(wanted), what=f"{wanted}")


# Every cell that lights up from now on, however short.
_NOTE_FLASHES = """() => {
  window.lit = [];
  const animate = Element.prototype.animate;
  Element.prototype.animate = function (...how) { lit.push(this.textContent); return animate.apply(this, how); };
}"""


def test_table_shows_rows_lights_up_changes_and_follows_a_swap(
    notebook: WidgetPage, client: Client, filling: Filling
) -> None:
    page = notebook.page
    view = notebook.show(client.table("final_ui").widget(columns="name,age,accountType,balance", sort="name"))
    wait_for_rows(notebook, view, ["Ada", "36", "gold", "10.5"], ["Ben", "52", "null", "null"])
    assert page.locator(f"{view} thead th").all_inner_texts() == ["name", "age", "accountType", "balance"]
    head = page.locator(f"{view} .turnout-head")
    for text in ("final_ui", "2 rows", "generation 1", "live"):
        expect(head).to_contain_text(text)

    page.evaluate(_NOTE_FLASHES)
    filling.batch(accounts=[{**GOLD_1, "accountType": "platinum"}])
    wait_for_rows(notebook, view, ["Ada", "36", "platinum", "10.5"], ["Ben", "52", "null", "null"])

    assert page.evaluate("lit") == ["platinum"], "the cell that changed, and no other"
    filling.swap(join=Join.INNER, users=[USER_1, USER_2], accounts=[SILVER_2])
    wait_for_rows(notebook, view, ["Ben", "52", "silver", "-2.5"])
    expect(head).to_contain_text("1 row")
    expect(head).to_contain_text("generation 2")
    assert page.evaluate("lit") == ["platinum"], "a swap lights nothing up"


def test_table_shows_html_of_a_record_as_text(notebook: WidgetPage, client: Client, filling: Filling) -> None:
    page = notebook.page
    page.evaluate("() => { window.hacks = 0; }")
    filling.batch(users=[{**USER_1, "userId": HOSTILE, "name": HOSTILE, "email": HOSTILE}])
    where = [{"column": "userId", "op": "=", "value": HOSTILE}]
    table = notebook.show(client.table("users_ui").widget(columns="name", where=where))
    chart = notebook.show(client.table("users_ui").chart(by="name", where=where, history=60))
    wait_for_rows(notebook, table, [HOSTILE])
    wait_for_rows(notebook, chart, [HOSTILE, "1"])
    assert page.evaluate("document.querySelectorAll('img, script').length") == 0
    assert page.evaluate("window.hacks") == 0


def test_chart_has_bars_from_zero_and_numbers_of_all_groups(
    notebook: WidgetPage, client: Client, filling: Filling
) -> None:
    widget = client.table("final_ui").chart(by="accountType", values="count,sum(balance)", sort="accountType")
    view = notebook.show(widget)
    wait_for_rows(notebook, view, ["gold", "1", "10.50"], ["null", "1", "null"])
    filling.batch(users=[{**USER_1, "userId": "u3"}], accounts=[SILVER_2, {**GOLD_1, "userId": "u3", "balance": 4.5}])
    wait_for_rows(notebook, view, ["gold", "2", "15.00"], ["silver", "1", "-2.50"])
    bars = notebook.page.locator(f"{view} i").evaluate_all("(bars) => bars.map((bar) => bar.style.cssText)")
    widths = [dict(part.split(": ") for part in bar.rstrip(";").split("; ")) for bar in bars]
    assert [one["width"] for one in widths] == ["100%", "85.7143%", "50%", "14.2857%"]
    assert [one["left"] for one in widths] == ["0%", "14.2857%", "0%", "0%"]
    filling.swap(join=Join.INNER, users=[USER_1], accounts=[GOLD_1])
    wait_for_rows(notebook, view, ["gold", "1", "10.50"])


def test_chart_with_history_draws_a_line_for_each_group(notebook: WidgetPage, client: Client, filling: Filling) -> None:
    widget = client.table("final_ui").chart(by="accountType", sort="accountType", history=60)
    view = notebook.show(widget)
    wait_for_rows(notebook, view, ["gold", "1"], ["null", "1"])
    lines = notebook.page.locator(f"{view} svg .turnout-line")
    expect(lines).to_have_count(2)
    expect(notebook.page.get_by_role("img", name="count by accountType")).to_be_visible()
    expect(notebook.page.locator(f"{view} .turnout-begin")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    filling.swap(users=[USER_1, USER_2], accounts=[GOLD_1, SILVER_2])
    wait_for_rows(notebook, view, ["gold", "1"], ["silver", "1"])
    expect(lines).to_have_count(2)
    expect(notebook.page.locator(f"{view} svg .turnout-swap title")).to_have_text("generation 2")
    colours = lines.evaluate_all("(lines) => lines.map((line) => getComputedStyle(line).stroke)")
    bars = notebook.page.locator(f"{view} i").evaluate_all(
        "(bars) => bars.map((bar) => getComputedStyle(bar).backgroundColor)"
    )
    assert colours == bars, "a line has the colour of its group's bar"
    assert len(set(colours)) == 2


def test_widget_tells_its_state_and_a_view_that_goes_ends_the_subscription(
    notebook: WidgetPage, client: Client
) -> None:
    widget = client.table("users_ui").widget(columns="name", sort="name")
    view = notebook.show(widget)
    state = notebook.page.get_by_role("status")
    notebook.wait_for(lambda: state.text_content() == "live", what="the state")
    wrong = client.table("user_ui").widget()
    notebook.show(wrong)
    notebook.wait_for(lambda: "users_ui" in (state.nth(1).text_content() or ""), what="why it is refused")
    assert (state.nth(1).text_content() or "").startswith("refused: ")
    wait_for_rows(notebook, view, ["Ada"], ["Ben"])
    notebook.remove(0)
    notebook.carry()
    assert widget.live.state == "closed"
    assert client._live._session is None


# What a text and the colour behind it differ by, as the WCAG counts it.
_FAINT = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (parts) => parts.map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    const found = [];
    for (let one = element; one; one = one.parentElement) found.unshift(getComputedStyle(one).backgroundColor);
    return found;
  };
  const faint = [];
  for (const element of document.querySelectorAll(".turnout *")) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
    const ground = behind(element);
    const [a, b] = [light(rgb(ground)), light(rgb([...ground, getComputedStyle(element).color]))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${element.textContent}: ${contrast.toFixed(2)}`);
  }
  return faint;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_widgets_are_readable_in_light_and_dark_and_by_screen_readers(
    browser: Browser, client: Client, scheme: Any
) -> None:
    with showing(browser, color_scheme=scheme, reduced_motion="reduce") as notebook:
        table = notebook.show(client.table("final_ui").widget(columns="name,balance", sort="name"))
        chart = notebook.show(client.table("final_ui").chart(by="accountType", sort="accountType", history=60))
        wait_for_rows(notebook, table, ["Ada", "10.5"], ["Ben", "null"])
        wait_for_rows(notebook, chart, ["gold", "1"], ["null", "1"])
        page = notebook.page
        ground = page.locator(table).locator(".turnout").evaluate("(one) => getComputedStyle(one).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
        assert page.evaluate(_FAINT) == []
        for name in ("name", "balance", "accountType", "count"):
            expect(page.get_by_role("columnheader", name=name, exact=True)).to_be_visible()
        expect(page.get_by_role("rowheader", name="gold")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("region", name="final_ui, live").first).to_be_focused()
