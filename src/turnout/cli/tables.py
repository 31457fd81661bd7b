"""`tables`: the tables of a running server."""

from __future__ import annotations

from rich.table import Table

from turnout.cli.app import DEFAULT_URL, JsonOption, TokenOption, UrlOption, app, cell, connected, console, print_json


@app.command(epilog="Example:  turnout tables --json")
def tables(url: UrlOption = DEFAULT_URL, token: TokenOption = "", json: JsonOption = False) -> None:
    """List the tables: columns, row count, generation, version."""
    with connected(url, token) as client:
        found = client.tables()
    if json:
        print_json({"tables": found})
        return
    shown = Table(header_style="bold")
    for name in ("table", "rows", "gen", "version", "columns"):
        shown.add_column(name, justify="right" if name in ("rows", "gen", "version") else "left")
    for table in found:
        columns = ", ".join(f"{column['name']} {column['type']}" for column in table["columns"])
        numbers = (f"{table['rows']:,}", str(table["generation"]), str(table["version"]))
        shown.add_row(cell(table["name"], "bold"), *numbers, cell(columns, "dim"))
    console().print(shown)
