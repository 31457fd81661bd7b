"""Take docs/page.png: the page of a running demo, with a line chart through two swaps."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import expect

from page_visit import chromium
from turnout_client import connect

PICTURES = ("page.png",)
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "page.png"
SIZE: Any = {"width": 1400, "height": 860}
PLACE = {
    "table": "final_ui",
    "sort": json.dumps([["balance", True]]),
    "filters": json.dumps([{"column": "age", "op": ">=", "values": ["30"]}]),
    "hidden": json.dumps(["email"]),
    "chart": json.dumps({"kind": "line", "by": "accountType", "value": "count", "minutes": 5}),
}
# Other topics after a third of the time, another join after two thirds.
MESSAGES = ({"usersTopic": "users2", "accountsTopic": "accounts2"}, {"joinType": "inner"}, None)
SECONDS_OF_EACH = 60


def main(url: str) -> None:
    with connect(url, name="picture") as client, chromium() as browser:
        # A higher resolution for high-density screens.
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme="light")
        page.goto(f"{url}/#{urlencode(PLACE)}")
        expect(page.locator("#chart-table tbody tr").first).to_be_attached()
        for message in MESSAGES:
            end = time.monotonic() + SECONDS_OF_EACH
            while time.monotonic() < end:
                page.wait_for_timeout(500)
            if message is not None:
                client.control(message)
        page.screenshot(path=PICTURE)
