"""`tables`: the tables of a running server."""

from rich.table import Table

from turnout.cli import options, output
from turnout.cli.app import app, examples


@app.command(epilog=examples("turnout tables", "turnout tables --json"))
def tables(url: options.Url = options.DEFAULT_URL, token: options.Token = "", json: options.Json = False) -> None:
    """List the tables: columns with their types, row count, generation, version."""
    with options.connected(url, token) as client:
        found = client.tables()
    if json:
        output.print_json({"tables": found})
        return
    listed = Table(header_style="bold")
    for name in ("table", "rows", "gen", "version", "columns"):
        number = name in ("rows", "gen", "version")
        listed.add_column(name, justify="right" if number else "left", no_wrap=name != "columns")
    for table in found:
        columns = ", ".join(f"{column['name']} {column['type']}" for column in table["columns"])
        numbers = (f"{table['rows']:,}", str(table["generation"]), str(table["version"]))
        listed.add_row(output.cell(table["name"], "bold"), *numbers, output.cell(columns, "dim"))
    output.console().print(listed)
