"""`alerts`: the alerts with their states; `alerts test` sends a sample, `alerts try` counts the rows of a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import Commands, app, examples
from turnout.errors import TurnoutError

_SHOWN_ROWS = 5

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

Name = Annotated[str, typer.Argument(help="The alert.", show_default=False)]


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
    if json:
        output.print_json({"alerts": found})
        return
    table = Table("alert", "table", "where", "to", "rows", "waiting", "state", header_style="bold")
    for alert in found:
        state = f"{alert['state']}: {alert['error']}" if alert["error"] else alert["state"]
        cells = [alert[name] for name in ("name", "table", "where", "to", "rows", "waiting")]
        table.add_row(*map(output.cell, cells), output.cell(state, "red" if alert["error"] else "green"))
    output.console().print(table if found else "No alerts. Add some under alerts: in the configuration file")


@_app.command(epilog=examples("turnout alerts test large_balance"))
def test(
    name: Name, url: options.Url = options.DEFAULT_URL, token: options.Token = "", json: options.Json = False
) -> None:
    """Send a sample event to the target of an alert, and report whether it arrived. For operators."""
    with options.connected(url, token) as client:
        answer = client.test_alert(name)
    output.print_json(answer) if json else print(f"{output.printable(name)}: the sample was delivered")


@_app.command(
    "try",
    epilog=examples(
        "turnout alerts try large_balance",
        "turnout alerts try large_balance --where 'balance > 2000000'",
        "turnout alerts try final_ui --where 'balance > 1000000'",
    ),
)
def try_(
    name: Annotated[str, typer.Argument(help="An alert, or a table.", show_default=False)],
    where: options.Where = None,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Count the rows that fulfil a condition now: the condition of an alert, or a new one."""
    with options.connected(url, token) as client:
        known = {alert["name"]: alert for alert in client.status()["alerts"]}
        alert = known.get(name, {"table": name, "where": ""})
        condition = where or [alert["where"]]
        if not any(condition):
            listed = f"alerts: {', '.join(known) or 'none'}"
            raise TurnoutError("unknown_alert", f"no alert {name!r}", f"{listed}; or a table, with --where")
        found = client.rows(alert["table"], where=condition, limit=_SHOWN_ROWS)
        rows = client.rows(alert["table"], limit=0).total
    if json:
        output.print_json({"table": found.table, "where": ", ".join(condition), "fulfil": found.total, "rows": rows})
        return
    shown = output.table_of(
        found.columns, f"{found.total:,} of {rows:,} rows of {output.printable(found.table)} fulfil it"
    )
    for row in found.rows:
        shown.add_row(*(output.cell(row[column["name"]]) for column in found.columns))
    output.console().print(shown)


def described(alert: Mapping[str, Any]) -> str:
    """An alert in one line: what it watches, where to, its state, and what waits."""
    waiting = f", {alert['waiting']:,} events wait" if alert.get("waiting") else ""
    error = f": {alert['error']}" if alert.get("error") else ""
    return f"{alert['table']} where {alert['where']} -> {alert['to']}, {alert['state']}{waiting}{error}"
