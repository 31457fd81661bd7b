"""A real browser for tests of the page, which can record frames; requests to other servers and errors are failures.

This module owns the browser and the assertions on every visit. The tests assert the contents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from browser_program import find_browser
from turnout.testing import patience
from turnout.testing import wait_until as wait_until_true

DESKTOP = {"width": 1400, "height": 860}
PHONE = {"width": 390, "height": 780}
# A limit for busy machines; other machines never need it.
PATIENCE_SECONDS = patience()
FLAGS = [
    "--no-sandbox",
    # The browser resolves no host except this machine.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    # Test machines have no graphics card; a GPU process would cost a tenth of each load.
    *("--disable-gpu", "--in-process-gpu"),
]

# The id of the column `ID` (or `userId`), which differs between tables.
_KEY = """(() => [...document.querySelectorAll("#grid .ag-header-cell")]
  .find((cell) => /^(ID|userId)$/.test(cell.querySelector(".head-name")?.textContent))?.getAttribute("col-id"))()"""

# Records for every frame the number of visible rows with text, and the first letters of their keys. Each topic of the
# tests has its own letter, so that two letters in one frame mean two generations.
_PROBE = (
    f"""() => {{ const keyColumn = () => {_KEY};"""
    + """
  const probe = { frames: 0, fewest: Infinity, mixed: 0, seen: [] };
  window.probe = probe;
  const look = () => {
    const grid = document.querySelector("#grid").getBoundingClientRect();
    const texts = [];
    const key = keyColumn();
    for (const row of document.querySelectorAll("#grid .ag-row")) {
      const box = row.getBoundingClientRect();
      if (box.bottom <= grid.top + 36 || box.top >= grid.bottom) continue;
      const text = row.querySelector(`[col-id="${key}"]`)?.textContent ?? "";
      if (text !== "") texts.push(text);
    }
    const letters = [...new Set(texts.map((text) => text[0]))].sort().join("");
    probe.frames += 1;
    probe.fewest = Math.min(probe.fewest, texts.length);
    if (letters.length > 1) probe.mixed += 1;
    if (probe.seen.at(-1) !== letters) probe.seen.push(letters);
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""
)


# Counts the frames in which the canvas of a chart is empty.
_CHART_PROBE = """() => {
  const probe = { frames: 0, empty: 0 };
  window.chartProbe = probe;
  const small = new OffscreenCanvas(24, 24).getContext("2d", { willReadFrequently: true });
  const look = () => {
    small.clearRect(0, 0, 24, 24);
    for (const canvas of document.querySelectorAll("#chart-plot canvas")) small.drawImage(canvas, 0, 0, 24, 24);
    probe.frames += 1;
    if (!small.getImageData(0, 0, 24, 24).data.some((value) => value > 0)) probe.empty += 1;
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
}"""

# Returns the chart's table of numbers, by the first cell of each row.
_CHART_NUMBERS = """() => Object.fromEntries([...document.querySelectorAll("#chart-table tbody tr")]
  .map((row) => [...row.children].map((cell) => cell.textContent))
  .map(([name, ...values]) => [name, values]))"""

# Returns the visible texts whose contrast with their background is below 4.5.
FAINT = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (value) => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] === undefined || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const style = getComputedStyle(element);
    if (!own || !element.checkVisibility({ opacityProperty: true })) continue;
    if (element.closest("[disabled], [aria-disabled=true]")) continue;
    const [a, b] = [light(parse(style.color)), light(behind(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const text = element.textContent.trim().slice(0, 30);
    if (ratio < 4.5) faint.push(`${element.tagName} ${element.className} ${text} ${ratio.toFixed(2)}`);
  }
  return faint;
}"""

Scheme = Literal["light", "dark"]
_SCHEME = """() => getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).slice(0, 3)
  .reduce((sum, part) => sum + Number(part), 0) > 382 ? 'light' : 'dark'"""

# Returns the controls without an accessible name.
NAMELESS = """() => [...document.querySelectorAll("button, input, select, textarea, dialog, aside, nav, main")]
  .filter((element) => !(element.labels?.length || element.getAttribute("aria-label") || element.textContent.trim()
    || element.getAttribute("aria-labelledby") || element.closest("#popover")))
  .map((element) => element.outerHTML.slice(0, 120))"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run one browser for many visits."""
    path = find_browser()
    if path is None:
        pytest.fail("no Chromium; make browser finds or installs one")
    expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=PATIENCE_SECONDS * 1000)
        _browsers.append(browser)
        yield browser
        _browsers.remove(browser)
        for key in [key for key in _idle if key[0] is browser]:
            del _idle[key]
        browser.close()


_browsers: list[Browser] = []


def wait_until(predicate: Callable[[], object], what: str = "the condition") -> None:
    """Wait for a condition while Playwright handles events of the browser, which it does not during a sleep."""
    wait_until_true(predicate, what=what, pause=_handle_events)


def _handle_events(seconds: float) -> None:
    pages = [page for browser in _browsers for context in browser.contexts for page in context.pages]
    if pages:
        pages[0].wait_for_timeout(seconds * 1000)
    else:
        time.sleep(seconds)


@dataclass
class Visit:
    """A browser tab. Its errors are collected, and asserted at the end of the visit."""

    page: Page
    url: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)

    def arrive(self, url: str) -> None:
        """Go to an inactive page at the server's address."""
        if self.page.url != f"{url}{_RESTING}":
            self.url = url
            self.page.goto(f"{url}{_RESTING}")
            self._forget()

    def leave(self) -> None:
        """Remove the state of this visit, so that the next one does not see it."""
        self.page.goto(f"{self.url}{_RESTING}")
        self.page.evaluate("localStorage.clear(), sessionStorage.clear()")
        self.page.context.clear_cookies()
        self.page.mouse.move(0, 0)
        self._forget()

    def _forget(self) -> None:
        for told in (self.errors, self.foreign, self.console):
            told.clear()

    def note_request(self, asked: str) -> None:
        place = urlsplit(asked)
        if place.scheme in ("http", "https", "ws", "wss") and place.netloc != urlsplit(self.url).netloc:
            self.foreign.append(asked)

    def note_console(self, said: ConsoleMessage) -> None:
        # A browser reports violations of the Content-Security-Policy on the console.
        if "Content Security Policy" in said.text:
            self.errors.append(said.text)
        # The inactive page names no icon, so a browser requests /favicon.ico.
        if said.type == "error" and not said.location["url"].endswith("/favicon.ico"):
            self.console.append(said.text)

    def remember(self, token: str) -> None:
        """Store a token in the tab, as after a sign-in."""
        self.page.evaluate("(token) => sessionStorage.setItem('turnout.token', token)", token)

    def open(self, hash_: str = "") -> Page:
        self.page.goto(f"{self.url}/{hash_}")
        return self.page

    def place(self) -> str:
        """Return the present address after the #; `page.url` may be outdated."""
        return str(self.page.evaluate("location.hash")).removeprefix("#")

    def watch_frames(self) -> None:
        self.page.evaluate(_PROBE)

    def frames(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.evaluate("window.probe")
        return found

    def watch_chart(self) -> None:
        self.page.evaluate(_CHART_PROBE)

    def chart_frames(self) -> dict[str, int]:
        found: dict[str, int] = self.page.evaluate("window.chartProbe")
        return found

    def chart_numbers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self.page.evaluate(_CHART_NUMBERS)
        return found

    def keys(self) -> list[str]:
        """Return the texts of the key column, from top to bottom."""
        found: list[str] = self.page.evaluate(
            f"""() => [...document.querySelectorAll("#grid .ag-row")]
              .sort((a, b) => a.getAttribute("row-index") - b.getAttribute("row-index"))
              .map((row) => row.querySelector(`[col-id="${{{_KEY}}}"]`)?.textContent ?? "")"""
        )
        return found

    def wait_for(self, script: str, what: str) -> None:
        """Wait for a condition in the page. Playwright's own wait needs `eval`, which the page forbids."""
        wait_until(lambda: self.page.evaluate(script), what=what)

    def in_both_themes(self) -> Iterator[Scheme]:
        """Yield the light and then the dark theme, set by the system's preference without loading the page again."""
        for scheme in get_args(Scheme):
            self.page.emulate_media(color_scheme=scheme)
            self.wait_for(f"({_SCHEME})() === '{scheme}'", f"the {scheme} theme")
            yield scheme

    def wait_for_none(self, script: str) -> None:
        """Wait until a script that lists problems returns none, because moving elements need time."""
        with suppress(TimeoutError):
            wait_until(lambda: self.page.evaluate(script) == [])
        assert self.page.evaluate(script) == []

    def wait_for_rows(self, letter: str = "") -> None:
        def here() -> bool:
            keys = self.keys()
            return bool(keys) and keys[0] != "" and keys[0].startswith(letter)

        wait_until(here, what=f"rows of {letter or 'any table'}")


@contextmanager
def visiting(browser: Browser, url: str, **options: Any) -> Iterator[Visit]:
    """Open a tab that can reach only the server; at the end, assert that it had no foreign request and no error.

    A new tab costs three times as much as a load in an existing one. So a tab is reused, without its state, for the
    next visit with the same options to any server; after a failed test it is closed.
    """
    media = {"color_scheme": options.pop("color_scheme", "light")}
    media["reduced_motion"] = options.pop("reduced_motion", "no-preference")
    kept = _idle.setdefault((browser, repr(options)), [])
    visit = kept.pop() if kept else _tab(browser, url, options)
    visit.arrive(url)
    visit.page.emulate_media(**media)
    try:
        yield visit
        assert visit.errors == []
        assert visit.foreign == []
        visit.leave()
    except BaseException:
        visit.page.context.close()
        raise
    kept.append(visit)


_RESTING = "/healthz"
_idle: dict[tuple[Browser, str], list[Visit]] = {}


def _tab(browser: Browser, url: str, options: dict[str, Any]) -> Visit:
    may = ["clipboard-read", "clipboard-write"]
    context = browser.new_context(**{"viewport": DESKTOP, "permissions": may, **options})
    context.set_default_timeout(PATIENCE_SECONDS * 1000)
    visit = Visit(context.new_page(), url)
    # Requests are observed, not intercepted: interception disables the cache, and each load would compile the page.
    context.on("request", lambda request: visit.note_request(request.url))
    visit.page.on("websocket", lambda socket: visit.note_request(socket.url))
    visit.page.on("pageerror", lambda error: visit.errors.append(str(error)))
    visit.page.on("console", visit.note_console)
    return visit
