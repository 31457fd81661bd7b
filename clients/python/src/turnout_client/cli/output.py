"""Output of commands: errors, JSON, tables and cells. Control characters in foreign text never reach the terminal."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from turnout_client.column_types import ColumnType
from turnout_client.errors import TurnoutError

_PIPED_WIDTH = 200
OUTCOME_STYLES = {
    "applied": "green",
    "rolled_back": "green",
    "candidate": "cyan",
    "failed": "red",
    "rejected": "red",
}


def print_error(error: TurnoutError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(error.as_json()), file=sys.stderr)
        return
    for fault in error.message.splitlines() or [""]:  # an invalid configuration has one line for each fault
        print(f"error: {printable(fault)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {printable(error.hint)}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print one line of JSON, and flush it."""
    print(json.dumps(value, ensure_ascii=False, default=list), flush=True)


def console() -> Console:
    """Return a console for standard output; if it is not a terminal, lines are wide, so that fewer cells are cut."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return Console(width=wide, highlight=False)


class CutTable(Table):
    """A table whose cells are one line each, and are cut if the terminal is too narrow.

    Rich narrows the widest columns first, unless the columns are `no_wrap`: then it narrows all alike, and short ones
    vanish beside a long text. So not the columns but their cells may not wrap.
    """

    def add_column(self, header: RenderableType = "", *others: Any, **settings: Any) -> None:
        _cut(header)
        super().add_column(header, *others, **settings)

    def add_row(self, *cells: RenderableType | None, **settings: Any) -> None:
        for text in cells:
            _cut(text)
        super().add_row(*cells, **settings)


def _cut(text: RenderableType | None) -> None:
    """Let a text be one line, which is cut where it is too long."""
    if isinstance(text, Text):
        text.no_wrap, text.overflow = True, "ellipsis"


def table_of(
    columns: Iterable[Mapping[str, str]],
    title: str | None = None,
    *,
    fold: bool = False,
    rows: Iterable[Mapping[str, object]] = (),
) -> Table:
    """Return a table with numbers right-aligned; cells that are too wide are cut, or wrapped if `fold` is set."""
    shown = (Table if fold else CutTable)(title=title, title_justify="left", header_style="bold cyan")
    for column in columns:
        justify: JustifyMethod = "right" if is_number(column) else "left"
        shown.add_column(cell(column["name"]), justify=justify, overflow="fold" if fold else "ellipsis")
    for row in rows:
        shown.add_row(*map(cell, row.values()))
    return shown


def is_number(column: Mapping[str, str]) -> bool:
    kind = ColumnType.known(column["type"])
    return kind is not None and kind.number


def printable(text: str) -> str:
    """Replace control characters, which a terminal would interpret; line breaks are kept."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\N{MIDDLE DOT}" for sign in text)


def cell(value: object, style: str = "") -> Text:
    if value is None:
        return Text("null", style=style or "dim")
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, float):
        # Two decimals suit money and durations; very small numbers need significant digits.
        text = f"{value:,.2f}" if value == 0 or abs(value) >= 0.01 else f"{value:g}"
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Text(printable(text).replace("\n", " "), style=style)
