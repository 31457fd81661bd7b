"""`status`: what a running server has published, and the progress of a swap."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.panel import Panel
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.alerts import described
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
    for name, value in _lines(found):
        style = _STATE_STYLES.get(str(value), "") if name == "state" else ""
        grid.add_row(name, output.cell(value, style))
    output.console().print(Panel(grid, title=f"Turnout at {client.url}", title_align="left", expand=False))


def _lines(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values, nested ones with dotted names; empty ones are left out."""
    for name, value in found.items():
        if name == "sinks":
            yield from ((f"sink {sink['name']}", _sink(sink)) for sink in value)
        elif name == "alerts":
            yield from ((f"alert {alert['name']}", described(alert)) for alert in value)
        elif name == "leftOut":
            yield from (
                (f"left out of {one['view']}", f"{one['keys']:,} keys: {', '.join(one['first'])}") for one in value
            )
        elif isinstance(value, Mapping):
            yield from _lines(value, f"{before}{name}.")
        elif isinstance(value, list) and value:
            yield f"{before}{name}", ", ".join(map(str, value))
        elif value is not None and value != [] and value != "":
            yield f"{before}{name}", value


def _sink(sink: Mapping[str, Any]) -> str:
    """A sink in one line: from where to where, its state, and what waits."""
    waiting = f", {sink['waitingRows']:,} rows wait" if sink.get("waitingRows") else ""
    error = f": {sink['error']}" if sink.get("error") else ""
    return f"{sink['table']} -> topic {sink['topic']}, {sink['state']}{waiting}{error}"
