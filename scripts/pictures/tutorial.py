"""Take the pictures of docs/tutorial.md, each in its step, and the dialog that previews a topic."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, expect

from page_visit import chromium
from tutorial_steps import follow

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = ("tutorial-look.png", "tutorial-swap.png", "tutorial-chart.png", "example.png")
SIZE: Any = {"width": 1400, "height": 760}
PLACE = {"table": "final_ui", "sort": json.dumps([["temperature", True]])}


class Album:
    """A browser tab that stays open during the tutorial and takes the pictures."""

    def __init__(self, browser: Browser) -> None:
        # A higher resolution for high-density screens.
        self._page: Page = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme="light")
        self._moments: dict[str, Callable[[str], None]] = {
            "Look": self.look,
            "Move it": self.swap,
            "Count, and chart it": self.chart,
        }
        self.taken: set[str] = set()

    def after(self, section: str, url: str) -> None:
        if section in self._moments:
            self._moments[section](url)

    def look(self, url: str) -> None:
        self._page.goto(f"{url}/#{urlencode(PLACE)}")
        self._rows_of("north")
        self._take("tutorial-look.png")
        self._page.locator("#example-open").click()
        self._page.locator("#example-topic").select_option("readings-south")
        expect(self._page.locator("#example-found")).to_be_visible()
        self._take("example.png")
        self._page.keyboard.press("Escape")
        self._page.evaluate("document.activeElement.blur()")

    def swap(self, _: str) -> None:
        self._rows_of("south")
        expect(self._page.locator("#timeline li").nth(1)).to_be_visible()
        self._take("tutorial-swap.png")

    def chart(self, _: str) -> None:
        self._rows_of("north")
        self._page.locator("#chart-open").click()
        expect(self._page.locator("#chart-table tbody tr")).to_have_count(3)
        self._take("tutorial-chart.png")

    def _rows_of(self, plant: str) -> None:
        expect(self._page.locator("#grid .ag-row").first).to_contain_text(plant)

    def _take(self, name: str) -> None:
        self._page.wait_for_timeout(2000)  # until nothing flashes
        self._page.screenshot(path=DOCS / name)
        self.taken.add(name)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        album = Album(browser)
        follow(Path(folder), album.after)
    assert album.taken == set(PICTURES)
