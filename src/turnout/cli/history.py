"""`history`: the swaps of a running server so far."""

from typing import Annotated

import typer
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import app, examples

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


@app.command(epilog=examples("turnout history --limit 5"))
def history(
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest swaps.")] = 20,
    json: options.Json = False,
) -> None:
    """Show the swaps so far, newest last: from, to, who asked, how long it took, the outcome."""
    with options.connected(url, token) as client:
        swaps = client.swaps()[-limit:]
    if json:
        output.print_json({"swaps": swaps})
        return
    if not swaps:
        output.console().print("No swaps yet. Try: turnout swap --help")
        return
    shown = Table(header_style="bold")
    names = [name for name in _COLUMNS if any(swap.get(name) is not None for swap in swaps)]
    for name in names:
        shown.add_column(_COLUMNS[name], justify="right" if name.endswith("Seconds") else "left", overflow="fold")
    for swap in swaps:
        style = output.OUTCOME_STYLES.get(str(swap.get("outcome")), "yellow")
        shown.add_row(*(output.cell(swap[name], style if name == "outcome" else "") for name in names))
    output.console().print(shown)
