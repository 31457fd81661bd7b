"""`sql`: a SELECT over the tables of a running server."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from turnout.cli.app import DEFAULT_URL, JsonOption, TokenOption, UrlOption, app, cell, connected, console, print_json

if TYPE_CHECKING:
    from turnout.client import SqlRows


class SqlFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


_FILES: dict[SqlFormat, Literal["csv", "arrow", "parquet"]] = {
    SqlFormat.CSV: "csv",
    SqlFormat.ARROW: "arrow",
    SqlFormat.PARQUET: "parquet",
}


@app.command(epilog="Example:  turnout sql 'select accountType, avg(age) from final_ui group by all'")
def sql(
    text: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT; - reads it from standard input.")],
    form: Annotated[SqlFormat, typer.Option("--format", help="What to print; files go to standard output.")] = (
        SqlFormat.TABLE
    ),
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many rows.")] = 1_000,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = "",
    json: JsonOption = False,
) -> None:
    """Run one SELECT over the published tables, of one moment."""
    asked = sys.stdin.read() if text == "-" else text
    with connected(url, token) as client:
        file = None if json else _FILES.get(form)
        if file is not None:
            sys.stdout.buffer.write(client.sql_file(asked, file, limit=limit))
            sys.stdout.flush()
            return
        found = client.sql(asked, limit=limit)
    if json or form is SqlFormat.JSON:
        print_json(found.as_json())
    else:
        _show(found)


def _show(found: SqlRows) -> None:
    shown = Table(header_style="bold cyan")
    for column in found.columns:
        numeric = column["type"].startswith(("int", "float", "double", "decimal"))
        shown.add_column(cell(column["name"]), justify="right" if numeric else "left", overflow="fold")
    for row in found.rows:
        shown.add_row(*map(cell, row.values()))
    screen = console()
    screen.print(shown)
    if not found.complete:
        screen.print(f"The first {found.total:,} rows; --limit takes up to 10,000.")
