"""`status`: what a running server has published, and the progress of a swap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.panel import Panel
from rich.table import Table

from turnout.cli.app import DEFAULT_URL, JsonOption, TokenOption, UrlOption, app, cell, connected, console, print_json

_STATE_STYLES = {"live": "green", "running": "green", "failed": "red", "rejected": "red"}


@app.command(epilog="Example:  turnout status --json")
def status(url: UrlOption = DEFAULT_URL, token: TokenOption = "", json: JsonOption = False) -> None:
    """Show what is published: topics, join, generation, state, lag, and the progress of a swap."""
    with connected(url, token) as client:
        found = client.status()
        if json:
            print_json(found)
            return
        _print_status(found, client.url)


def _print_status(found: Mapping[str, Any], url: str) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    for name, value in _flat(found):
        style = _STATE_STYLES.get(str(value), "") if name == "state" else ""
        grid.add_row(name, cell(value, style))
    console().print(Panel(grid, title=f"Turnout at {url}", title_align="left", expand=False))


def _flat(found: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Nested values with dotted names; empty ones are left out."""
    rows: list[tuple[str, Any]] = []
    for name, value in found.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{before}{name}.")
        elif value is not None and value != [] and value != "":
            rows.append((f"{before}{name}", value))
    return rows
