"""`summary`: groups of a table with bars in the terminal, once or live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from turnout.cli import options, output
from turnout.cli.app import app, examples

if TYPE_CHECKING:
    from turnout_client import Client, Summary, SummaryOptions

_BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_GROUPS = 30


@app.command(
    epilog=examples(
        "turnout summary final_ui --by accountType",
        "turnout summary final_ui --by age:10 --values 'count,avg(balance),p95(balance)' --where 'age >= 30' --live",
        "turnout summary bad_records --by topic,reason --sort=-count --json",
    )
)
def summary(
    table: options.Table,
    by: Annotated[
        str,
        typer.Option(
            help="Up to three columns; age:10 makes bins of a number, ts:1m of a time.  [default: one group]",
            show_default=False,
        ),
    ] = "",
    values: Annotated[
        str, typer.Option(help="count, and functions of columns: sum(balance), avg, min, max, p95 and others.")
    ] = "count",
    where: options.Where = None,
    sort: Annotated[str, typer.Option(help="Columns to sort by; -count is descending.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many groups.")] = _GROUPS,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Print it again when it changes, across swaps too, until Ctrl-C; with --json a line each time.",
        ),
    ] = False,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Show groups of a table: counts, sums, averages, percentiles, with bars for the first value.

    All functions: docs/reference/http.md#summaries.
    """
    asked: SummaryOptions = {"by": by or (), "values": values, "where": where or (), "sort": sort or (), "limit": limit}
    with options.connected(url, token) as client:
        if live:
            _follow(client, table, asked, as_json=json)
            return
        found = client.table(table).summary(**asked)
    if json:
        output.print_json(found.as_json())
    else:
        output.console().print(picture(found))


def _follow(client: Client, table: str, asked: SummaryOptions, *, as_json: bool) -> None:
    try:
        with client.table(table).live_summary(**asked) as summaries:
            if as_json:
                for found in summaries:
                    output.print_json(found.as_json())
                return
            with Live(Text("connecting ..."), console=output.console(), auto_refresh=False) as screen:
                for found in summaries:
                    screen.update(picture(found), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def picture(found: Summary) -> RenderableType:
    """The groups as a table, with a bar for the first value that is a number."""
    names = [column["name"] for column in found.columns]
    measured = next((column["name"] for column in found.columns[len(found.by) :] if output.is_number(column)), None)
    more = f" (the first {len(found.groups)})" if len(found.groups) < found.total else ""
    title = f"{output.printable(found.table)}   generation {found.generation}   {found.total:,} groups{more}"
    shown = output.table_of(found.columns, title)
    if measured is not None:
        shown.add_column("", no_wrap=True)
    # Decimals are texts, so that no digit is lost.
    sizes = [float(group[measured] or 0) if measured else 0.0 for group in found.groups]
    for group, size in zip(found.groups, sizes, strict=True):
        bars = [Text(bar(size, max(sizes, default=0.0)), style="cyan")] if measured is not None else []
        shown.add_row(*(output.cell(group[name]) for name in names), *bars)
    return shown


def bar(size: float, largest: float) -> str:
    """A bar as long as its part of the largest; nothing for what is not above zero."""
    eighths = round(max(0.0, size) / largest * _BAR_WIDTH * 8) if largest > 0 else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
