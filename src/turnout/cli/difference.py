"""`difference`: what differs in a table between two generations, in the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from turnout.cli import options, output
from turnout.cli.app import app, examples

if TYPE_CHECKING:
    from turnout_client import Difference

_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


@app.command(
    epilog=examples(
        "turnout difference final_ui",
        "turnout difference final_ui --where 'accountType = gold' --limit 50",
        "turnout difference final_ui --change removed",
        "turnout difference users_ui --from 7 --to 9 --json",
    )
)
def difference(
    table: options.Table,
    before: Annotated[
        int | None,
        typer.Option("--from", min=0, help="A generation.  [default: the one that is published]", show_default=False),
    ] = None,
    after: Annotated[
        int | None, typer.Option("--to", min=0, help="Another.  [default: the candidate]", show_default=False)
    ] = None,
    change: Annotated[
        Literal["added", "removed", "changed"] | None,
        typer.Option(help="Show only rows of this change.  [default: all]", show_default=False),
    ] = None,
    where: options.Where = None,
    sort: options.Sort = "",
    limit: Annotated[int, typer.Option(min=0, max=100_000, help="How many rows to show.")] = 20,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Show what differs in a table between two generations: by default, what publishing the candidate would change.

    Added rows have +, removed rows -, changed rows ~ with the old and the new value of each changed cell.
    """
    with options.connected(url, token) as client:
        found = client.table(table).difference(before, after, where or (), sort or (), limit=limit, change=change)
    if json:
        output.print_json(found.as_json())
        return
    screen = output.console()
    for line in _lines(found):
        screen.print(line)


def _lines(found: Difference) -> list[Text]:
    """The counts, what else there is to say, and a line for each row."""
    generations = f"generation {found.from_['generation']} -> {found.to['generation']}"
    counts = [Text(f"{count:,} {change}", _SIGNS.get(change, ("", ""))[1]) for change, count in found.counts.items()]
    lines = [Text(f"{output.printable(found.table)}   {generations}", "bold"), Text(", ").join(counts)]
    notes = {
        "changed columns": [
            f"{column['name']} ({column['changed']:,})" for column in found.columns if column["changed"]
        ],
        **{f"columns only in {side}": names for side, names in found.only_in.items()},
        "no such table in": [found.missing] if found.missing else [],
        "records that sinks would write": [f"{sink['sink']} {sink['records']:,}" for sink in found.sinks],
    }
    lines += [output.cell(f"{name}: {', '.join(words)}", "dim") for name, words in notes.items() if words]
    lines += [_line(row) for row in found.rows]
    if len(found.rows) < found.total:
        lines.append(Text(f"... {found.total - len(found.rows):,} more", "dim"))
    return lines


def _line(row: dict[str, Any]) -> Text:
    sign, style = _SIGNS[row["change"]]
    old, new = row["from"], row["to"]
    line = Text(f"{sign} ", style)
    for name, value in (new or old).items():
        changed = old is not None and new is not None and old[name] != value
        line.append_text(output.cell(f"{name}=", style if not old or not new else "dim"))
        if changed:
            line.append_text(output.cell(old[name], "red strike")).append(" -> ")
        line.append_text(output.cell(value, "bold green" if changed else "" if old and new else style)).append("  ")
    line.rstrip()
    return line
