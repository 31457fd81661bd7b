"""`history`: the swaps of a running server so far."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from turnout.cli.app import (
    DEFAULT_URL,
    OUTCOME_STYLES,
    JsonOption,
    TokenOption,
    UrlOption,
    app,
    cell,
    connected,
    console,
    print_json,
)

# The rest of a row is for --json.
_COLUMNS = {
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


@app.command(epilog="Example:  turnout history --limit 5")
def history(
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest swaps.")] = 20,
    json: JsonOption = False,
) -> None:
    """Show the swaps so far, newest last: from, to, who asked, how long it took, the outcome."""
    with connected(url, token) as client:
        swaps = client.swaps()[-limit:]
    if json:
        print_json({"swaps": swaps})
        return
    if not swaps:
        console().print("No swaps yet. Try: turnout swap --help")
        return
    shown = Table(header_style="bold")
    names = [name for name in _COLUMNS if any(swap.get(name) is not None for swap in swaps)]
    for name in names:
        shown.add_column(_COLUMNS[name], justify="right" if name.endswith("Seconds") else "left", overflow="fold")
    for swap in swaps:
        style = OUTCOME_STYLES.get(str(swap.get("outcome")), "yellow")
        shown.add_row(*(cell(swap[name], style if name == "outcome" else "") for name in names))
    console().print(shown)
