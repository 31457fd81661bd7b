"""`status`: what a running server has published, and the progress of a swap."""

from collections.abc import Mapping
from typing import Any

from rich.panel import Panel
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import app, examples

_STATE_STYLES = {"live": "green", "running": "green", "failed": "red", "rejected": "red"}


@app.command(epilog=examples("turnout status", "turnout status --json"))
def status(url: options.Url = options.DEFAULT_URL, token: options.Token = "", json: options.Json = False) -> None:
    """Show what is published: topics, join, generation, state, lag, and the progress of a swap."""
    with options.connected(url, token) as client:
        found = client.status()
    if json:
        output.print_json(found)
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    for name, value in _flat(found):
        style = _STATE_STYLES.get(str(value), "") if name == "state" else ""
        grid.add_row(name, output.cell(value, style))
    output.console().print(Panel(grid, title=f"Turnout at {client.url}", title_align="left", expand=False))


def _flat(found: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Nested values with dotted names; empty ones are left out."""
    rows: list[tuple[str, Any]] = []
    for name, value in found.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{before}{name}.")
        elif value is not None and value != [] and value != "":
            rows.append((f"{before}{name}", value))
    return rows
