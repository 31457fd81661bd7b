"""`summary`: groups of a table with bars in the terminal, once or live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

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
    printable,
)

if TYPE_CHECKING:
    from turnout.client import Client, Summary, SummaryOptions

_BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_GROUPS = 30


@app.command(epilog="Example:  turnout summary final_ui --by accountType --values 'count,sum(balance)' --sort=-count")
def summary(
    table: Annotated[str, typer.Argument(help="The table; NAME@7 is generation 7 of it.", show_default=False)],
    by: Annotated[str, typer.Option(help="Columns to group by: accountType, age:10, ts:1m.", show_default=False)] = "",
    values: Annotated[str, typer.Option(help="count, sum(column), avg, min, max, p95 and others.")] = "count",
    where: Annotated[
        list[str] | None, typer.Option(help="Rows to keep: 'column operator value'; repeatable.", show_default=False)
    ] = None,
    sort: Annotated[str, typer.Option(help="Columns to sort by; -count is descending.", show_default=False)] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many groups.")] = _GROUPS,
    live: Annotated[bool, typer.Option("--live", help="Again whenever it changes, until Ctrl-C.")] = False,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = "",
    json: JsonOption = False,
) -> None:
    """Show groups of a table: counts, sums, averages, percentiles, with bars for the first value."""
    asked: SummaryOptions = {"by": by or (), "values": values, "where": where or (), "sort": sort or (), "limit": limit}
    with connected(url, token) as client:
        if live:
            _follow(client, table, asked, as_json=json)
            return
        found = client.table(table).summary(**asked)
    if json:
        print_json(found.as_json())
    else:
        console().print(picture(found))


def _follow(client: Client, table: str, asked: SummaryOptions, *, as_json: bool) -> None:
    try:
        with client.table(table).live_summary(**asked) as summaries:
            if as_json:
                for found in summaries:
                    print_json(found.as_json())
                return
            with Live(Text("connecting ..."), console=console(), auto_refresh=False) as screen:
                for found in summaries:
                    screen.update(picture(found), refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def picture(found: Summary) -> RenderableType:
    """The groups as a table, with a bar for the first value that is a number."""
    names = [column["name"] for column in found.columns]
    numeric = {c["name"] for c in found.columns if c["type"].startswith(("int", "float", "double", "decimal"))}
    measured = next((name for name in names[len(found.by) :] if name in numeric), None)
    more = f" (the first {len(found.groups)})" if len(found.groups) < found.total else ""
    title = f"{printable(found.table)}   generation {found.generation}   {found.total:,} groups{more}"
    shown = Table(title=title, title_justify="left", header_style="bold cyan")
    for name in names:
        shown.add_column(cell(name), justify="right" if name in numeric else "left", no_wrap=True)
    if measured is not None:
        shown.add_column("", no_wrap=True)
    sizes = [_size(group.get(measured)) if measured else 0.0 for group in found.groups]
    for group, size in zip(found.groups, sizes, strict=True):
        bars = [Text(bar(size, max(sizes, default=0.0)), style="cyan")] if measured is not None else []
        shown.add_row(*(cell(group[name]) for name in names), *bars)
    return shown


def bar(size: float, largest: float) -> str:
    """A bar as long as its part of the largest; nothing for what is not above zero."""
    eighths = round(max(0.0, size) / largest * _BAR_WIDTH * 8) if largest > 0 else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _size(value: object) -> float:
    # Decimals are texts, so that no digit is lost.
    return float(value) if isinstance(value, (int, float, str)) else 0.0
