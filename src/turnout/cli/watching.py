"""`watch`: a window of a table, live in the terminal, across swaps and restarts of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

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
from turnout.errors import TurnoutError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from turnout.client import Client, Rows

POLL_SECONDS = 0.5
_NEW, _CHANGED = "green", "bold black on yellow"
_AROUND_ROWS = 7  # header, borders and the line below the table
_JSON_ROWS = 100


@dataclass(frozen=True, slots=True)
class View:
    """What to look at."""

    table: str
    where: tuple[str, ...] = ()
    sort: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    limit: int = _JSON_ROWS


@app.command(epilog="Example:  turnout watch final_ui --where 'age >= 30' --sort=-balance --columns name,balance")
def watch(
    table: Annotated[str, typer.Argument(help="The table; NAME@7 is generation 7 of it.", show_default=False)],
    where: Annotated[
        list[str] | None, typer.Option(help="Rows to keep: 'column operator value'; repeatable.", show_default=False)
    ] = None,
    sort: Annotated[str, typer.Option(help="Columns to sort by; -age is descending.", show_default=False)] = "",
    limit: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="How many rows.  [default: what fits]", show_default=False)
    ] = None,
    columns: Annotated[str, typer.Option(help="Columns to show: name,age.", show_default=False)] = "",
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = "",
    json: JsonOption = False,
) -> None:
    """Watch a table live; Ctrl-C ends it. With --json: one line for each changed window."""
    fits = _JSON_ROWS if json else max(5, console().size.height - _AROUND_ROWS)
    view = View(table, tuple(where or ()), (sort,) if sort else (), (columns,) if columns else (), limit or fits)
    with connected(url, token) as client:
        try:
            (_watch_json if json else _watch_live)(client, view)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def windows(client: Client, view: View, pause: Callable[[float], None] = time.sleep) -> Iterator[Rows | None]:
    """The window each time that it changed; None when the server is away, and the window again when it is back."""
    last: Rows | None = None
    away = seen = False
    while True:
        try:
            found = client.rows(view.table, where=view.where, sort=view.sort, columns=view.columns, limit=view.limit)
        except TurnoutError as error:
            # A server that starts answers before it has its tables: what was there will be there again.
            if error.status < 500 and not (seen and error.status == 404):
                raise
            if not away:
                yield None
            away = True
        else:
            if away or found != last:
                yield found
            last, away, seen = found, False, True
        pause(POLL_SECONDS)


def _watch_json(client: Client, view: View) -> None:
    last: Rows | None = None
    for window in windows(client, view):
        if window is not None and window != last:
            print_json(window.as_json())
            last = window


def _watch_live(client: Client, view: View) -> None:
    from rich.live import Live
    from rich.text import Text

    last: Rows | None = None
    with Live(Text("connecting ..."), console=console(), auto_refresh=False, vertical_overflow="ellipsis") as live:
        for window in windows(client, view):
            if window is None:
                waiting = Text(f"waiting for the server at {client.url} ...", style="yellow")
                live.update(_with_note(last, waiting), refresh=True)
                continue
            live.update(picture(window, last), refresh=True)
            last = window


def _with_note(window: Rows | None, note: RenderableType) -> RenderableType:
    from rich.console import Group

    return note if window is None else Group(picture(window, window), note)


def picture(window: Rows, last: Rows | None) -> RenderableType:
    """The window as a table: new rows and changed cells stand out against the last one."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    names = [column["name"] for column in window.columns]
    generation = f"generation {window.generation}"
    if last is not None and last.generation != window.generation:
        generation += f" (was {last.generation})"
    header = f"{window.table}   {generation}   version {window.version}   {window.total:,} rows"
    shown = Table(header_style="bold cyan")
    for column in window.columns:
        numeric = column["type"].startswith(("int", "float", "double", "decimal"))
        shown.add_column(column["name"], justify="right" if numeric else "left", no_wrap=True)
    for row, styles in zip(window.rows, _styles(window, last, names), strict=True):
        shown.add_row(*(cell(row[name], style) for name, style in zip(names, styles, strict=True)))
    return Group(Text(header, style="bold"), shown)


def _styles(window: Rows, last: Rows | None, names: list[str]) -> list[list[str]]:
    """A style for each cell. Against another generation nothing stands out: all of it is new."""
    if last is None or last.generation != window.generation or not names:
        return [[""] * len(names) for _ in window.rows]
    before = dict(zip(_identities(last.rows, names[0]), last.rows, strict=True))
    styles = []
    for identity, row in zip(_identities(window.rows, names[0]), window.rows, strict=True):
        old = before.get(identity)
        if old is None:
            styles.append([_NEW] * len(names))
        else:
            styles.append(["" if old.get(name) == row[name] else _CHANGED for name in names])
    return styles


def _identities(rows: tuple[Mapping[str, Any], ...], first: str) -> list[tuple[str, int]]:
    """What makes a row the same one as before: its first column, and which one of those that have it."""
    seen: dict[str, int] = {}
    found = []
    for row in rows:
        value = repr(row.get(first))
        seen[value] = seen.get(value, -1) + 1
        found.append((value, seen[value]))
    return found
