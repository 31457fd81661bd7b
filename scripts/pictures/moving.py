"""Take docs/moving.png and docs/review.png: live rows, a review, a swap and a rollback on the page of a running demo.

moving.png is an animated PNG. Its captions are added here; everything else is the real page.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Page, expect

from page_visit import chromium

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = ("moving.png", "review.png")
SIZE: Any = {"width": 1520, "height": 860}
PLACE = {"table": "final_ui", "sort": json.dumps([["balance", True]])}
# The approximate width of a README.
FILM: Any = (1064, 602)
FRAME_SECONDS = 0.6
COLOURS = 128
CAPTION = """(text) => {
  const bar = document.querySelector("#caption") ?? document.body.appendChild(document.createElement("div"));
  bar.id = "caption";
  bar.textContent = text;
  bar.style.cssText = "position:fixed;left:50%;bottom:20px;transform:translateX(-50%);z-index:99;padding:10px 22px;"
    + "border-radius:999px;background:#12202e;color:#fff;font:600 22px system-ui,sans-serif;white-space:nowrap";
}"""


class Film:
    """The frames of one page, with their durations."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._frames: list[tuple[Image.Image, float]] = []

    def shoot(self, caption: str, seconds: float) -> None:
        """Record the page for `seconds`, with a caption."""
        self._page.evaluate(CAPTION, caption)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            frame = Image.open(io.BytesIO(self._page.screenshot())).convert("RGB").resize(FILM)
            self._frames.append((frame, FRAME_SECONDS))
            self._page.wait_for_timeout(max(0.0, FRAME_SECONDS - (time.monotonic() - began)) * 1000)

    def save(self, path: Path) -> None:
        """Write the frames with the palette of the middle frame, so that equal areas stay equal and compress well."""
        palette = self._frames[len(self._frames) // 2][0].quantize(COLOURS)
        first, *others = [
            frame.quantize(palette=palette, dither=Image.Dither.NONE).convert("RGB") for frame, _ in self._frames
        ]
        durations = [round(seconds * 1000) for _, seconds in self._frames]
        first.save(path, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)


def main(url: str) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(f"{url}/#{urlencode(PLACE)}")
        expect(page.locator("#grid .ag-row").first).to_be_visible()
        film = Film(page)
        film.shoot("Users joined with accounts, live from Kafka", 3)
        _ask(page)
        film.shoot("Ask for other topics, and review the swap first", 2)
        _review(page, lambda: _still(page))
        film.shoot("What would change, in figures. Nobody else sees it yet", 3)
        page.locator("#review-table").scroll_into_view_if_needed()
        film.shoot("And row by row, side by side", 3)
        page.locator("#review-publish").click()
        expect(page.locator("#review-said")).to_contain_text("is published")
        page.get_by_role("button", name="Look at final_ui").click()
        expect(page.locator("#grid .ag-row").first).to_be_visible()
        film.shoot("Published: all tables moved at once, viewers stay connected", 3)
        page.locator("#rollback").click()
        expect(page.locator("#timeline li").first).to_contain_text("rollback")
        film.shoot("Rolled back: the rows from before, at once", 3)
        film.save(DOCS / "moving.png")


def _ask(page: Page) -> None:
    """Fill in the swap form."""
    for source in ("users", "accounts"):
        page.get_by_label(f"{source} topic").fill(f"{source}2")


def _review(page: Page, looked: Callable[[], None]) -> None:
    """Build a candidate, wait until its review shows numbers and rows, and call `looked`."""
    page.locator("#review-ask").click()
    expect(page.locator("#review-title")).to_contain_text("Review of generation")
    expect(page.locator("#review-table tbody tr").first).to_be_visible()
    looked()


def _still(page: Page) -> None:
    """Take the picture of the review, without a caption."""
    page.evaluate("document.querySelector('#caption')?.remove()")
    page.screenshot(path=DOCS / "review.png")
