"""`sql`: a SELECT over the tables of a running server."""

import sys
from typing import Annotated, Literal

import typer

from turnout.cli import options, output
from turnout.cli.app import app, examples


@app.command(
    epilog=examples(
        "turnout sql 'select accountType, avg(age) from final_ui group by all'",
        "turnout sql 'select * from final_ui where balance > 100' --format parquet --limit 10000 > rich.parquet",
        "turnout sql - < question.sql",
    )
)
def sql(
    text: Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT; - reads it from standard input.")],
    form: Annotated[
        Literal["table", "json", "csv", "arrow", "parquet"],
        typer.Option("--format", help="table; or json, csv, arrow or parquet, written to standard output."),
    ] = "table",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many rows, at most 10000.")] = 1_000,
    url: options.Url = options.DEFAULT_URL,
    token: options.Token = "",
    json: options.Json = False,
) -> None:
    """Run one SELECT over the published tables, all as of one moment.

    The SQL is DuckDB's. Who may run it: `access.sql` in docs/reference/configuration.md#access.
    """
    asked = sys.stdin.read() if text == "-" else text
    with options.connected(url, token) as client:
        if form != "table" and form != "json" and not json:
            sys.stdout.buffer.write(client.sql_file(asked, form, limit=limit))
            sys.stdout.flush()
            return
        found = client.sql(asked, limit=limit)
    if json or form == "json":
        output.print_json(found.as_json())
        return
    shown = output.table_of(found.columns, fold=True)
    for row in found.rows:
        shown.add_row(*map(output.cell, row.values()))
    screen = output.console()
    screen.print(shown)
    if not found.complete:
        screen.print(f"The first {found.total:,} rows; --limit takes up to 10,000.")
