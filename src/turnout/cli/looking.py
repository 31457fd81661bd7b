"""`tables`, `status` and `history`: what a running server has, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from turnout.cli.app import (
    DEFAULT_URL,
    JsonOption,
    TokenOption,
    UrlOption,
    app,
    cell,
    connected,
    console,
    print_json,
)

STATE_STYLES = {"live": "green", "running": "green", "failed": "red", "rejected": "red"}
OUTCOME_STYLES = {"applied": "green", "rolled_back": "green", "failed": "red", "rejected": "red"}
# The rest of a row is for --json.
HISTORY = {
    "ts": "time",
    "generation": "gen",
    "outcome": "outcome",
    "from": "from",
    "to": "to",
    "requester": "by",
    "buildSeconds": "build s",
    "catchUpSeconds": "catch up s",
    "publishSeconds": "publish s",
    "detail": "detail",
}


@app.command(epilog="Example:  turnout tables --json")
def tables(url: UrlOption = DEFAULT_URL, token: TokenOption = "", json: JsonOption = False) -> None:
    """List the tables: columns, row count, generation, version."""
    from rich.table import Table

    with connected(url, token) as client:
        found = client.tables()
    if json:
        print_json({"tables": found})
        return
    shown = Table("table", "rows", "gen", "version", "columns", header_style="bold")
    for name in ("rows", "gen", "version"):
        next(column for column in shown.columns if column.header == name).justify = "right"
    for table in found:
        columns = ", ".join(f"{column['name']} {column['type']}" for column in table["columns"])
        numbers = (f"{table['rows']:,}", str(table["generation"]), str(table["version"]))
        shown.add_row(cell(table["name"], "bold"), *numbers, cell(columns, "dim"))
    console().print(shown)


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
    from rich.panel import Panel
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    for name, value in _flat(found):
        style = STATE_STYLES.get(str(value), "") if name == "state" else ""
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


@app.command(epilog="Example:  turnout history --limit 5")
def history(
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest swaps.")] = 20,
    json: JsonOption = False,
) -> None:
    """Show the swaps so far, newest last: from, to, who asked, how long it took, the outcome."""
    from rich.table import Table

    with connected(url, token) as client:
        swaps = client.swaps()[-limit:]
    if json:
        print_json({"swaps": swaps})
        return
    if not swaps:
        console().print("No swaps yet. Try: turnout swap --help")
        return
    shown = Table(header_style="bold")
    names = [name for name in HISTORY if any(swap.get(name) is not None for swap in swaps)]
    for name in names:
        shown.add_column(HISTORY[name], justify="right" if name.endswith("Seconds") else "left", overflow="fold")
    for swap in swaps:
        style = OUTCOME_STYLES.get(str(swap.get("outcome")), "yellow")
        shown.add_row(*(cell(swap[name], style if name == "outcome" else "") for name in names))
    console().print(shown)
