"""The command `watch`: a live window of a table in the terminal, across swaps and restarts of the server."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from turnout_client.cli import options, output
from turnout_client.cli.app import asking

if TYPE_CHECKING:
    from turnout_client import Client, State, Window, WindowOptions, WindowSubscription

_NEW, _CHANGED = "green", "bold black on yellow"
_STATE_STYLES = {"live": "green", "connecting": "yellow", "away": "yellow"}
_AROUND_ROWS = 7  # header, borders, the line below the table, and the cursor line
_LEAST_ROWS = 5
_JSON_ROWS = 100
# The maximum delay until a new terminal size or connection state is shown.
_LOOK_SECONDS = 0.25


@asking(
    "turnout watch final_ui",
    "turnout watch final_ui --where 'age >= 30' --sort=-balance,name --columns name,balance --limit 10",
    "turnout watch orchestrator_logs --sort=-ts",
)
def watch(
    client: Client,
    table: options.Table,
    where: options.Where = None,
    sort: options.Sort = "",
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="How many rows.  [default: what fits the terminal; 100 with --json]",
            show_default=False,
        ),
    ] = None,
    columns: options.Columns = "",
    json: bool = False,
) -> None:
    """Watch a table live; Ctrl-C ends it.

    Rows are updated as they change. Changed cells and new rows are highlighted. The header shows the generation, the
    version, the number of rows and the state of the connection; it also shows a swap. While the server does not answer,
    the last rows stay visible; updates continue when it answers again. A larger terminal shows more rows. Ctrl-C exits
    with code 0. An unknown table, a wrong `--where` or a refused token prints the server's error and exits with code 1.

    If the output is not a terminal, each change prints the whole window again. With `--json` each changed window is one
    line, in the format of `GET /api/tables/{name}/rows`; a window that did not change while the server did not answer
    is not printed again.
    """
    view: WindowOptions = {"where": where or (), "sort": sort or (), "columns": columns or ()}
    try:
        if json:
            view["limit"] = limit or _JSON_ROWS
            for window in _each(client, client.table(table).window(**view)):
                output.print_json(window.as_json())
        else:
            _watch_live(client, table, view, limit)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _watch_live(client: Client, table: str, view: WindowOptions, limit: int | None) -> None:
    screen = output.console()
    rows = limit or fitting(screen)
    asked: WindowOptions = {**view, "limit": rows}
    if not screen.is_terminal:
        _print_each(_each(client, client.table(table).window(**asked)), screen)
        return
    with (
        client.table(table).window(**asked) as windows,
        Live(Text("connecting ..."), console=screen, auto_refresh=False, vertical_overflow="ellipsis") as live,
    ):
        shown = Shown(client.url)
        while True:
            if limit is None and rows != fitting(screen):
                rows = fitting(screen)
                windows.move(limit=rows)
            if shown.look(windows, screen):
                live.update(shown.picture(), refresh=True)


def _each(client: Client, windows: WindowSubscription) -> Iterator[Window]:
    """Yield each window; print the reason to standard error whenever the server is not reachable."""
    told = ""
    while True:
        try:
            yield windows.get(_LOOK_SECONDS)
        except TimeoutError:
            if windows.reason and windows.reason != told:
                reason = output.printable(windows.reason)
                print(f"waiting for the server at {client.url} ... {reason}", file=sys.stderr, flush=True)
            told = windows.reason


def _print_each(windows: Iterable[Window], screen: Console) -> None:
    """Print each window below the previous one, for a file or another program."""
    before: Window | None = None
    for window in windows:
        screen.print(picture(window, before))
        screen.file.flush()
        before = window


def fitting(screen: Console) -> int:
    """Return the number of rows that fit into the terminal."""
    return max(_LEAST_ROWS, screen.size.height - _AROUND_ROWS)


@dataclass(slots=True)
class Shown:
    """The state of the display: the current and the previous window, the connection state, and the terminal's size."""

    url: str
    window: Window | None = None
    before: Window | None = None
    state: State | None = None
    reason: str = ""
    size: tuple[int, int] | None = None

    def look(self, windows: WindowSubscription, screen: Console) -> bool:
        """Wait a moment for a change; return whether the display must be redrawn."""
        try:
            window = windows.get(_LOOK_SECONDS)
        except TimeoutError:
            now = (windows.state, windows.reason, tuple(screen.size))
            if now == (self.state, self.reason, self.size):
                return False
        else:
            self.before, self.window = self.window, window
        self.state, self.reason, self.size = windows.state, windows.reason, (screen.size.width, screen.size.height)
        return True

    def picture(self) -> RenderableType:
        state = str(self.state)
        waiting = Text(f"waiting for the server at {self.url} ... {output.printable(self.reason)}", style="yellow")
        if self.window is None:
            return waiting if self.reason else Text("connecting ...")
        shown = picture(self.window, self.before, state)
        return Group(shown, waiting) if self.reason else shown


def picture(window: Window, before: Window | None, state: str = "live") -> RenderableType:
    """Return the window as a table that highlights new rows and changed cells since the previous window."""
    generation = f"generation {window.generation}"
    if before is not None and before.generation != window.generation:
        generation += f" (was {before.generation})"
    facts = (output.printable(window.table), generation, f"version {window.version}", f"{window.total:,} rows", "")
    header = Text("   ".join(facts), style="bold")
    header.append(state, style=_STATE_STYLES.get(state, "red"))
    shown = output.table_of(window.columns)
    # After a swap nothing is highlighted, because every row is new.
    compared = before is not None and before.generation == window.generation
    old = {} if before is None else dict(zip(before.ids, before.rows, strict=True))
    for identity, row in zip(window.ids, window.rows, strict=True):
        was = old.get(identity) if compared else row
        style = _NEW if was is None else _CHANGED
        same = {name for name, value in row.items() if was is not None and name in was and was[name] == value}
        shown.add_row(*(output.cell(value, "" if name in same else style) for name, value in row.items()))
    return Group(header, shown)
