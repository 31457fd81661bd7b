"""Make docs/page.png: the page over a running demo, with a line over time in which the tables move twice.

turnout demo --port 10000
python scripts/page_picture.py --url http://127.0.0.1:10000
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page, expect, sync_playwright

from turnout.client import connect

TARGET = Path(__file__).resolve().parents[1] / "docs" / "page.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIZE: Any = {"width": 1400, "height": 860}
PLACE = {
    "table": "final_ui",
    "sort": json.dumps([["balance", True]]),
    "filters": json.dumps([{"column": "age", "op": ">=", "values": ["30"]}]),
    "hidden": json.dumps(["email"]),
    "chart": json.dumps({"kind": "line", "by": "accountType", "value": "count", "minutes": 5}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:10000")
    parser.add_argument("--minutes", type=float, default=4, help="how long the line is")
    parser.add_argument("--scheme", choices=["light", "dark"], default="light")
    parser.add_argument("--target", type=Path, default=TARGET)
    asked = parser.parse_args()
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        # A picture that is sharp on fine screens, too.
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme=asked.scheme)
        page.goto(f"{asked.url}/#{urlencode(PLACE)}")
        expect(page.locator("#chart-table tbody tr").first).to_be_attached(timeout=60_000)
        _play(page, asked.url, asked.minutes * 60)
        page.screenshot(path=asked.target)
        browser.close()


def _play(page: Page, url: str, seconds: float) -> None:
    """Other topics after a third of the time, another join after two thirds."""
    with connect(url, name="picture") as client:
        for message in ({"usersTopic": "users2", "accountsTopic": "accounts2"}, {"joinType": "inner"}, None):
            end = time.monotonic() + seconds / 3
            while time.monotonic() < end:
                page.wait_for_timeout(500)
            if message is not None:
                client.control(message)


if __name__ == "__main__":
    main()
