"""The commands `status`, `history` and `alerts`: the state of a running server; `alerts` also tests an alert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table

from turnout_client.cli import options, output
from turnout_client.cli.app import Commands, Printed, app, asking, examples, show
from turnout_client.cli.program import PROGRAM
from turnout_client.errors import TurnoutError

if TYPE_CHECKING:
    from turnout_client import Client

_STATE_STYLES = {"live": "green", "running": "green", "failed": "red", "rejected": "red"}
_TIMES = {"buildSeconds": "build", "catchUpSeconds": "catch-up", "publishSeconds": "publish"}
_SHOWN_ROWS = 5


@asking("turnout status", "turnout status --json")
def status(client: Client) -> Printed:
    """Show what is published: topics, join, generation, state, lag, and the progress of a swap."""
    found = client.status()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    for name, value in _lines(found):
        style = _STATE_STYLES.get(str(value), "") if name == "state" else ""
        grid.add_row(name, output.cell(value, style))
    return Printed(found, [Panel(grid, title=f"Turnout at {client.url}", title_align="left", expand=False)])


def _lines(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values; nested values have dotted names, and empty values are omitted."""
    for name, value in found.items():
        if name == "sinks":
            yield from (
                (f"sink {one['name']}", _output(one, f"topic {one['topic']}", "waitingRows", "rows")) for one in value
            )
        elif name == "alerts":
            yield from ((f"alert {one['name']}", _output(one, one["to"], "waiting", "events")) for one in value)
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


def _output(one: Mapping[str, Any], to: str, waits: str, what: str) -> str:
    """Describe a sink or an alert in one line: its rows, its target, its state and the number of waiting rows."""
    rows = f"{one['table']} where {one['where']}" if "where" in one else one["table"]
    waiting = f", {one[waits]:,} {what} wait" if one.get(waits) else ""
    error = f": {one['error']}" if one.get("error") else ""
    return f"{rows} -> {to}, {one['state']}{waiting}{error}"


@asking("turnout history --limit 5")
def history(
    client: Client, limit: Annotated[int, typer.Option(min=1, help="How many of the newest swaps to show.")] = 20
) -> Printed:
    """Show the past swaps, newest last: changes, requester, duration and outcome."""
    swaps = client.swaps()[-limit:]
    pictures: list[RenderableType] = [] if swaps else [f"No swaps yet. Try: {PROGRAM.name} swap --help"]
    for swap in swaps:
        outcome = str(swap.get("outcome"))
        generation = swap.get("generation")
        head = output.cell(f"{'' if generation is None else generation:>4}  ", "bold")
        head += output.cell(f"{outcome.replace('_', ' '):<11}", output.OUTCOME_STYLES.get(outcome, "yellow"))
        head += output.cell(f"  {_moment(swap.get('ts'))}  {_asked_and_took(swap)}", "dim")
        pictures += [head, *(Padding(output.cell(line), (0, 0, 0, 6)) for line in _changed(swap))]
    return Printed({"swaps": swaps}, pictures)


def _moment(text: object) -> str:
    """Format a time of the server, to the second, in UTC."""
    return str(text or "")[:19].replace("T", " ") + "Z"


def _asked_and_took(swap: Mapping[str, Any]) -> str:
    times = [f"{word} {swap[name]:.1f} s" for name, word in _TIMES.items() if swap.get(name)]
    return ", ".join([f"by {swap['requester']}" if swap.get("requester") else "", *times]).strip(", ")


def _changed(swap: Mapping[str, Any]) -> list[str]:
    """Return the differences of the two plans, then the detail: the changes of an apply, or the reason of a failure."""
    before, after = _words(swap.get("from")), _words(swap.get("to"))
    changed = [
        f"{name}: {before[name]} -> {value}" for name, value in after.items() if before.get(name, value) != value
    ]
    changed += [f"{name}={value}" for name, value in after.items() if name not in before]
    return [text for text in (", ".join(changed), str(swap.get("detail") or "")) if text]


def _words(plan: object) -> dict[str, str]:
    """Parse a plan such as `users=users2 join=left` into names and values."""
    return {name: value for name, _, value in (word.partition("=") for word in str(plan or "").split())}


_app = typer.Typer(cls=Commands, help="Show alerts, send a sample, and count the rows of a condition.")
app.add_typer(
    _app,
    name="alerts",
    epilog=examples(
        "turnout alerts",
        "turnout alerts test large_balance",
        "turnout alerts try final_ui --where 'balance > 1000000'",
    ),
)


@_app.callback(invoke_without_command=True)
def alerts(
    context: typer.Context,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Show alerts with their states, send a sample, and count the rows of a condition; see docs/how-to/alerts.md."""
    if context.invoked_subcommand is not None:
        return
    with options.connected(url, token) as client:
        found = client.status()["alerts"]
    table = Table("alert", "table", "where", "to", "rows", "waiting", "state", header_style="bold")
    for alert in found:
        state = f"{alert['state']}: {alert['error']}" if alert["error"] else alert["state"]
        cells = [alert[name] for name in ("name", "table", "where", "to", "rows", "waiting")]
        table.add_row(*map(output.cell, cells), output.cell(state, "red" if alert["error"] else "green"))
    picture = table if found else "No alerts. Add some under alerts: in the configuration file"
    show(Printed({"alerts": found}, [picture]), json)


@asking("turnout alerts test large_balance", to=_app)
def test(client: Client, name: Annotated[str, typer.Argument(help="The alert.", show_default=False)]) -> Printed:
    """Send a sample event to the target of an alert, and report whether it arrived. For operators."""
    return Printed(client.test_alert(name), [output.cell(f"{name}: the sample was delivered")])


@asking(
    "turnout alerts try large_balance",
    "turnout alerts try large_balance --where 'balance > 2000000'",
    "turnout alerts try final_ui --where 'balance > 1000000'",
    name="try",
    to=_app,
)
def try_(
    client: Client,
    name: Annotated[str, typer.Argument(help="An alert, or a table.", show_default=False)],
    where: options.Where = None,
) -> Printed:
    """Count the rows that match a condition now: the condition of an alert, or a new one."""
    known = {alert["name"]: alert for alert in client.status()["alerts"]}
    alert = known.get(name, {"table": name, "where": ""})
    condition = where or [alert["where"]]
    if not any(condition):
        listed = f"alerts: {', '.join(known) or 'none'}"
        raise TurnoutError("unknown_alert", f"no alert {name!r}", f"{listed}; or a table, with --where")
    found = client.rows(alert["table"], where=condition, limit=_SHOWN_ROWS)
    rows = client.rows(alert["table"], limit=0).total
    title = f"{found.total:,} of {rows:,} rows of {output.printable(found.table)} match"
    shown = output.table_of(found.columns, title, rows=found.rows)
    counts = {"table": found.table, "where": ", ".join(condition), "fulfil": found.total, "rows": rows}
    return Printed(counts, [shown])
