"""Take docs/notebook.png: a live table and a live chart below their notebook cells, through two swaps."""

from __future__ import annotations

from pathlib import Path

from page_visit import chromium
from turnout_client import connect
from widget_page import showing

PICTURES = ("notebook.png",)
PICTURE = Path(__file__).resolve().parents[2] / "docs" / "notebook.png"
STYLE = """
body { width: 900px; margin: 0; padding: 18px 22px; box-sizing: border-box; }
pre { margin: 0 0 6px; padding: 8px 12px; border: 1px solid #dfe3e8; border-radius: 4px; background: #f6f8fa;
  font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
div + pre { margin-top: 16px; }
"""
# The cells of docs/how-to/notebook.md.
TABLE = 'final.widget(sort="-balance", limit=6)'
CHART = 'final.chart(by="accountType", values="count,avg(balance)", sort="accountType", history=600)'
POINTS = 12
"""The number of points, one for each second with a change, that make a useful line."""


def main(url: str) -> None:
    with connect(url) as client, chromium() as browser, showing(browser, STYLE, device_scale_factor=2) as notebook:
        final = client.table("final_ui")
        table = final.widget(sort="-balance", limit=6)
        chart = final.chart(by="accountType", values="count,avg(balance)", sort="accountType", history=600)
        notebook.show(table, TABLE)
        notebook.show(chart, CHART)

        def is_at(points: int) -> bool:
            return len(chart._shown.get("points", ())) >= points and len(table._shown.get("rows", ())) == 6

        notebook.wait_for(lambda: is_at(POINTS), what="a line")
        # Swap to a different join; an earlier picture may have left any join.
        client.control({"joinType": "left" if client.status()["joinType"] == "inner" else "inner"})
        now = len(chart._shown["points"])
        notebook.wait_for(lambda: is_at(now + POINTS // 2), what="a line after the swap")
        client.rollback()
        now = len(chart._shown["points"])
        notebook.wait_for(lambda: is_at(now + POINTS // 2), what="a line after the rollback")
        notebook.page.screenshot(path=PICTURE, full_page=True)
